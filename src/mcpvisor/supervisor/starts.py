"""Owns how many servers start at one time, so that fifty cold starts do not starve each other."""

from __future__ import annotations

from typing import Final

import anyio

FIRST_SECONDS: Final = 2.0
"""A start gives its place to the next one after this long, whatever has become of it."""


class StartPlace:
    """One place among the starting; `release` may be called more than once."""

    def __init__(self, places: anyio.Semaphore) -> None:
        self._places = places
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._places.release()

    async def release_in_time(self) -> None:
        """Release the place when its seconds are over."""
        await anyio.sleep(FIRST_SECONDS)
        self.release()


class StartGate:
    """Lets at most `places` servers be in their first seconds."""

    def __init__(self, places: int) -> None:
        self._places = anyio.Semaphore(places)

    async def enter(self) -> StartPlace:
        """Wait for a place; whoever gets it must see to its release."""
        await self._places.acquire()
        return StartPlace(self._places)

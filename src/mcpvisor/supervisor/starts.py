"""Owns how many servers start at one time and in which order, so that fifty cold starts do not starve each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import anyio

FIRST_SECONDS: Final = 2.0
"""A start gives its place to the next one after this long, whatever has become of it."""

SPREAD_STEP: Final = 0.01
SPREAD_SECONDS: Final = 0.5
"""First dials of HTTP servers that come together are spread: over so much for each of them, and so long at the most."""


AT_ONCE: Final = 4
"""Of the servers of which it is known what they offer so many start at once, however many there are."""

ASIDE_SECONDS: Final = 0.5
"""What the others of them leave to those who ask what they offer: new processes take all that a small machine has."""


class Urgency(IntEnum):
    """How soon a server is to start among those that wait for a place; the lowest goes first."""

    REQUIRED = 0
    AWAITED = 1
    """Calls wait for it."""
    PLAIN = 2
    SHOWN = 3
    """What it offered last is on show meanwhile."""


Urgent = Callable[[], Urgency]
"""How urgent a start is now; asked each time that a place is free, since calls come and go."""


class StartPlace:
    """One place among the starting; `release` may be called more than once."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free = free
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self._free()

    async def release_in_time(self) -> None:
        """Release the place when its seconds are over."""
        await anyio.sleep(FIRST_SECONDS)
        self.release()


@dataclass(slots=True, eq=False)
class _Waiting:
    number: int
    urgent: Urgent
    turn: anyio.Event


class StartGate:
    """Lets at most `places` servers be in their first seconds; among those that wait the most urgent goes first."""

    def __init__(self, places: int, jitter: Callable[[], float]) -> None:
        self._free = places
        self._jitter = jitter
        self._waiting: list[_Waiting] = []
        self._numbers = itertools.count()
        self._dialling = 0
        self._aside = 0

    async def enter(self, urgent: Urgent) -> StartPlace:
        """Wait for a place; whoever gets it must see to its release."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return StartPlace(self._release)
        waiting = _Waiting(next(self._numbers), urgent, anyio.Event())
        self._waiting.append(waiting)
        try:
            await waiting.turn.wait()
        except BaseException:
            if waiting.turn.is_set():  # the place was given in the same moment: hand it on
                self._release()
            else:
                self._waiting.remove(waiting)
            raise
        return StartPlace(self._release)

    def _release(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        first = min(self._waiting, key=lambda one: (one.urgent(), one.number))
        self._waiting.remove(first)
        first.turn.set()

    async def spread(self, urgent: Urgent) -> None:
        """Wait a random moment where many dial at once: up to 10 ms for each of those before, half a second at the most."""
        if urgent() < Urgency.PLAIN:
            return
        delay = min(self._dialling * SPREAD_STEP, SPREAD_SECONDS) * self._jitter()
        self._dialling += 1
        try:
            await anyio.sleep(delay)
        finally:
            self._dialling -= 1

    async def step_aside(self, urgent: Urgent) -> None:
        """Wait half a second where many start together of which the offers are on show: whoever lists them goes first."""
        if urgent() is not Urgency.SHOWN:
            return
        self._aside += 1
        try:
            await anyio.sleep(ASIDE_SECONDS if self._aside > AT_ONCE else 0)
        finally:
            self._aside -= 1

"""Owns the event loop's own pulse: one tick every quarter of a second, whose age tells whether the loop still turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import anyio

TICK_SECONDS: Final = 0.25


class Heartbeat:
    """Ticks while `run` runs. `on_tick` is called at each tick, on the loop, and must be quick and free of failure."""

    def __init__(self, on_tick: Callable[[], None] | None = None, *, interval: float = TICK_SECONDS) -> None:
        self._on_tick = on_tick
        self._interval = interval
        self._last = time.monotonic()

    def tick(self) -> None:
        """The loop turns at this moment."""
        self._last = time.monotonic()
        if self._on_tick is not None:
            self._on_tick()

    def age(self) -> float:
        """Seconds since the last tick; any thread may ask."""
        return time.monotonic() - self._last

    def is_fresh(self, within: float) -> bool:
        """Whether the last tick is at most `within` seconds old."""
        return self.age() <= within

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self.tick()
            await anyio.sleep(self._interval)

"""Owns which requests of callers are in flight on one session, and how long each has been without a sign."""

from __future__ import annotations

import itertools
from typing import Final

import anyio

SILENT: Final = 5.0
"""Seconds without a byte for a request after which its session is asked whether it is alive, once for each request."""


class Flights:
    """The requests in flight; times are monotonic seconds."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        """When each began, the oldest first."""
        self._unheard: dict[int, float] = {}
        """When each of those nobody has asked about was heard of last, the longest silent first."""
        self._asking: set[int] = set()
        """Those that wait for the answer to a question of the server; from them nothing is to be heard."""
        self._numbers = itertools.count()
        self._idle = anyio.Event()
        self._first = anyio.Event()

    def __len__(self) -> int:
        return len(self._began)

    def begin(self) -> int:
        """A request goes out; returns its number."""
        number, now = next(self._numbers), anyio.current_time()
        self._began[number] = self._unheard[number] = now
        self._first.set()
        return number

    def heard(self, number: int) -> None:
        """Something came for it."""
        if number in self._began:
            self._unheard.pop(number, None)
            if number not in self._asking:
                self._unheard[number] = anyio.current_time()
                self._first.set()

    def asking(self, number: int, *, open_: bool) -> None:
        """Whether the server waits for an answer of ours before it goes on with it."""
        if open_:
            self._asking.add(number)
        else:
            self._asking.discard(number)
        self.heard(number)

    @property
    def is_asking(self) -> bool:
        """Whether the server waits for an answer of ours for the sake of one of them."""
        return bool(self._asking)

    def end(self, number: int) -> None:
        """It is over."""
        del self._began[number]
        self._asking.discard(number)
        self._unheard.pop(number, None)
        if not self._began:
            self._idle.set()

    def is_busy(self, since: float) -> bool:
        """Whether one that began before that time is still under way."""
        return next(iter(self._began.values()), since) < since

    async def drained(self) -> None:
        """Return once none is in flight."""
        while self._began:
            if self._idle.is_set():
                self._idle = anyio.Event()
            await self._idle.wait()

    async def silent(self) -> None:
        """Return once one of them has been without a sign for 5 s; each is told of once until it is heard of again."""
        while not (due := self._due()):
            self._first = anyio.Event()
            longest = next(iter(self._unheard.values()), None)
            if longest is None:
                await self._first.wait()
            else:
                await anyio.sleep_until(longest + SILENT)
        for number in due:
            del self._unheard[number]

    def _due(self) -> list[int]:
        now = anyio.current_time()
        return [number for number, at in self._unheard.items() if at + SILENT <= now]

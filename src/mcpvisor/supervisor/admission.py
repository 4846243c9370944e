"""Owns how many requests of one server run at once, and how many may wait for that."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed


class Admission:
    """First come, first served; the limits may change at any time."""

    def __init__(self, concurrency: int, queue: int) -> None:
        self._concurrency = concurrency
        self._queue = queue
        self._waiting: deque[anyio.Event] = deque()
        self.running = 0

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def limit(self, concurrency: int, queue: int) -> None:
        """Set new limits; those already waiting keep their place."""
        self._concurrency, self._queue = concurrency, queue
        self._let_in()

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """A place among the running. Raises RequestFailed (`rejected`, `queue_full`) when too many wait already."""
        if self.running < self._concurrency and not self._waiting:
            self.running += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self.running -= 1
            self._let_in()

    async def _wait(self) -> None:
        if len(self._waiting) >= self._queue:
            raise RequestFailed(
                Outcome.REJECTED,
                "queue_full",
                f"{self.running} requests run and {len(self._waiting)} wait; more are refused (concurrency, queue)",
                retry_after_s=1.0,
            )
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():  # the place was given in the same moment: hand it on
                self.running -= 1
                self._let_in()
            else:
                self._waiting.remove(turn)
            raise

    def _let_in(self) -> None:
        while self._waiting and self.running < self._concurrency:
            self.running += 1
            self._waiting.popleft().set()

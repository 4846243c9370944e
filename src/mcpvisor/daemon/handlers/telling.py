"""Owns what is told of handlers: counts of each event, and news of the few that somebody has to know of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

from mcpvisor.supervisor.events import Event
from mcpvisor.supervisor.host_events import HandlerCircuitClosed, HandlerCircuitOpened, HandlerGaveUp

HandlerOutcome = Literal["accepted", "coalesced", "overflow", "handled", "failed", "dead", "dropped"]
"""What became of an event, or of one try; `overflow`: there was no room; `dropped`: its handler is no more."""

TOLD_EVERY: Final = 60.0
"""Seconds between two reports of dead letters of one handler."""


class HandlerCounts(Protocol):
    """Counts what happens to each event; every method must be O(1), quick and free of failure."""

    def handler_added(self, handler: str) -> None:
        """A handler is there."""
        ...

    def handler_event(self, handler: str, kind: str, outcome: HandlerOutcome) -> None:
        """Something became of an event."""
        ...

    def handler_queue(self, handler: str, length: int) -> None:
        """So many events wait for a handler, or are with it."""
        ...

    def handler_took(self, handler: str, seconds: float) -> None:
        """One try of an event took so long, whatever became of it."""
        ...

    def handler_removed(self, handler: str) -> None:
        """A handler is no more, and its series go with it."""
        ...


class HandlerNews:
    """What one handler is told of on the bus."""

    def __init__(self, handler: str, emit: Callable[[Event], None]) -> None:
        self._handler = handler
        self._emit = emit
        self._opened_at: float | None = None
        self._dead = 0
        self._told_at = float("-inf")
        self._why = ""

    def opened(self, failures: int, why: str, next_in: float) -> None:
        """The circuit is open, for `next_in` seconds."""
        now = time.time()
        self._opened_at = time.monotonic()
        self._emit(HandlerCircuitOpened(at=now, handler=self._handler, failures=failures, why=why, next_try=now + next_in))

    def closed(self) -> None:
        """The circuit is closed again."""
        seconds = time.monotonic() - self._opened_at if self._opened_at is not None else 0.0
        self._opened_at = None
        self._emit(HandlerCircuitClosed(at=time.time(), handler=self._handler, seconds=seconds))

    def gave_up(self, why: str) -> None:
        """One more event is a dead letter."""
        self._dead, self._why = self._dead + 1, why
        self.tell_dead()

    def tell_dead(self) -> None:
        """Tell of the dead letters that were not told of, once their time has come."""
        now = time.monotonic()
        if self._dead and now >= self._told_at + TOLD_EVERY:
            count, self._dead, self._told_at = self._dead, 0, now
            self._emit(HandlerGaveUp(at=time.time(), handler=self._handler, count=count, why=self._why))

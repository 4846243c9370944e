"""Owns what waits to be written: handed over by the event loop, taken by the thread that writes, bounded on the way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from mcpvisor.daemon.state.kept import PastEvent
from mcpvisor.daemon.state.tables import TABLES, Table

GATHER_SECONDS: Final = 0.25
"""How long changes are gathered into one write; a crash loses at most these."""


@dataclass(slots=True)
class Batch:
    """One write: for each table the newest value of each key (None: it is deleted), and events in their order.

    `number` is that of the newest change in it.
    """

    changes: dict[Table, dict[str, Any]] = field(default_factory=dict[Table, dict[str, Any]])
    events: list[PastEvent] = field(default_factory=list[PastEvent])
    number: int = 0


class Pending:
    """What waits to be written. Changes of one key leave only the newest; of events beyond `most_events` the oldest go."""

    def __init__(self, most_events: int) -> None:
        self._changes: dict[Table, dict[str, Any]] = {table: {} for table in TABLES}
        self._events: deque[PastEvent] = deque(maxlen=most_events)
        self._changed = threading.Condition()
        self._number = 0
        self._is_urgent = False
        self.lost_events = 0
        """Events that were never written, for want of a disk that takes them."""
        self.is_closed = False
        """Set when nothing follows any more: what is here is written, and that is the end."""

    @property
    def number(self) -> int:
        """The number of the newest change."""
        return self._number

    # By the event loop

    def put(self, table: Table, key: str, value: Any, *, urgent: bool = False) -> int:
        """Hand a value over, None to delete it; `urgent`: do not wait for others. Returns the number of the change."""
        with self._changed:
            self._changes[table][key] = value
            return self._take_note(urgent=urgent)

    def add(self, event: PastEvent) -> None:
        """Hand an event over."""
        with self._changed:
            self._keep_events((event,))
            self._take_note(urgent=False)

    def hurry(self) -> int:
        """Write at once what is here; returns the number of its newest change."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify()
            return self._number

    def close(self) -> None:
        """Write what is here, and nothing after it."""
        with self._changed:
            self.is_closed = True
            self._changed.notify()

    def _take_note(self, *, urgent: bool) -> int:
        self._number += 1
        self._is_urgent = self._is_urgent or urgent
        self._changed.notify()
        return self._number

    def _keep_events(self, events: Iterable[PastEvent]) -> None:
        for event in events:
            if len(self._events) == self._events.maxlen:
                self.lost_events += 1
            self._events.append(event)

    # By the thread that writes

    def wait(self, seconds: float, *, gather: bool) -> None:
        """Return when there is something to write, or after `seconds`.

        With `gather`, what comes shortly after the first change is waited for; without it the whole time is, as nothing could
        be written anyway. Urgent changes, and the end, are waited for by nobody.
        """
        with self._changed:
            if gather and not self._changed.wait_for(self._has_work, seconds):
                return
            self._changed.wait_for(self._is_pressing, GATHER_SECONDS if gather else seconds)

    def _has_work(self) -> bool:
        return self._is_pressing() or bool(self._events) or any(self._changes.values())

    def _is_pressing(self) -> bool:
        return self._is_urgent or self.is_closed

    def take(self) -> Batch:
        """All that is here; it must be written or given back."""
        with self._changed:
            batch = Batch({table: changes for table, changes in self._changes.items() if changes}, list(self._events))
            batch.number = self._number
            self._changes = {table: {} for table in TABLES}
            self._events.clear()
            self._is_urgent = False
            return batch

    def give_back(self, batch: Batch) -> None:
        """Take back what could not be written; what came meanwhile is newer."""
        with self._changed:
            for table, changes in batch.changes.items():
                self._changes[table] = {**changes, **self._changes[table]}
            newer = list(self._events)
            self._events.clear()
            self._keep_events((*batch.events, *newer))

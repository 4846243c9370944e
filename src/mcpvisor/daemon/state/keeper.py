"""Owns the state store's place in the daemon: events into its journal, its health into events, and what the control asks."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import anyio
import anyio.to_thread

from mcpvisor.daemon.control.keeping import NoCopy
from mcpvisor.daemon.control.views import event_kind, event_view
from mcpvisor.daemon.state.faults import StoreFault
from mcpvisor.daemon.state.kept import PastEvent, StoreHealth
from mcpvisor.daemon.state.opening import copy_of
from mcpvisor.daemon.state.store import StateStore
from mcpvisor.metrics.recorder import MetricsRecorder
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import Event, ServerEvent, ServerRemoved
from mcpvisor.supervisor.host_events import StateStoreDegraded, StateStoreRecovered, StateStoreReplaced
from mcpvisor.supervisor.reporting import is_kept
from mcpvisor.supervisor.supervisor import Supervisor

JsonObject = dict[str, Any]

STATE_FILE: Final = "state.db"
TIDY_SECONDS: Final = 3600.0
DAEMON_EVENTS: Final = 100
"""Events of the daemon itself that are shown of this run."""

_COPIES: Final = "state.copy-*"


class Keeper:
    """The state store of a running daemon; see `control.keeping.Keeping`."""

    def __init__(self, folder: Path) -> None:
        self.store = StateStore(folder / STATE_FILE)
        self._own: deque[tuple[int, JsonObject]] = deque(maxlen=DAEMON_EVENTS)
        """With their numbers in the order in which events came."""
        self._removals: deque[tuple[int, JsonObject]] = deque(maxlen=DAEMON_EVENTS)
        """Of servers whose history went with them."""
        self._marked_of: list[PastEvent] = []
        self._marked: list[tuple[int, JsonObject]] = []
        """What is shown of the events of earlier runs."""
        self._down_at: float | None = None
        """When the store ceased to be written, in monotonic seconds."""
        self._lost = 0

    @asynccontextmanager
    async def kept(self, supervisor: Supervisor, recorder: MetricsRecorder) -> AsyncGenerator[None]:
        """Keep what the supervisor tells, for as long as the context lasts; how the store is then goes by its events."""
        store, bus = self.store, supervisor.bus
        note = partial(self._note, bus)
        bus.attach(note)
        store.on_health = partial(self._health_changed, supervisor)
        store.on_emptied = partial(self._emptied, supervisor)
        await store.open()
        recorder.state_store(up=store.health.up)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.watch)
            tasks.start_soon(self._tidy, supervisor)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                await store.close()
                bus.detach(note)

    async def _tidy(self, supervisor: Supervisor) -> None:
        while True:
            await anyio.sleep(TIDY_SECONDS)
            self.store.configured([status.name for status in supervisor.statuses()], time.time())

    # The journal

    def _note(self, bus: EventBus, event: Event) -> None:
        if is_kept(event):
            past = _past(event)
            self.store.note(past)
            if isinstance(event, ServerRemoved):
                self._removals.append((bus.next_number(), past.view))
            elif not isinstance(event, ServerEvent):
                self._own.append((bus.next_number(), past.view))

    def _emptied(self, supervisor: Supervisor, aside: Path | None, reason: str) -> None:
        told = [kept for name in supervisor.names() for kept in supervisor.numbered_history(name)]
        told.sort(key=lambda kept: kept[0])
        self.store.rewrite([*self.store.past, *(_past(event) for _, event in told)])
        forgotten = not self.store.is_read
        supervisor.bus.emit(StateStoreReplaced(at=time.time(), reason=reason, aside=str(aside or ""), forgotten=forgotten))

    def _health_changed(self, supervisor: Supervisor, now: StoreHealth) -> None:
        at = time.time()
        if not now.up:
            self._down_at = time.monotonic() if self._down_at is None else self._down_at
            supervisor.bus.emit(StateStoreDegraded(at=at, reason=now.reason))
        elif self._down_at is not None:
            lost, self._lost = self.store.lost_events - self._lost, self.store.lost_events
            supervisor.bus.emit(StateStoreRecovered(at=at, seconds=time.monotonic() - self._down_at, lost=lost))
            self._down_at = None

    # See `control.keeping.Keeping`

    def state_store(self) -> JsonObject:
        """See `Keeping`."""
        health = self.store.health
        damaged = self.store.unread_file
        return {
            "up": health.up,
            "reason": health.reason,
            "since": health.since,
            "path": str(self.store.path),
            "damaged": str(damaged) if damaged is not None else None,
        }

    def past(self, server: str | None = None) -> list[JsonObject]:
        """See `Keeping`."""
        return [view for _, view in self.numbered(server)]

    def numbered(self, server: str | None = None) -> list[tuple[int, JsonObject]]:
        """See `Keeping`."""
        if self._marked_of is not self.store.past:  # it comes late where the file could not be read at once
            self._marked_of = self.store.past
            self._marked = [(0, {**event.view, "earlier": True}) for event in self._marked_of]
        if server is None:
            return [*self._marked, *sorted((*self._own, *self._removals), key=lambda kept: kept[0])]
        return [kept for kept in (*self._marked, *self._removals) if kept[1].get("server") == server]

    async def copy(self) -> BinaryIO:
        """See `Keeping`."""
        if not self.store.health.up or not await self.store.flush():
            raise NoCopy(f"the state store is degraded: {self.store.health.reason}")
        try:
            return await anyio.to_thread.run_sync(_copied, self.store.path)
        except StoreFault as fault:
            raise NoCopy(f"no copy can be made: {fault.reason}") from fault


def _past(event: Event) -> PastEvent:
    server = event.server if isinstance(event, ServerEvent) else ""
    return PastEvent(at=event.at, server=server, kind=event_kind(event), view=event_view(event))


def _copied(path: Path) -> BinaryIO:
    """The copy as an open file without a name. Raises StoreFault."""
    for left in path.parent.glob(_COPIES):  # of a daemon that was killed at it
        left.unlink(missing_ok=True)
    to = path.with_name(_COPIES.replace("*", os.urandom(8).hex()))
    copy_of(path, to)
    file = to.open("rb")
    to.unlink()
    return file

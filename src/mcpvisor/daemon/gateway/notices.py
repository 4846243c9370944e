"""Owns telling clients what nobody asked for: that lists differ, and what servers log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeGuard

import anyio

from mcpvisor.daemon.gateway.backlog import MAX_MESSAGE, size_of
from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.endpoint import CHANGES
from mcpvisor.daemon.gateway.loglevels import MESSAGE_METHOD, admits, named
from mcpvisor.daemon.gateway.questions.completions import COMPLETE_METHOD, Completions
from mcpvisor.daemon.gateway.sessions import Session, Sessions
from mcpvisor.daemon.gateway.streams import Streams
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import (
    CatalogChanged,
    CatalogKind,
    Event,
    ServerAdded,
    ServerNotified,
    ServerRemoved,
    ServerUpdated,
)

COALESCE_SECONDS: Final = 0.1
"""Changes within this time are one notice: servers come up together, and some announce each tool on its own."""

QUEUE: Final = 4096

SLICE: Final = 0.002
"""Seconds after which a full queue is left alone for twice as long: whatever servers log, it is a third of the loop's time."""

_CATALOG_EVENTS: Final = (CatalogChanged, ServerAdded, ServerRemoved, ServerUpdated)


class Notices:
    """Reads the event stream for the clients of all endpoints."""

    def __init__(
        self,
        bus: EventBus,
        catalogs: Catalogs,
        streams: Streams,
        sessions: Sessions,
        completions: Completions,
    ) -> None:
        self._bus = bus
        self._subscription = bus.subscribe(QUEUE)
        self._catalogs = catalogs
        self._streams = streams
        self._sessions = sessions
        self._completions = completions
        self._stirred = anyio.Event()

    async def run(self, server_removed: Callable[[str], Any]) -> None:
        """Pass on events until cancelled; `server_removed` is awaited for each server that left."""
        self._bus.attach(self._tap)
        try:
            await self._pass_on(server_removed)
        finally:
            self._bus.detach(self._tap)

    async def _pass_on(self, server_removed: Callable[[str], Any]) -> None:
        dropped = 0
        turn = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tell_changes)
            with self._subscription as events:
                async for event in events:
                    self._take(event)
                    if isinstance(event, ServerRemoved):
                        await server_removed(event.server)
                    if events.dropped != dropped:  # some of what was lost may have been a change
                        dropped = events.dropped
                        self._stirred.set()
                    if time.perf_counter() - turn > SLICE:  # each message is copied for every session
                        await anyio.sleep(2 * SLICE)
                        turn = time.perf_counter()

    def _tap(self, event: Event) -> None:
        """Within `emit`, since the result of the request that a message belongs to may be right behind it."""
        if isinstance(event, ServerNotified) and event.method == COMPLETE_METHOD:
            self._completions.tell(event.server, event.params)

    def _take(self, event: Event) -> None:
        if isinstance(event, _CATALOG_EVENTS):
            self._stirred.set()
        elif _is_log_of_a_client(event):
            params = named(event.server, event.params)
            size = size_of(params)
            if size is None or size > MAX_MESSAGE:
                self._sessions.observer.refused("server", "size" if size is not None else "values")
                return
            for session in self._sessions.all():
                if not _is_of(session, event) or session.endpoint.view not in (None, event.server):
                    continue
                if admits(session.wish.level, params.get("level")):
                    session.outbox.log(MESSAGE_METHOD, params, size)

    async def _tell_changes(self) -> None:
        while True:
            await self._stirred.wait()
            await anyio.sleep(COALESCE_SECONDS)
            self._stirred = anyio.Event()
            self._catalogs.refresh()
            for view, kinds in self._catalogs.take_untold().items():
                self._tell(view, kinds)

    def _tell(self, view: View, kinds: Iterable[CatalogKind]) -> None:
        for session in self._sessions.on(view):
            for kind in kinds:
                if session.seen.get(kind) != self._catalogs.stamp(view, kind):
                    session.outbox.list_changed(CHANGES[kind])
        self._streams.changed(view, [CHANGES[kind] for kind in sorted(kinds)])


def _is_log_of_a_client(event: Event) -> TypeGuard[ServerNotified]:
    """Whether it is a log message of an instance that runs for one client, and no request of that client has taken it.

    What a server for all logs outside of a call is nobody's: whichever client has caused it, the others must not read it.
    """
    return isinstance(event, ServerNotified) and event.method == MESSAGE_METHOD and not event.to_caller


def _is_of(session: Session, event: ServerNotified) -> bool:
    """Whether a session may read it: an instance of a whole identity is shared by the sessions of that."""
    client = event.client
    if client is None or session.principal != client.name:
        return False
    return not event.private if client.session is None else client.session == session.id

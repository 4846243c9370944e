"""Owns the sessions of clients of the handshake era: who has which, how many, and when they end."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import anyio
import anyio.abc
from mcp.server.connection import Connection
from mcp_types import InitializeRequestParams
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.gateway.book import WRITE_SECONDS, Book
from mcpvisor.daemon.gateway.caller import caller_of
from mcpvisor.daemon.gateway.endpoint import CHANGES, Endpoint
from mcpvisor.daemon.gateway.event_memory import Shelf
from mcpvisor.daemon.gateway.frames import GATEWAY_CLOSED, SERVER_REMOVED, SESSION_ENDED
from mcpvisor.daemon.gateway.guard import MESSAGE_SCOPE
from mcpvisor.daemon.gateway.keeper import SessionKeeper
from mcpvisor.daemon.gateway.loglevels import LevelWishes, SessionWish, Want
from mcpvisor.daemon.gateway.observer import GatewayObserver
from mcpvisor.daemon.gateway.openings import Openings
from mcpvisor.daemon.gateway.outbox import Outbox
from mcpvisor.daemon.gateway.replies import refuse
from mcpvisor.daemon.gateway.sdk_server import read_settled, serve_session, settled_by
from mcpvisor.daemon.gateway.session_transport import SESSION_HEADER, SessionTransport
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.gateway.sleepers import Sleepers
from mcpvisor.daemon.gateway.watching import Watcher, Watching
from mcpvisor.daemon.state.kept import KeptSession
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.principal import Principal

LEGACY: Final = "legacy"

_SESSION_HEADER: Final = SESSION_HEADER.encode()


class Session:
    """One client's session on one endpoint."""

    def __init__(
        self, session_id: str, principal: str, endpoint: Endpoint, idle_seconds: float, wish: SessionWish, shelf: Shelf
    ) -> None:
        self.watcher: Watcher
        """What it watches; set when it is admitted."""
        self.id = session_id
        self.principal = principal
        self.endpoint = endpoint
        self.transport = SessionTransport(self.id, idle_timeout=idle_seconds, shelf=shelf)
        self.outbox = Outbox()
        self.transport.pushing.on_unsent = self.outbox.unsent
        self.transport.pushing.on_gap = self.all_may_differ
        self.wish = wish
        self.seen: dict[CatalogKind, str] = {}
        """The stamp of each list as this client last read it to its end: it is not told of what it has seen."""
        self.has_listed = False
        """Whether its first list was answered, for which alone it waits for servers that are starting."""
        self.kept: KeptSession | None = None
        """How it is kept beyond the daemon's end; None before it is established, and where it is too large for that."""
        self._uses = 0
        self._used_at = time.time()

    @property
    def is_idle(self) -> bool:
        """Whether it has neither an open stream nor a request in flight."""
        return not self._uses

    @property
    def used_at(self) -> float:
        """When it was used last, in wall-clock seconds: now, while it is in use."""
        return time.time() if self._uses else self._used_at

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the session from counting as idle for a while."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self._used_at = time.time()

    def all_may_differ(self) -> None:
        """Tell the client that it may have missed whatever it is told of."""
        for method in CHANGES.values():
            self.outbox.list_changed(method)
        for uri in self.watcher.told:
            self.outbox.updated(uri)

    def __repr__(self) -> str:
        return f"Session(of {self.principal} on {self.endpoint.view or 'all'})"


class Sessions:
    """The table of sessions, by principal and id: to everybody else an id does not exist."""

    def __init__(
        self,
        tasks: anyio.abc.TaskGroup,
        limits: GatewayLimits,
        observer: GatewayObserver,
        want_log_level: Want,
        keeper: SessionKeeper,
        watching: Watching,
    ) -> None:
        self._tasks = tasks
        self._watching = watching
        self._sleepers = Sleepers(watching)
        self._book = Book(keeper, limits, forgotten=self._sleepers.forget)
        self._sleepers.fill(self._book.asleep())
        self._limits = limits
        self.observer = observer
        self._open: dict[tuple[str, str], Session] = {}
        self._waking: dict[tuple[str, str], anyio.Event] = {}
        """Sessions of a former run that are about to be open again; set once they are, or are not."""
        self._per_principal: Counter[str] = Counter()
        self.on_ended: Callable[[Principal], None] = lambda _: None
        """Told of each session that is over."""
        self._wishes = LevelWishes(want_log_level)
        self._shelf = Shelf()
        self._openings = Openings(per_second=limits.openings_per_second, burst=limits.openings_burst)

    def __len__(self) -> int:
        return len(self._open)

    def on(self, view: str | None) -> Iterator[Session]:
        """The sessions of one endpoint."""
        return (session for session in list(self._open.values()) if session.endpoint.view == view)

    def all(self) -> list[Session]:
        """Every session."""
        return list(self._open.values())

    async def handle(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the handshake era."""
        caller = caller_of(scope)
        presented = next((value for name, value in scope["headers"] if name == _SESSION_HEADER), None)
        if presented is None:
            await self._handle_first(endpoint, scope, receive, send)
            return
        session = await self._find(endpoint, caller.principal, presented.decode("latin-1"))
        if session is None:
            # Word for word the same for an id that never was, has ended, or is another's.
            await refuse(send, 404, "Session not found")
            return
        caller.session = session
        self._open[session.principal, session.id] = self._open.pop((session.principal, session.id))  # used last
        with session.in_use():
            await session.transport.handle_request(scope, receive, send)
        if session.transport.is_terminated:
            await self.end(session, SESSION_ENDED)

    async def end(self, session: Session, cause: str = GATEWAY_CLOSED) -> None:
        """End a session; whatever is in flight in it is answered with `cause`. One that has ended is no error.

        Where it is the gateway that closes, the session itself is not over: its client may go on in the daemon's next run.
        """
        if self._open.pop((session.principal, session.id), None) is None:
            return
        self._per_principal[session.principal] -= 1
        if not self._per_principal[session.principal]:
            del self._per_principal[session.principal]
        session.wish.end()
        session.transport.memory.close()
        self._watching.close(session.watcher)
        self.observer.session_closed(LEGACY)
        self.on_ended(Principal(session.principal, session.id))
        if session.endpoint.is_gone:
            cause = SERVER_REMOVED
        if session.kept is not None:
            if cause == GATEWAY_CLOSED:
                self._write_use(session, session.kept)
            else:
                self._book.forget(session.kept)
        if not session.transport.is_terminated:
            session.transport.end_cause = cause
            with anyio.CancelScope(shield=True):
                await session.transport.terminate()

    async def write_uses(self) -> None:
        """Write every now and then which sessions are in use, and forget those that are not; for ever."""
        while True:
            await anyio.sleep(WRITE_SECONDS)
            for session in self._open.values():
                session.transport.memory.forget_expired()
                if session.kept is not None:
                    self._write_use(session, session.kept)
            self._book.forget_expired()

    def forget_view(self, view: str) -> None:
        """Forget the sessions of former runs on an endpoint that is gone."""
        self._book.forget_view(view)

    def _write_use(self, session: Session, kept: KeptSession) -> None:
        if session.used_at > kept.used_at:
            session.kept = self._book.used(kept)

    async def _find(self, endpoint: Endpoint, principal: str, session_id: str) -> Session | None:
        """The session of that id, which may be one of a former run; None where it does not exist for who asks for it here."""
        key = principal, session_id
        while (waking := self._waking.get(key)) is not None:
            await waking.wait()
        session = self._open.get(key)
        if session is None:
            session = await self._wake(endpoint, principal, session_id)
        return session if session is not None and session.endpoint is endpoint else None

    async def _wake(self, endpoint: Endpoint, principal: str, session_id: str) -> Session | None:
        """Open a session of a former run again, as if its client had just initialised; None where there is none."""
        kept = self._book.find(session_id, principal, endpoint.view)
        if kept is None:
            return None
        settled = read_settled(kept.opened_with)
        if settled is None:
            self._book.forget(kept)
            return None
        self._waking[principal, session_id] = done = anyio.Event()
        try:
            await self._openings.take(principal)
            if not self._book.wake(kept):
                return None
            session = self._admit(session_id, principal, endpoint, kept)
            for method in CHANGES.values():
                session.outbox.list_changed(method)  # what it has missed nobody knows
            with anyio.CancelScope(shield=True):
                await self._tasks.start(self._run, session, settled)
            return session
        finally:
            del self._waking[principal, session_id]
            done.set()

    async def _handle_first(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Without a session only `initialize` can be answered; nothing is kept where that fails."""
        message = scope.get(MESSAGE_SCOPE)
        if not isinstance(message, dict) or message.get("method") != "initialize":
            await refuse(send, 400, "Bad Request: Missing session ID")
            return
        caller = caller_of(scope)
        await self._openings.take(caller.principal)
        if not await self._has_room(caller.principal):
            self.observer.refused("client", "rate")
            await refuse(send, 503, "too many open sessions; end some, or wait", headers={"retry-after": "10"})
            return
        session = self._admit(secrets.token_urlsafe(24), caller.principal, endpoint)
        caller.session = session
        is_established = False
        try:
            with session.in_use():
                connection: Connection = await self._tasks.start(self._run, session)
                await session.transport.handle_request(scope, receive, send)
            is_established = connection.initialize_accepted
            self._keep(session, connection)
        finally:
            if not is_established:
                await self.end(session, SESSION_ENDED)

    def _keep(self, session: Session, connection: Connection) -> None:
        settled = settled_by(connection)
        if settled is not None and (session.principal, session.id) in self._open:
            session.kept = self._book.opened(session.id, session.principal, session.endpoint.view, settled)

    def _keep_watched(self, session: Session) -> None:
        if session.kept is not None and (session.principal, session.id) in self._open:
            session.kept = self._book.watches(session.kept, session.watcher.told)

    async def _has_room(self, principal: str) -> bool:
        """Whether one more session can be opened, after ending one that was left behind where it must be.

        Where a principal has its share, one of its own goes; where all are taken, one of whoever has the most. Those of
        former runs were left behind for longest.
        """
        if self._share(principal) >= self._limits.sessions_per_principal:
            return await self._end_least_used(principal)
        if len(self._open) + len(self._book) >= self._limits.sessions:
            return await self._end_least_used(max(self._per_principal.keys() | self._book.sleepers, key=self._share))
        return True

    def _share(self, principal: str) -> int:
        """How many sessions a principal has, those of former runs included."""
        return self._per_principal[principal] + self._book.asleep_of(principal)

    async def _end_least_used(self, principal: str) -> bool:
        """End the session of a principal that was idle for longest; False where each has a stream or a request open."""
        if self._book.forget_least_used(principal):
            return True
        for session in self._open.values():
            if session.principal == principal and session.is_idle:
                await self.end(session, SESSION_ENDED)
                return True
        return False

    def _admit(self, session_id: str, principal: str, endpoint: Endpoint, kept: KeptSession | None = None) -> Session:
        idle_seconds, wish = self._limits.session_idle_seconds, self._wishes.open()
        session = Session(session_id, principal, endpoint, idle_seconds, wish, self._shelf)
        session.kept = kept
        watcher = self._sleepers.wake(kept, session.outbox) if kept is not None else None
        if watcher is None:
            watcher = self._watching.open("session", principal, endpoint.view, session.outbox)
        watcher.changed = partial(self._keep_watched, session)
        session.watcher = watcher
        self._open[principal, session_id] = session
        self._per_principal[principal] += 1
        self.observer.session_opened(LEGACY)
        return session

    async def _run(
        self,
        session: Session,
        settled: InitializeRequestParams | None = None,
        *,
        task_status: anyio.abc.TaskStatus[Connection] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        cause = GATEWAY_CLOSED  # what cuts it short is not the session's own end
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.outbox.deliver, session.transport.pushing.send, session.transport.pushing.listened)
                await serve_session(session.endpoint, session.transport, settled, task_status=task_status)
                tasks.cancel_scope.cancel()
            cause = SESSION_ENDED
        finally:
            await self.end(session, cause)

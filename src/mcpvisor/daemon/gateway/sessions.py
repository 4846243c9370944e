"""Owns the sessions of clients of the handshake era: who has which, how many, and when they end."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import anyio.abc
from mcp.server.connection import Connection
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.gateway.caller import caller_of
from mcpvisor.daemon.gateway.endpoint import Endpoint
from mcpvisor.daemon.gateway.frames import GATEWAY_CLOSED, SERVER_REMOVED, SESSION_ENDED
from mcpvisor.daemon.gateway.guard import MESSAGE_SCOPE
from mcpvisor.daemon.gateway.loglevels import LevelWishes, SessionWish, Want
from mcpvisor.daemon.gateway.observer import GatewayObserver
from mcpvisor.daemon.gateway.openings import Openings
from mcpvisor.daemon.gateway.outbox import Outbox
from mcpvisor.daemon.gateway.replies import refuse
from mcpvisor.daemon.gateway.sdk_server import SESSION_HEADER, SessionTransport, serve_session
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.supervisor.events import CatalogKind

LEGACY: Final = "legacy"

_SESSION_HEADER: Final = SESSION_HEADER.encode()


class Session:
    """One client's session on one endpoint."""

    def __init__(self, principal: str, endpoint: Endpoint, idle_seconds: float, wish: SessionWish) -> None:
        self.id = secrets.token_urlsafe(24)
        self.principal = principal
        self.endpoint = endpoint
        self.transport = SessionTransport(self.id, idle_timeout=idle_seconds)
        self.outbox = Outbox()
        self.wish = wish
        self.seen: dict[CatalogKind, str] = {}
        """The stamp of each list as this client last read it to its end: it is not told of what it has seen."""
        self.has_listed = False
        """Whether its first list was answered, for which alone it waits for servers that are starting."""

        self._uses = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has neither an open stream nor a request in flight."""
        return not self._uses

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the session from counting as idle for a while."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1

    def __repr__(self) -> str:
        return f"Session(of {self.principal} on {self.endpoint.view or 'all'})"


class Sessions:
    """The table of sessions, by principal and id: to everybody else an id does not exist."""

    def __init__(
        self, tasks: anyio.abc.TaskGroup, limits: GatewayLimits, observer: GatewayObserver, want_log_level: Want
    ) -> None:
        self._tasks = tasks
        self._limits = limits
        self.observer = observer
        self._open: dict[tuple[str, str], Session] = {}
        self._per_principal: Counter[str] = Counter()
        self._wishes = LevelWishes(want_log_level)
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
        session = self._open.get((caller.principal, presented.decode("latin-1")))
        if session is None or session.endpoint is not endpoint:
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
        """End a session; whatever is in flight in it is answered with `cause`. One that has ended is no error."""
        if self._open.pop((session.principal, session.id), None) is None:
            return
        self._per_principal[session.principal] -= 1
        if not self._per_principal[session.principal]:
            del self._per_principal[session.principal]
        session.wish.end()
        self.observer.session_closed(LEGACY)
        if not session.transport.is_terminated:
            session.transport.end_cause = SERVER_REMOVED if session.endpoint.is_gone else cause
            with anyio.CancelScope(shield=True):
                await session.transport.terminate()

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
        session = self._admit(caller.principal, endpoint)
        caller.session = session
        is_established = False
        try:
            with session.in_use():
                connection: Connection = await self._tasks.start(self._run, session)
                await session.transport.handle_request(scope, receive, send)
            is_established = connection.initialize_accepted
        finally:
            if not is_established:
                await self.end(session, SESSION_ENDED)

    async def _has_room(self, principal: str) -> bool:
        """Whether one more session can be opened, after ending one that was left behind where it must be.

        Where a principal has its share, one of its own goes; where all are taken, one of whoever has the most.
        """
        if self._per_principal[principal] >= self._limits.sessions_per_principal:
            return await self._end_least_used(principal)
        if len(self._open) >= self._limits.sessions:
            return await self._end_least_used(max(self._per_principal, key=self._per_principal.__getitem__))
        return True

    async def _end_least_used(self, principal: str) -> bool:
        """End the session of a principal that was idle for longest; False where each has a stream or a request open."""
        for session in self._open.values():
            if session.principal == principal and session.is_idle:
                await self.end(session, SESSION_ENDED)
                return True
        return False

    def _admit(self, principal: str, endpoint: Endpoint) -> Session:
        session = Session(principal, endpoint, self._limits.session_idle_seconds, self._wishes.open())
        self._open[principal, session.id] = session
        self._per_principal[principal] += 1
        self.observer.session_opened(LEGACY)
        return session

    async def _run(
        self, session: Session, *, task_status: anyio.abc.TaskStatus[Connection] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.outbox.deliver, session.transport.push)
                await serve_session(session.endpoint, session.transport, task_status=task_status)
                tasks.cancel_scope.cancel()
        finally:
            await self.end(session, SESSION_ENDED)

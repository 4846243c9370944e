"""Owns the gateway as a whole: what it is made of, and in which order it opens and closes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Self

import anyio

from mcpvisor.daemon.gateway.app import GatewayApp, Health
from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.endpoint import Endpoint
from mcpvisor.daemon.gateway.guard import Guard
from mcpvisor.daemon.gateway.in_flight import InFlight
from mcpvisor.daemon.gateway.keeper import MemoryKeeper, SessionKeeper
from mcpvisor.daemon.gateway.listeners import CUT_SECONDS, Listener, WebServer, open_listeners
from mcpvisor.daemon.gateway.loops import LoopCheck
from mcpvisor.daemon.gateway.notices import Notices
from mcpvisor.daemon.gateway.observer import GatewayObserver, NoGatewayObserver
from mcpvisor.daemon.gateway.principals import Admission, AutoAdmission, OpenAdmission
from mcpvisor.daemon.gateway.questions.completions import Completions
from mcpvisor.daemon.gateway.questions.handing_on import HandingOn
from mcpvisor.daemon.gateway.questions.in_rounds import Means
from mcpvisor.daemon.gateway.questions.keys import read_or_mint as read_keys
from mcpvisor.daemon.gateway.questions.parked import ParkedCalls
from mcpvisor.daemon.gateway.questions.passage import Passage
from mcpvisor.daemon.gateway.questions.sealing import Seals
from mcpvisor.daemon.gateway.questions.states import States
from mcpvisor.daemon.gateway.sessions import Sessions
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.daemon.gateway.streams import Streams
from mcpvisor.daemon.gateway.tokens import TOKEN_FILE, TOKEN_NAME, read_or_mint
from mcpvisor.daemon.gateway.updates import Updates
from mcpvisor.daemon.gateway.watching import Watching
from mcpvisor.daemon.questions.contract import QuestionDesk
from mcpvisor.daemon.questions.desk import Desk, DeskLimits
from mcpvisor.daemon.questions.pace import Pace
from mcpvisor.daemon.unix_socket import group_id
from mcpvisor.supervisor.error_groups import only_error
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree
from mcpvisor.supervisor.transports.hop import hop_mark


class Gateway:
    """One MCP endpoint in front of all servers; an async context manager that serves until it is left.

    It is entered and left in one task, of an asyncio loop. `token` is the bearer token where one is in force.
    Raises GatewayError on entry where an address cannot be bound or the token cannot be kept.
    """

    def __init__(
        self,
        doors: ServerDoors,
        settings: GatewaySettings,
        *,
        instance: str,
        health: Health,
        observer: GatewayObserver | None = None,
        keeper: SessionKeeper | None = None,
        applied: anyio.Event | None = None,
        desk: QuestionDesk | None = None,
        subtree: Subtree = NOT_TAKEN,
    ) -> None:
        """`desk` is where servers' questions pass; without one of its own the gateway asks clients alone.

        `subtree` is where the servers' processes are, who are refused on unix sockets.

        `keeper` is what sessions outlive the daemon in; `applied` is set once the servers are those of the configuration.

        Until then MCP requests wait: to a gateway without servers every name is unknown.
        """
        self._doors = doors
        self._settings = settings
        self._instance = instance
        self._subtree = subtree
        self._health = health
        self._observer = observer if observer is not None else NoGatewayObserver()
        self._keeper = keeper if keeper is not None else MemoryKeeper()
        self._applied = applied
        self._catalogs = Catalogs(doors)
        self._desk = desk if desk is not None else self._own_desk()
        self._completions = Completions()
        self._passage: Passage | None = None
        self._parked: ParkedCalls | None = None
        self._streams = Streams(settings.limits, self._observer)
        self._watching = Watching(doors, self._catalogs, settings.limits, self._observer)
        self._endpoints: dict[View, Endpoint] = {}
        self._listeners: list[Listener] = []
        self._sessions: Sessions | None = None
        self._stack = AsyncExitStack()
        self._cut = anyio.Event()
        self._in_flight: InFlight | None = None
        self.token: str | None = None

    @property
    def addresses(self) -> list[str]:
        """Where the gateway is reached, in the order of `listen`, with the ports that were taken."""
        return [listener.address for listener in self._listeners]

    @property
    def sessions(self) -> int:
        """How many sessions of the handshake era are open."""
        return len(self._sessions) if self._sessions is not None else 0

    @property
    def token_file(self) -> str | None:
        """Where the bearer token is, for those who may read it; None where none is in force."""
        return str(self._settings.state_dir / TOKEN_FILE) if self.token is not None else None

    def left_out(self, server: str) -> list[str]:
        """What of a server's offer is not shown on `/mcp`, and why; for `explain`."""
        self._catalogs.refresh()
        return [note for note in self._catalogs.current(None).left_out if note.startswith(f"{server}: ")]

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._serving())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        try:
            return await self._stack.__aexit__(kind, value, tb)
        except BaseExceptionGroup as group:
            if only_error(group) is not value:
                raise
            return None  # an error of the body leaves as it was, not in a group of one

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[None]:
        admission = self._admission()
        self._listeners = open_listeners(self._settings.listen)
        try:
            async with anyio.create_task_group() as tasks:
                limits = self._settings.limits
                self._sessions = sessions = Sessions(
                    tasks, limits, self._observer, self._doors.want_log_level, self._keeper, self._watching
                )
                tasks.start_soon(sessions.write_uses)
                sessions.on_ended = self._doors.session_ended
                self._parked = ParkedCalls(
                    tasks,
                    places=limits.parked_calls,
                    places_per_principal=limits.parked_calls_per_principal,
                    seconds=limits.parked_seconds,
                )
                self._passage = self._questions(self._parked)
                notices = Notices(self._doors.bus, self._catalogs, self._streams, sessions, self._completions)
                tasks.start_soon(notices.run, self._server_removed)
                tasks.start_soon(Updates(self._doors, self._catalogs, self._watching).run)
                web = WebServer(self._app(admission, sessions), limits, self._refused)
                async with anyio.create_task_group() as serving:
                    serving.start_soon(web.run_on, self._listeners)
                    try:
                        yield
                    finally:
                        with anyio.CancelScope(shield=True):
                            await self.drain()
                        web.end(0.0)
                tasks.cancel_scope.cancel()
        finally:
            for listener in self._listeners:
                listener.close()

    def _admission(self) -> Admission:
        if self._settings.auth == "open":
            return OpenAdmission()
        self.token = read_or_mint(self._settings.state_dir)
        tokens = {TOKEN_NAME: self.token}
        return AutoAdmission(tokens=tokens, instance=self._instance, group=group_id(), subtree=self._subtree)

    def _own_desk(self) -> QuestionDesk:
        """One that knows clients alone."""
        return Desk(DeskLimits(), tell=self._doors.tell, handler_for=lambda _: None, allowed=self._allowed)

    def _allowed(self, server: str) -> tuple[str, ...]:
        try:
            return self._doors.connection(server).spec.allow
        except UnknownServer:  # it has left while it asked
            return ()

    def _questions(self, parked: ParkedCalls) -> Passage:
        """How servers' questions reach clients."""
        states = States(Seals(read_keys(self._settings.state_dir)), self._settings.limits.state_seconds)
        pace = Pace()
        handing = HandingOn(self._doors.tell, pace)
        means = Means(desk=self._desk, states=states, parked=parked, handing=handing, pace=pace)
        return Passage(means, self._completions)

    def _app(self, admission: Admission, sessions: Sessions) -> Guard:
        app = GatewayApp(self._endpoint, sessions, self._health, self._until_applied)
        self._in_flight = InFlight(LoopCheck(app, hop_mark(self._instance)))
        return Guard(
            self._in_flight,
            admission=admission,
            hosts=frozenset(self._settings.hosts),
            origins=frozenset(self._settings.origins),
            limits=self._settings.limits,
            refused=self._refused,
        )

    async def _until_applied(self) -> None:
        """Return once the servers are known; what they are then known to offer is no news to anybody."""
        if self._applied is not None:
            await self._applied.wait()
        if self._applied is not None:  # else another request, which waited as well, was first
            self._applied = None
            self._catalogs.settle()

    def _endpoint(self, view: View) -> Endpoint | None:
        """The endpoint of a view, made when it is first asked for; None where no server has that name."""
        assert self._passage is not None  # requests are served after it is made
        endpoint = self._endpoints.get(view)
        if endpoint is None and (view is None or view in self._doors.names()):
            endpoint = self._endpoints[view] = Endpoint(
                view,
                version=version("mcpvisor"),
                doors=self._doors,
                catalogs=self._catalogs,
                passage=self._passage,
                observer=self._observer,
                first_list_wait=self._settings.first_list_wait,
                watching=self._watching,
                streams=self._streams,
            )
        return endpoint

    async def _server_removed(self, server: str) -> None:
        """Close the endpoint of a server that is gone; one of that name that came back meanwhile keeps it.

        Where the daemon stops, all servers go and no session is over for that.
        """
        assert self._sessions is not None  # notices run inside the task group of the sessions
        assert self._in_flight is not None
        if server in self._doors.names() or self._in_flight.is_draining:
            return
        self._sessions.forget_view(server)
        self._completions.forget(server)
        if self._endpoints.pop(server, None) is None:
            return
        self._streams.end(server)
        for session in self._sessions.on(server):
            await self._sessions.end(session)
        self._catalogs.drop(server)

    async def drain(self) -> None:
        """Take no more MCP requests, and return once those in flight are answered or their time is over.

        Their time is the largest `drain` of the servers; `cut` ends it. Probes are answered all the while. Idempotent.
        """
        sessions, in_flight = self._sessions, self._in_flight
        if sessions is None or in_flight is None or in_flight.is_draining:
            return
        in_flight.is_draining = True
        if self._parked is not None:
            self._parked.close()  # nobody can come back for them
        await self._end_streams(sessions)
        with anyio.move_on_after(self._grace()):
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(self._until_cut, waiting.cancel_scope)
                await in_flight.answered()
                waiting.cancel_scope.cancel()
        for session in sessions.all():
            await sessions.end(session)
        with anyio.move_on_after(CUT_SECONDS):
            await in_flight.answered()

    def cut(self) -> None:
        """While the gateway drains: give requests in flight no more time."""
        self._cut.set()

    async def _until_cut(self, scope: anyio.CancelScope) -> None:
        await self._cut.wait()
        scope.cancel()

    def _grace(self) -> float:
        limit = self._settings.limits.grace_seconds
        if limit is not None:
            return limit
        return max((self._doors.connection(name).spec.drain for name in self._doors.names()), default=0.0)

    async def _end_streams(self, sessions: Sessions) -> None:
        """End what would stay open for ever, so that only requests in flight are waited for."""
        self._streams.end_all()
        for session in sessions.all():
            await session.transport.pushing.end()

    def _refused(self, reason: str) -> None:
        self._observer.refused("client", reason)

"""Owns the puppet supervisor: the surface that the gateway sees, with servers that answer as a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.keeper import SessionKeeper
from mcpvisor.daemon.gateway.settings import GatewayLimits, GatewaySettings
from mcpvisor.daemon.questions.contract import QuestionDesk
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.events import CatalogChanged, CatalogKind, ServerAdded, ServerEvent, ServerNotified, ServerRemoved
from mcpvisor.supervisor.offer import NOTHING, Offer
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import QuestionSink
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.subscriptions.telling import SubscriptionTeller
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions

JsonObject = dict[str, Any]
INSTANCE = "puppet-instance"


@dataclass
class Call:
    """One request as it came to the door."""

    method: str
    params: JsonObject | None
    principal: Principal
    on_progress: Callable[[JsonObject], None] | None
    on_log: Callable[[JsonObject], None] | None
    client_capabilities: JsonObject | None
    log_level: str | None
    on_question: QuestionSink | None
    on_pause: Callable[[], None] | None = None


Answer = Callable[[Call], Awaitable[JsonObject]]


class PuppetConnection:
    """A door whose answers are scripted; every request is kept in `calls`."""

    def __init__(self, name: str, offer: Offer = NOTHING, *, era: str = "legacy", is_tried: bool = True) -> None:
        self.name = name
        self.spec = ServerSpec(name=name, target=StdioLaunch(command="true"))
        self.offer = offer
        self.stale = False
        self.era: str | None = era
        self.first_try = anyio.Event()
        if is_tried:
            self.first_try.set()
        self.calls: list[Call] = []
        self.other_roots: list[Principal] = []
        self.called = anyio.Event()
        self.cancelled = anyio.Event()
        self.answer: Answer = self._echo
        self._subscriptions: Subscriptions | None = None

    def subscriptions(self, bus: EventBus) -> Subscriptions:
        """The real table of what is watched; nobody serves it until a test attaches to it."""
        if self._subscriptions is None:
            self._subscriptions = Subscriptions(SubscriptionTeller(self.name, bus.emit, str, lambda: 1))
        return self._subscriptions

    async def _echo(self, call: Call) -> JsonObject:
        return {"content": [{"type": "text", "text": f"{self.name}:{(call.params or {}).get('name')}"}]}

    async def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        principal: Principal,
        deadline: float | None = None,
        on_progress: Callable[[JsonObject], None] | None = None,
        on_log: Callable[[JsonObject], None] | None = None,
        client_capabilities: JsonObject | None = None,
        log_level: str | None = None,
        on_question: QuestionSink | None = None,
        on_pause: Callable[[], None] | None = None,
    ) -> JsonObject:
        call = Call(method, params, principal, on_progress, on_log, client_capabilities, log_level, on_question, on_pause)
        self.calls.append(call)
        self.called.set()
        try:
            return await self.answer(call)
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise

    async def roots_changed(self, *, principal: Principal) -> None:
        self.other_roots.append(principal)


class PuppetSupervisor:
    """Servers that exist because a test says so."""

    def __init__(self, *connections: PuppetConnection) -> None:
        self.bus = EventBus()
        self.wanted_levels: list[str | None] = []
        self.ended: list[Principal] = []
        self._connections = {connection.name: connection for connection in connections}

    def names(self) -> list[str]:
        return sorted(self._connections)

    def connection(self, name: str) -> PuppetConnection:
        try:
            return self._connections[name]
        except KeyError:
            raise UnknownServer(name) from None

    def subscriptions(self, name: str) -> Subscriptions:
        return self.connection(name).subscriptions(self.bus)

    async def agree(self, name: str, *refused: str) -> None:
        """Serve the subscriptions of a server, until cancelled: all of them at once, but for those that it refuses."""
        table = self.subscriptions(name)
        attachment = table.attach()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(table.pass_on)
            try:
                while True:
                    stirred = table.stirred
                    for uri in attachment.wanted():
                        if uri in refused:
                            attachment.failed(uri, "it is refused", None)
                        else:
                            attachment.active(uri)
                    await stirred.wait()
            finally:
                table.detach("there is no session now")

    def watched(self, name: str) -> dict[str, int]:
        """What is watched of a server, and how many hold each."""
        return {one.uri: len(one.holders) for one in self.subscriptions(name).statuses()}

    def tell(self, event: ServerEvent) -> None:
        self.bus.emit(event)

    def want_log_level(self, level: str | None) -> None:
        self.wanted_levels.append(level)

    def add(self, connection: PuppetConnection) -> None:
        self._connections[connection.name] = connection
        self.bus.emit(ServerAdded(at=0.0, server=connection.name, transport="stdio", required=False))

    def remove(self, name: str) -> None:
        del self._connections[name]
        self.bus.emit(ServerRemoved(at=0.0, server=name))

    def change(self, name: str, kind: CatalogKind, *entries: JsonObject) -> None:
        connection = self._connections[name]
        connection.offer = replace(connection.offer, **{kind: entries})
        self.bus.emit(CatalogChanged(at=0.0, server=name, kind=kind, count=len(entries)))

    def session_ended(self, client: Principal) -> None:
        self.ended.append(client)

    def notify(self, name: str, method: str, params: JsonObject, **whose: Any) -> None:
        self.bus.emit(ServerNotified(at=0.0, server=name, method=method, params=params, **whose))


@dataclass
class Counted:
    """An observer that keeps what it was told."""

    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def session_opened(self, era: str) -> None:
        self.opened.append(era)

    def session_closed(self, era: str) -> None:
        self.closed.append(era)

    def request_ended(self, method: str, outcome: str, seconds: float) -> None:
        self.ended.append((method, outcome))

    def refused(self, side: str, reason: str) -> None:
        self.refusals.append((side, reason))


def tool(name: str, **more: Any) -> JsonObject:
    """A tool as servers list it."""
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def gateway(
    supervisor: PuppetSupervisor,
    state_dir: Path,
    *,
    observer: Counted | None = None,
    limits: GatewayLimits | None = None,
    keeper: SessionKeeper | None = None,
    applied: anyio.Event | None = None,
    desk: QuestionDesk | None = None,
    **settings: Any,
) -> Gateway:
    """A gateway on a free port, open unless the test says otherwise."""
    return Gateway(
        supervisor,
        GatewaySettings(
            **{"listen": ("127.0.0.1:0",), "auth": "open", "state_dir": state_dir, "first_list_wait": 0.2, **settings},
            limits=limits or GatewayLimits(grace_seconds=1),
        ),
        instance=INSTANCE,
        health=lambda path, verbose: (200, f"{path} verbose" if verbose else path),
        observer=observer,
        keeper=keeper,
        applied=applied,
        desk=desk,
    )

"""What the gateway needs of the supervisor, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import anyio

from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import ServerEvent
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import QuestionSink
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.subscriptions.standing import SubscriptionState, SubscriptionStatus

JsonObject = dict[str, Any]


class ServerDoor(Protocol):
    """The one door to one server; `mcpvisor.supervisor.connection.Connection` is it."""

    @property
    def spec(self) -> ServerSpec: ...

    @property
    def offer(self) -> Offer: ...

    @property
    def stale(self) -> bool: ...

    @property
    def era(self) -> str | None: ...

    @property
    def first_try(self) -> anyio.Event: ...

    async def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        principal: Principal,
        on_progress: Callable[[JsonObject], None] | None = None,
        on_log: Callable[[JsonObject], None] | None = None,
        client_capabilities: JsonObject | None = None,
        log_level: str | None = None,
        on_question: QuestionSink | None = None,
        on_pause: Callable[[], None] | None = None,
    ) -> JsonObject: ...

    async def roots_changed(self, *, principal: Principal) -> None: ...


class WantedResources(Protocol):
    """Which resources of one server are watched; `mcpvisor.supervisor.subscriptions.wanted.Subscriptions` is it."""

    def want(self, uri: str, holder: str) -> None: ...

    def drop(self, uri: str, holder: str) -> None: ...

    def state(self, uri: str) -> SubscriptionState | None: ...

    async def outcome(self, uri: str, seconds: float) -> SubscriptionStatus | None: ...


class ServerDoors(Protocol):
    """All servers there are; `mcpvisor.supervisor.supervisor.Supervisor` is it."""

    @property
    def bus(self) -> EventBus: ...

    def names(self) -> list[str]: ...

    def connection(self, name: str) -> ServerDoor: ...

    def subscriptions(self, name: str) -> WantedResources: ...

    def tell(self, event: ServerEvent) -> None: ...

    def want_log_level(self, level: str | None) -> None: ...

    def session_ended(self, client: Principal) -> None: ...

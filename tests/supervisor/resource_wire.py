"""A server with resources in memory: it keeps what it was asked for, and pushes when a test says so, in either era."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.transports.exchange import SUBSCRIPTION_ID, Pending
from mcpvisor.supervisor.transports.push import PushState
from mcpvisor.supervisor.transports.wire import Wire
from tests.supervisor.memory_wire import MemoryServer, MemoryWire

UPDATED = "notifications/resources/updated"


def refusal(code: int = -32603, message: str = "not today") -> RequestFailed:
    return RequestFailed(Outcome.PEER_ERROR, "error_answer", message, code=code)


class ResourceServer(MemoryServer):
    """`refusals` are what it answers to a subscription, by URI; `unknown` are URIs that a stream leaves out.

    With `ends_streams` it ends each stream in good order as soon as it has acknowledged it.
    """

    def __init__(self, *, kind: str = "stdio", subscribe: bool = True) -> None:
        super().__init__(kind=kind)
        self.capabilities: dict[str, Any] = {"tools": {}, "resources": {"subscribe": subscribe, "listChanged": True}}
        self.refusals: dict[str, RequestFailed] = {}
        self.unknown: set[str] = set()
        self.texts: dict[str, str] = {}
        self.asked: list[tuple[str, str, float]] = []
        self.most_at_one_time = 0
        self.answer_after = 0.0
        self.streams: dict[int, Pending] = {}
        self.filters: list[list[str]] = []
        self.stream_refusal: RequestFailed | None = None
        self.acknowledges = True
        self.ack_after = 0.0
        self.ends_streams = False
        self.push: PushState = "open"
        self.push_changed = anyio.Event()
        self._running = 0
        self.handlers |= {
            "initialize": self.initialize,
            "server/discover": self.discover,
            "resources/list": self.list_resources,
            "resources/templates/list": self.list_templates,
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "resources/read": self.read,
        }

    @property
    def subscribed(self) -> list[str]:
        """The URIs of all requests to subscribe, oldest first."""
        return [uri for method, uri, _ in self.asked if method == "resources/subscribe"]

    async def initialize(self, params: dict[str, Any]) -> Any:
        info = {"name": "memory", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "serverInfo": info}

    async def discover(self, params: dict[str, Any]) -> Any:
        cache = {"ttlMs": 0, "cacheScope": "private"}
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": self.capabilities, **cache}

    async def list_resources(self, params: dict[str, Any]) -> Any:
        return {"resources": []}

    async def list_templates(self, params: dict[str, Any]) -> Any:
        return {"resourceTemplates": []}

    async def subscribe(self, params: dict[str, Any]) -> Any:
        return await self._take("resources/subscribe", params["uri"])

    async def unsubscribe(self, params: dict[str, Any]) -> Any:
        return await self._take("resources/unsubscribe", params["uri"])

    async def _take(self, method: str, uri: str) -> Any:
        self.asked.append((method, uri, anyio.current_time()))
        self._running += 1
        self.most_at_one_time = max(self.most_at_one_time, self._running)
        try:
            await anyio.sleep(self.answer_after)
        finally:
            self._running -= 1
        if uri in self.refusals:
            raise self.refusals[uri]
        return {}

    async def read(self, params: dict[str, Any]) -> Any:
        uri = params["uri"]
        self.asked.append(("resources/read", uri, anyio.current_time()))
        if uri in self.refusals:
            raise self.refusals[uri]
        return {"contents": [{"uri": uri, "text": self.texts.get(uri, "")}]}

    # What it pushes

    def notify(self, method: str, **params: Any) -> None:
        assert self.wire is not None
        self.wire._received(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def update(self, uri: str) -> None:
        self.notify(UPDATED, uri=uri)

    def set_push(self, push: PushState) -> None:
        """The push channel stands otherwise."""
        self.push = push
        changed, self.push_changed = self.push_changed, anyio.Event()
        changed.set()

    async def hold_stream(self, pending: Pending, params: dict[str, Any]) -> None:
        """A `subscriptions/listen`: acknowledged, then open until somebody settles it."""
        asked = params["notifications"].get("resourceSubscriptions", [])
        self.filters.append(asked)
        if self.stream_refusal is not None:
            pending.fail(self.stream_refusal)
            return
        if refused := [self.refusals[uri] for uri in asked if uri in self.refusals]:
            pending.fail(refused[0])
            return
        self.streams[pending.id] = pending
        try:
            await anyio.sleep(self.ack_after)
            if self.acknowledges:
                self.acknowledge(pending, [uri for uri in asked if uri not in self.unknown])
            if self.ends_streams:
                await anyio.sleep(0.01)
                pending.settle({"resultType": "complete"})
            await pending.done.wait()
        finally:
            self.streams.pop(pending.id, None)

    def acknowledge(self, pending: Pending, uris: list[str]) -> None:
        granted = {"notifications": {"resourceSubscriptions": uris}, "_meta": {SUBSCRIPTION_ID: pending.id}}
        self.notify("notifications/subscriptions/acknowledged", **granted)

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Wire]:
        self.opened += 1
        self.wire = ResourceWire(opening.hooks, self)
        try:
            yield self.wire
        finally:
            self.closed += 1


class ResourceWire(MemoryWire):
    def __init__(self, hooks: Any, server: ResourceServer) -> None:
        super().__init__(hooks, server)
        self._resources = server

    @property
    def push(self) -> PushState:
        return self._resources.push

    @property
    def push_reason(self) -> str:
        return "" if self.push == "open" else "GET was answered 405"

    async def push_changed(self) -> None:
        await self._resources.push_changed.wait()

    async def _carry(self, pending: Pending, message: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        if message["method"] != "subscriptions/listen":
            return await super()._carry(pending, message, headers)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._resources.hold_stream, pending, message["params"])
            try:
                await pending.done.wait()
            finally:
                tasks.cancel_scope.cancel()
        return await pending.outcome()

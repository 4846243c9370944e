"""A server in memory: a wire without bytes, scripted by a test, for the logic of the supervisor under virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.transports.exchange import Pending, WireHooks, peer_error
from mcpvisor.supervisor.transports.wire import OpenFailed, Wire, WireEnd

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
REQUEST: ContextVar[Pending | None] = ContextVar("request", default=None)
"""The request that is being answered."""


class MemoryServer:
    """What the puppet does; shared by all its generations."""

    def __init__(self, *, tools: tuple[str, ...] = ("echo",), kind: str = "stdio") -> None:
        self.kind = kind
        self.tools = list(tools)
        self.hints: dict[str, Any] = {}
        """The annotations of each of its tools."""
        self.handlers: dict[str, Handler] = {"tools/call": self.echo}
        self.open_failure: WireEnd | None = None
        self.silent: set[str] = set()
        self.log: list[str] = []
        self.opened = 0
        self.closed = 0
        self.wire: MemoryWire | None = None
        self.end_after_initialize: WireEnd | None = None
        self.initialized_with: dict[str, Any] = {}
        self.heard: list[dict[str, Any]] = []
        """The answers that came to its own requests."""
        self._heard = anyio.Event()
        self._asked = 0

    def say(self, message: dict[str, Any], *, within: Pending | None = None) -> None:
        """Send a message to the client; `within` is the request in whose answer it goes, on a wire that has such a thing."""
        assert self.wire is not None
        self.wire.say(json.dumps({"jsonrpc": "2.0", **message}).encode(), within)

    async def ask(self, method: str, params: dict[str, Any] | None = None, *, within: bool = False) -> dict[str, Any]:
        """Make a request of the client, and return the answer; `within` the answer to the request that is being handled."""
        self._asked += 1
        mine = f"q{self._asked}"
        self.say({"id": mine, "method": method, "params": params or {}}, within=REQUEST.get() if within else None)
        while True:
            found = [message for message in self.heard if message["id"] == mine]
            if found:
                return found[0]
            await self._heard.wait()

    def hear(self, message: dict[str, Any]) -> None:
        self.heard.append(message)
        heard, self._heard = self._heard, anyio.Event()
        heard.set()

    async def echo(self, params: dict[str, Any]) -> Any:
        return {"content": [{"type": "text", "text": params.get("arguments", {}).get("text", "")}]}

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        self.log.append(method)
        if method in self.silent:
            await anyio.sleep_forever()
        if method in self.handlers:
            return await self.handlers[method](params)
        match method:
            case "initialize":
                self.initialized_with = params
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "memory", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object"}
                return {"tools": [{"name": name, "inputSchema": schema, "annotations": self.hints} for name in self.tools]}
            case "ping":
                return {}
            case _:
                raise peer_error({"code": -32601, "message": f"Method not found: {method}"})

    def end(self, cause: str = "process_exited", detail: str = "exited with code 1", **more: Any) -> None:
        assert self.wire is not None
        self.wire.finish(WireEnd(cause=cause, detail=detail, **more))

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Wire]:
        self.opened += 1
        if self.open_failure is not None:
            self.closed += 1
            raise OpenFailed(self.open_failure)
        self.wire = MemoryWire(opening.hooks, self)
        try:
            yield self.wire
        finally:
            self.closed += 1


class MemoryWire(Wire):
    def __init__(self, hooks: WireHooks, server: MemoryServer) -> None:
        super().__init__(hooks, max_message=1 << 20)
        self.kind = server.kind
        self._server = server
        self.cancelled: list[str] = []

    async def _carry(self, pending: Pending, message: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, pending, message)
            try:
                await pending.done.wait()
            finally:
                tasks.cancel_scope.cancel()
        return await pending.outcome()

    def say(self, data: bytes, within: Pending | None) -> None:
        self._received(data, within)

    async def _run(self, pending: Pending, message: dict[str, Any]) -> None:
        REQUEST.set(pending)
        try:
            result = await self._server.answer(message["method"], message.get("params") or {})
        except RequestFailed as failure:
            pending.fail(failure)
            return
        pending.settle(result)
        if message["method"] == "initialize" and self._server.end_after_initialize is not None:
            self.finish(self._server.end_after_initialize)

    async def _cancel(self, pending: Pending) -> None:
        self.cancelled.append(pending.method)

    async def _send(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self._server.log.append(message["method"])
        else:
            self._server.hear(message)

    async def _pump(self) -> None:
        await self.ended.wait()


def not_sent(cause: str = "connect_failed") -> RequestFailed:
    return RequestFailed(Outcome.NOT_SENT, cause, "not sent")

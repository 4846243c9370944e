"""A server in memory: a wire without bytes, scripted by a test, for the logic of the supervisor under virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.transports.exchange import Pending, WireHooks, peer_error
from mcpvisor.supervisor.transports.wire import OpenFailed, Wire, WireEnd

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class MemoryServer:
    """What the puppet does; shared by all its generations."""

    def __init__(self, *, tools: tuple[str, ...] = ("echo",), kind: str = "stdio") -> None:
        self.kind = kind
        self.tools = list(tools)
        self.handlers: dict[str, Handler] = {"tools/call": self.echo}
        self.open_failure: WireEnd | None = None
        self.silent: set[str] = set()
        self.log: list[str] = []
        self.opened = 0
        self.closed = 0
        self.wire: MemoryWire | None = None
        self.end_after_initialize: WireEnd | None = None

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
                return {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "memory", "version": "1"},
                }
            case "tools/list":
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}
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

    async def _run(self, pending: Pending, message: dict[str, Any]) -> None:
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

    async def _pump(self) -> None:
        await self.ended.wait()


def not_sent(cause: str = "connect_failed") -> RequestFailed:
    return RequestFailed(Outcome.NOT_SENT, cause, "not sent")

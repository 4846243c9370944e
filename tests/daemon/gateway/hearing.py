"""Owns the streams of clients that watch resources, in both eras: what was asked for, and all that came."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import anyio.abc
import httpx2
from tests.daemon.gateway.wire import Wire, events
from tests.waiting import until

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Hearing:
    """What one stream of a client brings."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.scope = anyio.CancelScope()
        self.has_ended = False

    @property
    def updated(self) -> list[str]:
        """The URIs of its updates."""
        return [one["params"]["uri"] for one in self.messages if one.get("method") == UPDATED]

    async def hear(self, stream: Any) -> None:
        async with stream as response:
            text = ""
            async for chunk in response.aiter_text():
                text += chunk
                self.messages = events(text)
        self.has_ended = True

    async def run(self, stream: Any) -> None:
        with self.scope, suppress(httpx2.TransportError):  # the test has closed the client
            await self.hear(stream)


def opened(client: Wire, tasks: anyio.abc.TaskGroup, path: str = "/mcp") -> Hearing:
    """The stream of a session's notifications."""
    hearing = Hearing()
    tasks.start_soon(hearing.run, client.http.stream("GET", path, headers={"mcp-session-id": client.session or ""}))
    return hearing


async def listening(
    client: Wire, tasks: anyio.abc.TaskGroup, *uris: str, path: str = "/mcp", request: Any = "s1", **lists: bool
) -> Hearing:
    """A `subscriptions/listen` stream of 2026-07-28, once it is acknowledged."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    wish = {**lists, **({"resourceSubscriptions": list(uris)} if uris else {})}
    message = {
        "jsonrpc": "2.0",
        "id": request,
        "method": "subscriptions/listen",
        "params": {"notifications": wish, "_meta": meta},
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    hearing = Hearing()
    tasks.start_soon(hearing.run, client.http.stream("POST", path, json=message, headers=headers))
    await until(lambda: bool(hearing.messages) or hearing.has_ended)
    return hearing


async def subscribe(client: Wire, uri: str, *, path: str = "/mcp", way: str = "subscribe") -> dict[str, Any]:
    """The answer to `resources/subscribe`, or to its end."""
    answer = await client.post({"jsonrpc": "2.0", "id": 7, "method": f"resources/{way}", "params": {"uri": uri}}, path=path)
    body: dict[str, Any] = answer.json()
    return body

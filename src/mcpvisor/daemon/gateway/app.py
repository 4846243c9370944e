"""Owns the paths of the gateway: which endpoint or probe a request is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.gateway.endpoint import Endpoint
from mcpvisor.daemon.gateway.replies import reply
from mcpvisor.daemon.gateway.sdk_server import is_modern_request
from mcpvisor.daemon.gateway.sessions import Sessions

Health = Callable[[str, bool], tuple[int, str | dict[str, Any]]]
"""The answer to a probe: `(path, verbose) -> (HTTP status, text or JSON)`; must be quick."""

MCP_PATH: Final = "/mcp"
PROBES: Final = frozenset({"/livez", "/readyz", "/healthz"})


class GatewayApp:
    """The ASGI app behind the guard."""

    def __init__(
        self,
        endpoint_of: Callable[[str | None], Endpoint | None],
        sessions: Sessions,
        health: Health,
        until_applied: Callable[[], Awaitable[None]],
    ) -> None:
        """`until_applied` returns once it is known which servers there are; probes do not wait for it."""
        self._endpoint_of = endpoint_of
        self._sessions = sessions
        self._health = health
        self._until_applied = until_applied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path in PROBES:
            await self._probe(path, scope, receive, send)
            return
        await self._until_applied()
        endpoint = None
        if path == MCP_PATH:
            endpoint = self._endpoint_of(None)
        elif path.startswith(f"{MCP_PATH}/"):
            endpoint = self._endpoint_of(path.removeprefix(f"{MCP_PATH}/"))
        if endpoint is None:
            await reply(send, 404, {"error": "nothing is served at this path; see /mcp and /mcp/NAME of a server"})
        elif is_modern_request(scope):
            await endpoint.serve_modern(scope, receive, send)
        else:
            await self._sessions.handle(endpoint, scope, receive, send)

    async def _probe(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            await reply(send, 405, {"error": "a probe is read with GET"}, {"allow": "GET, HEAD"})
            return
        verbose = b"verbose" in scope["query_string"].split(b"&")
        status, body = self._health(path, verbose)
        response = PlainTextResponse(body, status) if isinstance(body, str) else JSONResponse(body, status)
        await response(scope, receive, send)

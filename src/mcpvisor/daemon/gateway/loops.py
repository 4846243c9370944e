"""Owns the check that this gateway is not a server of itself: it would offer its own offer again, and grow without end."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from mcpvisor.daemon.gateway.replies import refuse
from mcpvisor.supervisor.transports.hop import HOP_HEADER

_HEADER = HOP_HEADER.encode()


class LoopCheck:
    """ASGI middleware that refuses requests which this daemon has sent itself; `mark` is how it marks them."""

    def __init__(self, app: ASGIApp, mark: str) -> None:
        self._app = app
        self._mark = mark.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if any(name == _HEADER and value == self._mark for name, value in scope["headers"]):
            await refuse(send, 508, "this is the gateway of the very daemon that asks: a server's url must not lead back to it")
        else:
            await self._app(scope, receive, send)

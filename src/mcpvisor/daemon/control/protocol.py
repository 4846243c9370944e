"""Owns one connection to the control socket: who it is, whether it has a place, and how long a request may take to come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcpvisor.daemon.control.answers import ApiError, error_response
from mcpvisor.daemon.peers import Peer, peer_of

_log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 256
"""Connections of those who may give orders."""

MAX_REFUSED: Final = 32
"""Connections that are waiting for their refusal; more are closed without one."""

REQUEST_SECONDS: Final = 10.0
"""From a connection, or the first byte of a request, to the request's last byte."""

REFUSED_SECONDS: Final = 2.0
"""The same for a peer that is refused whatever it asks."""

_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"

WhyRefused = Callable[[Peer], str | None]


class ControlProtocol(HttpToolsProtocol):
    """Asks the kernel who connected; whoever may not is answered with a refusal, and takes nobody's place."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        why_refused: WhyRefused,
        admitted: set[asyncio.Protocol],
        refused: set[asyncio.Protocol],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._why_refused = why_refused
        self._admitted = admitted
        self._refused = refused
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn's own
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket"))
        if peer is None:
            raise TypeError("the control socket is a unix socket")
        self.client = (f"uid:{peer.uid}", peer.pid)
        refusal = self._why_refused(peer)
        if refusal is not None:
            self._refuse(refusal)
        elif len(self._admitted) >= MAX_CONNECTIONS:
            transport.write(_FULL)
            transport.close()
        else:
            self._admitted.add(self)
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._admitted.discard(self)
        self._refused.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._arm()
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arm()

    def on_message_complete(self) -> None:
        self._disarm()
        super().on_message_complete()

    def _refuse(self, why: str) -> None:
        if len(self._refused) >= MAX_REFUSED:
            self.transport.abort()
            return
        _log.warning("control refused: %s", why, extra={"audit": True, "peer": self.client})
        self._refused.add(self)
        self.app = _refusing(why)
        self._arm()

    def _arm(self) -> None:
        self._disarm()
        seconds = REFUSED_SECONDS if self in self._refused else REQUEST_SECONDS
        self._deadline = self.loop.call_later(seconds, self.transport.close)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _refusing(why: str) -> ASGIApp:
    refusal = error_response(ApiError("PERMISSION_DENIED", "PEER_REFUSED", f"this peer may not control the daemon: {why}"))
    refusal.headers["connection"] = "close"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refusal(scope, receive, send)

    return app

"""Owns one client connection before there is a request: deadlines, the size of the head, and how its length is told.

uvicorn leaves all three to a proxy in front, which a gateway on a workstation does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.peers import Peer, peer_of

PEER_STATE: Final = "mcpvisor.peer"
"""Where a request's `scope["state"]` holds the `Peer` of a unix socket, or None."""

_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"

GIVEN_UP_SECONDS: Final = 1.0
"""How long a connection that floods is left alone before it ends."""

Refused = Callable[[str], None]
"""Takes the reason of a refusal."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, with a deadline for each head and body and a limit for heads and connections."""

    def __init__(  # the first four arguments are uvicorn's call, the others are bound by the listener
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: GatewayLimits,
        refused: Refused,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._refused = refused
        self._head_bytes = 0
        self._unparsed = 0
        self._in_head = False
        self._ended_here = False
        self._given_up = False
        self._is_refused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._peer: Peer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._refuse("rate")
            transport.write(_FULL)
            transport.close()
            return
        self._peer = peer_of(transport.get_extra_info("socket"))
        self._arm(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._given_up:
            self.transport.pause_reading()  # what was answered meanwhile has resumed it
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._arm(self._limits.head_seconds)  # bytes that begin no request must not hold a connection either
        self._ended_here = False
        super().data_received(data)
        # Where another request ended in this data, only some of it is of the head that is open: what comes next counts.
        if self._in_head and not self._ended_here and not self.transport.is_closing():
            # The parser keeps a header to itself until it is whole, so what it holds is counted here.
            self._unparsed += len(data)
            if self._unparsed > self._limits.head_bytes:
                self._refuse("size")
                self.send_400_response("The head of the request is over the limit.")

    def timeout_keep_alive_handler(self) -> None:
        """An answer that was not read until now would be kept for ever by an orderly close."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined:
            self._give_up()
            raise ValueError("too many requests before the answer to the first")
        super().on_message_begin()
        self._head_bytes = 0
        self._unparsed = 0
        self._in_head = True
        self._arm(self._limits.head_seconds)
        cast("dict[str, Any]", self.scope)["state"][PEER_STATE] = self._peer

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if not self._in_head:
            return  # a trailer: it must not become a header of the request
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        names = [name for name, _ in self.headers]
        # RFC 9112, 6.3: two lengths in one message are how requests are smuggled past a proxy.
        if (b"transfer-encoding" in names and b"content-length" in names) or names.count(b"content-length") > 1:
            self._refuse("syntax")
            raise ValueError("the length of the body is told twice")
        self._arm(self._limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._ended_here = True
        self._disarm()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """See uvicorn; what its parser refuses is counted here, and a connection that is given up has its end before it."""
        if self._given_up:
            return
        if not self._is_refused:
            self._refuse("syntax")
        super().send_400_response(msg)

    def _refuse(self, reason: str) -> None:
        self._is_refused = True
        self._refused(reason)

    def _give_up(self) -> None:
        """Read no more, and end the connection in a while: at once it would only be opened again, and that costs us more."""
        self._refuse("rate")
        self._given_up = True
        self.transport.pause_reading()
        self.loop.call_later(GIVEN_UP_SECONDS, self.transport.abort)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            self._refuse("size")
            raise ValueError("the head of the request is over the limit")

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        """The head or the body did not come in time. A request that is not answered yet is told so; then it ends."""
        if self.transport.is_closing():
            return
        self._refuse("slow")
        answered = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not answered and not self.pipeline:
            self.transport.write(_TOO_SLOW)
        self.transport.close()

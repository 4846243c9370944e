"""Owns one client connection before there is a request: deadlines, the size of the head, and how its length is told.

uvicorn leaves all three to a proxy in front, which a gateway on a workstation does not have.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable
from typing import Any, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcpvisor.daemon.gateway.places import STANDING_STATE, Places, Standing
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.peers import Peer, peer_of

PEER_STATE: Final = "mcpvisor.peer"
"""Where a request's `scope["state"]` holds the `Peer` of a unix socket, or None."""

_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"

STRANGER_SECONDS: Final = 5.0
"""How long a connection may be idle on which no request was admitted yet."""

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
        places: Places,
        refused: Refused,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._places = places
        self._standing = Standing()
        self._refused = refused
        self._head_bytes = 0
        self._unparsed = 0
        self._in_head = False
        self._ended_here = False
        self._given_up = False
        self._is_refused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._peer: Peer | None = None
        self._data = b""
        self._upgrading = False
        self.timeout_keep_alive = cast("int", min(STRANGER_SECONDS, limits.keep_alive_seconds))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        super().connection_made(transport)
        if not self._places.take(self._listener(), self._standing, self._leave):
            self._refuse("rate")
            transport.write(_FULL)
            transport.close()
            return
        self._peer = peer_of(transport.get_extra_info("socket"))
        self._arm(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._places.give_back(self._listener(), self._standing)
        self._standing.lose()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # What a request held must not wait for the garbage collector with the connection, which is in a cycle with it.
        for cycle in (self.cycle, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                cycle.body.clear()
        self.pipeline.clear()
        self.cycle = self.scope = self.headers = cast("Any", None)
        self._data = b""

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._given_up:
            self.transport.pause_reading()  # what was answered meanwhile has resumed it
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._arm(self._limits.head_seconds)  # bytes that begin no request must not hold a connection either
        self._ended_here = False
        self._data = data
        super().data_received(data)
        self._data = b""
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
        self._upgrading = False
        self._head_bytes = 0
        self._unparsed = 0
        self._in_head = True
        self._arm(self._limits.head_seconds)
        cast("dict[str, Any]", self.scope)["state"].update({PEER_STATE: self._peer, STANDING_STATE: self._standing})

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if not self._in_head:
            return  # a trailer: it must not become a header of the request
        super().on_header(name, value.strip(b" \t"))  # RFC 9110, 5.5: space around a value is none of it

    def on_headers_complete(self) -> None:
        self._in_head = False
        names = [name for name, _ in self.headers]
        # RFC 9112, 6.3: two lengths in one message are how requests are smuggled past a proxy.
        if (b"transfer-encoding" in names and b"content-length" in names) or names.count(b"content-length") > 1:
            self._refuse("syntax")
            raise ValueError("the length of the body is told twice")
        if self.parser.should_upgrade():
            self._upgrading = True  # the parser stops here; see _unsupported_upgrade_warning
            return
        self._arm(self._limits.body_seconds)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """See uvicorn; a connection on which a request was admitted may be idle for longer."""
        if self._standing.is_admitted:
            self.timeout_keep_alive = cast("int", self._limits.keep_alive_seconds)
        super().on_response_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore the wish for another protocol, as RFC 9110, 7.8 allows: the request is read again without it.

        uvicorn calls this where it handles HttpParserUpgrade. The parser then takes what follows the head for the other
        protocol, and cannot be told otherwise.
        """
        stopped = sys.exc_info()[1]
        rest = self._data[stopped.args[0] :] if isinstance(stopped, httptools.HttpParserUpgrade) else b""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        fields = [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        head = b"\r\n".join([b"%b %b HTTP/%b" % (method, self.url, version), *fields, b"", b""])
        if method == b"CONNECT":
            self.send_400_response("CONNECT is not served.")
            return
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(head + rest)

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
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

    def _listener(self) -> Hashable:
        """What tells the connections of one listener from those of another: a unix socket's has no address here."""
        return self.server

    def _leave(self) -> None:
        """Make room for a newer connection."""
        self._refuse("rate")
        self.transport.abort()

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

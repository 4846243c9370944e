"""Owns one kept-alive HTTP/1.1 connection: one request and its response at a time."""

from __future__ import annotations

import re
import select
import ssl
from enum import Enum
from io import BytesIO
from typing import Final, TypeGuard

import anyio
import anyio.abc

from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.http_response import Head, ResponseReader, ResponseRefused
from mcpvisor.supervisor.transports.inflate import Inflater

_READ: Final = 64 * 1024
_LAST_WORDS: Final = 1.0
"""Seconds to look for an early answer after a request could not be written to its end."""

_CERTIFICATE_ALERT: Final = re.compile(r"_ALERT_.*(CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|ACCESS_DENIED|DECRYPT_ERROR)")
"""OpenSSL's names of the alerts by which a server refuses the certificate of a client, or the lack of one."""

_BROKEN: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class ConnectionBroken(Exception):
    """A connection ended within an exchange. `answered` says whether any byte of the response had come."""

    def __init__(self, detail: str, *, answered: bool) -> None:
        super().__init__(detail)
        self.answered = answered


class Stage(Enum):
    """Where a connection is in its life."""

    IDLE = "idle"
    BUSY = "busy"
    CLOSED = "closed"


class HttpConnection:
    """Owns its byte stream. Whoever breaks off an exchange closes the connection with it."""

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream
        self._reader = ResponseReader()
        self._inflater: Inflater | None = None
        self._pace = Pace()
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket, None)  # noqa: S610 -- anyio's typed attributes, not Django
        self._fd: int | None = raw.fileno() if raw is not None else None
        self.stage = Stage.IDLE
        self.idle_since = anyio.current_time()
        self.served = 0
        """Responses that were read to their end."""

    async def ask(self, request: bytes) -> Head:
        """Write a request and read the head of its response.

        Raises ConnectionBroken, ResponseRefused, and DialFailed where the server refused our certificate, or wants one.
        """
        self.stage = Stage.BUSY
        reader = self._reader
        reader.begin()
        try:
            await self._stream.send(request)
        except _BROKEN as error:
            # A server may refuse a request before it has read it whole: its answer is worth a look.
            with anyio.move_on_after(_LAST_WORDS):
                return await self._read_head()
            raise ConnectionBroken(f"the connection broke while the request was written: {error!r}", answered=False) from error
        return await self._read_head()

    async def _read_head(self) -> Head:
        reader, answered = self._reader, False
        while reader.head is None:
            try:
                data = await self._stream.receive(_READ)
            except _BROKEN as error:
                if not answered and not self.served and _is_certificate_alert(error):
                    # TLS 1.3: a server that wants a certificate of ours says so only after the handshake.
                    detail = f"the server refused TLS: {error.reason} (keys tls.client_cert and tls.client_key)"
                    raise DialFailed("tls", detail, was_written=True) from error
                raise ConnectionBroken("the connection was closed before an answer", answered=answered) from error
            answered = True
            reader.feed(data)
        coding = reader.head.headers.get("content-encoding", "").strip().lower()
        self._inflater = Inflater(coding) if coding not in ("", "identity") else None
        return reader.head

    async def chunk(self) -> bytes:
        """Some bytes of the body, decoded; empty at its end. Raises ConnectionBroken and ResponseRefused."""
        while True:
            if self._inflater is not None and (piece := self._inflater.piece()):
                await self._pace.pause()
                return piece
            data = self._reader.take_body()
            if data and self._inflater is None:
                return data
            if data and self._inflater is not None:
                self._inflater.feed(data)
            elif self._reader.complete:
                return self._at_end()
            else:
                await self._receive()

    def _at_end(self) -> bytes:
        if self._inflater is not None and not self._inflater.finished:
            raise ConnectionBroken("a compressed body broke off", answered=True)
        return b""

    async def _receive(self) -> None:
        try:
            data = await self._stream.receive(_READ)
        except anyio.EndOfStream:
            if not self._reader.feed_eof():
                raise ConnectionBroken("the response broke off", answered=True) from None
        except _BROKEN as error:
            raise ConnectionBroken("the connection broke within the response", answered=True) from error
        else:
            self._pace.go_on()
            self._reader.feed(data)

    async def body(self, limit: int) -> bytes:
        """The whole body of at most `limit` bytes. Raises ConnectionBroken and ResponseRefused."""
        if (self._reader.declared_length or 0) > limit:
            raise ResponseRefused("size", f"a body of {self._reader.declared_length} bytes is over the limit of {limit}")
        body = BytesIO()  # which, unlike a list of parts, needs no copy at the end
        while body.tell() <= limit:
            if not (part := await self.chunk()):
                return body.getvalue()
            body.write(part)
        raise ResponseRefused("size", f"a body of more than {limit} bytes")

    def finish_exchange(self) -> bool:
        """End the exchange; whether the connection can carry another one."""
        reader = self._reader
        if self.stage is not Stage.BUSY or not (reader.complete and reader.keep_alive) or reader.excess:
            return False
        self.served += 1
        self.stage = Stage.IDLE
        self.idle_since = anyio.current_time()
        return True

    def is_quiet(self) -> bool:
        """Whether an idle connection still stands: its peer has neither closed it nor sent what nobody asked for."""
        if self.stage is not Stage.IDLE:
            return False
        if self._fd is None:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    async def aclose(self) -> None:
        """Close at once, whatever is in the middle; safe within a cancelled scope."""
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)


def _is_certificate_alert(error: BaseException) -> TypeGuard[ssl.SSLError]:
    """Whether the peer refused the handshake; any other fault of TLS says nothing about what the peer has done before it."""
    return isinstance(error, ssl.SSLError) and _CERTIFICATE_ALERT.search(error.reason or "") is not None

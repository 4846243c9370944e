"""Owns the reading of HTTP/1.1 responses from bytes: head, limits and framing. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import httptools

MAX_HEAD: Final = 64 * 1024
"""Bytes of a response head; also the most bytes of framing (chunk sizes, trailers) between two bytes of the body."""

MAX_HEADERS: Final = 128

_SWITCHING: Final = 101


class ResponseRefused(Exception):
    """A response that is not read any further. `reason` is of the closed set of `WireHooks.refused`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class Head:
    """Status and headers of a response; names in lower case, repeated ones joined by a comma, cookies kept apart."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])

    @property
    def content_type(self) -> str:
        """The media type in lower case, without its parameters; empty where none is given."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class ResponseReader:
    """Takes the bytes of one connection and gives one response at a time.

    `head` is set once it is complete, `complete` once the body is. `excess` says that bytes came which no request of ours
    asked for: such a connection must not be used again.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._framing = 0
        self._refusal: ResponseRefused | None = None
        self._incoming = Head()
        self.head: Head | None = None
        self.complete = False
        self.excess = False
        self.keep_alive = False
        self._until_close = False

    def begin(self) -> None:
        """Expect the response to a further request."""
        self._incoming = Head()
        self._body = []
        self._framing = 0
        self.head = None
        self.complete = self.keep_alive = self._until_close = False

    def feed(self, data: bytes) -> None:
        """Take received bytes. Raises ResponseRefused."""
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._refusal is not None:
                raise self._refusal from None
            if not self.complete:
                raise ResponseRefused("syntax", f"not an HTTP/1.1 response: {error}") from None
            self.excess = True
        if not self.complete and self._framing > MAX_HEAD:
            what = "framing between bytes of the body" if self.head else "a response head"
            raise ResponseRefused("size", f"{what} of more than {MAX_HEAD} bytes")

    def feed_eof(self) -> bool:
        """The connection ended; whether that is the regular end of this response."""
        self.complete = self.complete or (self.head is not None and self._until_close)
        self.keep_alive = False
        return self.complete

    def take_body(self) -> bytes:
        """The bytes of the body that have come since the last call."""
        if not self._body:
            return b""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        return body

    @property
    def declared_length(self) -> int | None:
        """What Content-Length says; None where it is absent."""
        value = self.head.headers.get("content-length", "") if self.head else ""
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None

    # Called by httptools.

    def on_message_begin(self) -> None:
        if self.complete:
            self.excess = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is not None:
            return  # a trailer, or the head of an excess response: counted as framing, and not used
        headers = self._incoming.headers
        if len(headers) + len(self._incoming.cookies) >= MAX_HEADERS:
            self._refusal = ResponseRefused("size", f"a response head of more than {MAX_HEADERS} headers")
            raise self._refusal
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key == "set-cookie":
            self._incoming.cookies.append(text)
        else:
            headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        if self.head is not None:
            return
        status = self._parser.get_status_code()
        if status < 200 and status != _SWITCHING:
            return
        if status == _SWITCHING:
            self._refusal = ResponseRefused("syntax", "the server switched protocols, which was not asked for")
            raise self._refusal
        self._incoming.status = status
        self.head = self._incoming
        framed = "content-length" in self.head.headers or "transfer-encoding" in self.head.headers
        self._until_close = not framed and status not in (204, 304)

    def on_body(self, data: bytes) -> None:
        if self.complete:
            return
        self._framing = 0
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self.head is None:  # an informational response (1xx): the real one follows
            self._incoming = Head()
            return
        if not self.complete:
            self.complete = True
            self.keep_alive = bool(self._parser.should_keep_alive())

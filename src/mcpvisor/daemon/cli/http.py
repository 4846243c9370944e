"""Owns HTTP/1.1 as the verbs speak it to the daemon: one request on a connection, and its answer, whole or piece by piece.

The standard library's client brings TLS and e-mail with it, which takes longer to be imported than most verbs take.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

_MOST_LINE: Final = 65536
_MOST_HEADERS: Final = 100


class BadAnswer(Exception):
    """What came is no answer, or it ended too early; the text says which."""


class Answer:
    """The head of an answer, and its body as it comes. Reading raises OSError, TimeoutError and BadAnswer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file: BinaryIO = connection.makefile("rb")
        try:
            self.status = self._status()
            self.headers = self._headers()
            """By name in lower case."""
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Answer:  # noqa: PYI034 - it is nobody's base
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._file.close()
        self._connection.close()

    @property
    def length(self) -> int | None:
        """How many bytes the body has, where the head says it."""
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() else None

    @property
    def content_type(self) -> str:
        """Without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces(_MOST_LINE))

    def pieces(self, most: int) -> Iterator[bytes]:
        """The body as it comes, in pieces of at most so many bytes."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := self._chunk_size():
                yield from self._exactly(size, most)
                self._line("the end of a piece")
            self._headers()
        elif self.length is not None:
            yield from self._exactly(self.length, most)
        else:
            while piece := self._file.read(most):
                yield piece

    def lines(self) -> Iterator[bytes]:
        """The body line by line, each as soon as it is whole, without its end."""
        rest = b""
        for piece in self.pieces(_MOST_LINE):
            *lines, rest = (rest + piece).split(b"\n")
            yield from (line.removesuffix(b"\r") for line in lines)

    def _exactly(self, size: int, most: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._file.read(min(left, most))
            if not piece:
                raise BadAnswer(f"it ended {left} bytes too early")
            left -= len(piece)
            yield piece

    def _chunk_size(self) -> int:
        text = self._line("a piece").partition(";")[0].strip()
        try:
            return int(text, 16)
        except ValueError:
            raise BadAnswer("where the size of a piece should be is no number") from None

    def _status(self) -> int:
        version, _, rest = self._line("the status").partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            raise BadAnswer("it does not begin as HTTP does")
        return int(code)

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._line("a header")
            if not line:
                return found
            name, _, value = line.partition(":")
            found[name.strip().lower()] = value.strip()
        raise BadAnswer("it has too many headers")

    def _line(self, what: str) -> str:
        line = self._file.readline(_MOST_LINE)
        if not line.endswith(b"\n"):
            raise BadAnswer(f"it ended before {what}")
        return line.rstrip(b"\r\n").decode("latin-1")


def send(connection: socket.socket, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> None:
    """Send a request, after which the connection is closed. Raises OSError; a refusal may have come before all was sent."""
    given = {"Host": "localhost", "Connection": "close", **headers}
    if body or method == "POST":
        given["Content-Length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)

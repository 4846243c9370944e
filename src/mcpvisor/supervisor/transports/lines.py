"""Owns the framing of stdio: bytes in whatever pieces they come, whole lines out, in linear time and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line over the limit: its size, and its first and last 4 KiB, in which the id of the message is looked for."""

    size: int
    ends: bytes


class LineSplitter:
    """Splits at LF after joining; cuts a CR and a byte-order mark before the first line; leaves out blank lines."""

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._kept = BytesIO()  # which, unlike a list of pieces, needs no copy at the end
        self._size = 0
        self._head = b""
        self._tail = b""
        self._is_first = True

    @property
    def is_skipping(self) -> bool:
        """Whether the line that has no end yet is over the limit already."""
        return self._size > self._max_line

    def feed(self, data: bytes) -> Iterator[bytes | Overlong]:
        """The lines that `data` ends; must be used up before the next call."""
        first, *rest = data.split(b"\n")
        self._extend(first)
        if rest:
            yield from self.end()
            *whole, last = rest
            for line in whole:
                yield from self._line(line)
            self._extend(last)

    def end(self) -> Iterator[bytes | Overlong]:
        """The line that is being put together, as if its end had come."""
        if self.is_skipping:
            self._is_first = False
            yield Overlong(self._size, self._head + self._tail)
        else:
            yield from self._line(self._kept.getvalue())
        if self._size:
            self._kept = BytesIO()
        self._size = 0
        self._head = self._tail = b""

    def _line(self, line: bytes) -> Iterator[bytes | Overlong]:
        if self._is_first:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line or line.isspace():
            return
        self._is_first = False
        if len(line) > self._max_line:
            yield Overlong(len(line), line[:_KEPT] + line[-_KEPT:])
        else:
            yield line.removesuffix(b"\r")

    def _extend(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if not self.is_skipping:
            self._kept.write(piece)
            return
        if self._kept.tell():
            so_far = self._kept.getvalue()
            self._head, self._tail = so_far[:_KEPT], so_far[-_KEPT:]
            self._kept = BytesIO()
        self._head = (self._head + piece)[:_KEPT] if len(self._head) < _KEPT else self._head
        self._tail = (self._tail + piece[-_KEPT:])[-_KEPT:]

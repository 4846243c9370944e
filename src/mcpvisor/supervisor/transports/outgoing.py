"""Owns what waits to be written to a server's stdin: whole lines, in order, bounded, at once where the pipe has room."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final

import anyio

from mcpvisor.supervisor.transports.exchange import Pending

MAX_QUEUED: Final = 8 * 1024 * 1024
"""Bytes that may wait for a server that does not read; a single line may be longer when nothing else waits."""

RESERVED: Final = 256 * 1024
"""Room above that for what a server that comes back needs: answers and cancellations."""

_LINES_PER_WRITE: Final = 64


class QueueFull(Exception):
    """The server does not read, and enough waits for it already."""


class InputClosed(Exception):
    """The server has closed its stdin; not a byte of the line was taken."""


@dataclass(slots=True)
class _Line:
    rest: memoryview
    request: Pending | None
    is_begun: bool = False


class Outgoing:
    """The write side of a pipe. A line that has begun is always finished; one that has not can be withdrawn."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: deque[_Line] = deque()
        self._size = 0
        self._filled = anyio.Event()
        self.closed = anyio.Event()
        """Set when the server has closed its stdin."""

    def put(self, line: bytes, request: Pending | None = None) -> None:
        """Write a line, or queue what the pipe has no room for. Raises QueueFull and InputClosed."""
        if self.closed.is_set():
            raise InputClosed
        if self._lines:
            if self._size + len(line) > MAX_QUEUED + (RESERVED if request is None else 0):
                raise QueueFull
            self._append(_Line(memoryview(line), request))
            return
        try:
            written = os.write(self._fd, line)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self.closed.set()
            raise InputClosed from error
        if written < len(line):
            self._append(_Line(memoryview(line)[written:], request, written > 0))

    def withdraw(self, request: Pending) -> bool:
        """Take a request out again; whether that was possible: it is not once its line has begun."""
        for line in self._lines:
            if line.request is request and not line.is_begun:
                self._lines.remove(line)
                self._size -= len(line.rest)
                return True
        return False

    def withdraw_all(self) -> list[Pending]:
        """Take out every request whose line has not begun."""
        withdrawn = [line for line in self._lines if line.request is not None and not line.is_begun]
        self._lines = deque(line for line in self._lines if line.request is None or line.is_begun)
        self._size = sum(len(line.rest) for line in self._lines)
        return [line.request for line in withdrawn if line.request is not None]

    async def run(self) -> None:
        """Write what is queued as the server takes it, until it closes its stdin."""
        while not self.closed.is_set():
            await self.flushed()
            await self._filled.wait()

    async def flushed(self) -> None:
        """Write until nothing is queued, or the server has closed its stdin."""
        while self._lines and not self.closed.is_set():
            await anyio.wait_writable(self._fd)
            self._write_some()
        self._filled = anyio.Event()

    def _append(self, line: _Line) -> None:
        self._lines.append(line)
        self._size += len(line.rest)
        self._filled.set()

    def _write_some(self) -> None:
        lines = list(islice(self._lines, _LINES_PER_WRITE))
        if not lines:  # withdrawn meanwhile
            return
        try:
            written = os.writev(self._fd, [line.rest for line in lines])
        except BlockingIOError:
            return
        except OSError:
            self.closed.set()
            return
        self._size -= written
        for line in lines:
            if written < len(line.rest):
                line.is_begun = line.is_begun or written > 0
                line.rest = line.rest[written:]
                return
            written -= len(line.rest)
            self._lines.popleft()

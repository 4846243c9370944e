"""Owns the shim's stdin and stdout: lines in, lines out, each by a thread of its own, so that neither is made non-blocking.

Both may be shared with other programs, a shell's terminal or a regular file: what is set on them would be set for all.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcpvisor.supervisor.transports.lines import LineSplitter, Overlong

_READ: Final = 64 * 1024
_LINES_AHEAD: Final = 8
"""Lines that are read before anybody asks for them."""

Line = bytes | Overlong


class LineReader:
    """The lines of a file descriptor; `ended` is set when it has no more."""

    def __init__(self, fd: int, max_line: int) -> None:
        self._fd = fd
        self._splitter = LineSplitter(max_line)
        self._loop = asyncio.get_running_loop()
        streams = anyio.create_memory_object_stream[Line](_LINES_AHEAD)
        self._put: MemoryObjectSendStream[Line] = streams[0]
        self.lines: MemoryObjectReceiveStream[Line] = streams[1]
        self.ended = anyio.Event()

    def start(self) -> None:
        """Begin to read. The thread ends with the process: nothing can wake it from a read."""
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody wants the lines any more
            while data := _read(self._fd):
                for line in self._splitter.feed(data):
                    self._hand_over(line)
            for line in self._splitter.end():
                self._hand_over(line)
            self._loop.call_soon_threadsafe(self._end)

    def _hand_over(self, line: Line) -> None:
        asyncio.run_coroutine_threadsafe(self._put.send(line), self._loop).result()

    def _end(self) -> None:
        self._put.close()
        self.ended.set()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ)
    except OSError:  # a terminal that is gone, or a stdin that was closed before we were started
        return b""


class LineWriter:
    """Writes lines to a file descriptor, in order; each waits until it is written. `gone` is set when nobody reads them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[tuple[bytes, Callable[[], None]]] = queue.SimpleQueue()
        self._turn = anyio.Lock()
        self.gone = anyio.Event()

    def start(self) -> None:
        """Begin to write. The thread ends with the process: nothing can wake it from a write."""
        threading.Thread(target=self._run, name="stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Return once the line is written, or nobody reads any more. A cancellation does not cut a line."""
        async with self._turn:
            if self.gone.is_set():
                return
            written = anyio.Event()
            self._lines.put((line, written.set))
            await written.wait()

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            while True:
                line, done = self._lines.get()
                is_written = _write_whole(self._fd, line)
                if not is_written:
                    self._loop.call_soon_threadsafe(self.gone.set)
                self._loop.call_soon_threadsafe(done)
                if not is_written:
                    return


def _write_whole(fd: int, data: bytes) -> bool:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        return False
    return True

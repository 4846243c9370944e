"""Owns what servers write on stderr: always drained, kept as a bounded ring of clean lines, passed on at a bounded rate."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import anyio

from mcpvisor.supervisor.cleaning import clean_text, clip
from mcpvisor.supervisor.folding import unfolded
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.secret_index import ELLIPSIS

RING_LINES: Final = 200
LINE_CHARACTERS: Final = 500
LINES_PER_SECOND: Final = 100
LINES_BURST: Final = 500
LAST_LINES: Final = 20

_READ: Final = 65536
_RAW_LINE: Final = 8192
"""Bytes of one line that are looked at; the rest of an endless line is skipped."""
_ROOM: Final = 2
"""How many times what is shown is looked at: a secret at its end is known as a whole, or by its begin at the cut."""
_REST_FACTOR: Final = 4
"""A flood is read a fifth of the time: the pipe holds the writer back, and the neighbours have the rest."""
_SHORTEST_REST: Final = 0.001


class StderrLine(NamedTuple):
    """One cleaned line, and when it was written in wall-clock seconds since the epoch."""

    at: float
    text: str


StderrSink = Callable[[tuple[str, ...], int], None]
"""Takes a batch of lines, and how many lines before them were over the rate."""


class StderrRing:
    """The newest lines of one server's stderr, across its processes.

    `mask` takes secrets out of every line. `sink` gets every line up to the rate; the ring keeps the newest.
    """

    def __init__(self, sink: StderrSink, *, mask: Mask | None = None) -> None:
        self._sink = sink
        self._mask = mask or Mask()
        self._ring: deque[StderrLine] = deque(maxlen=RING_LINES)
        self._partial = b""
        self._before = ""
        """What the last line has ended with, as far as the next one may go on with it."""
        self._written_at = 0.0
        """When something was last written, by the wall clock."""
        self._allowance = float(LINES_BURST)
        self._counted_at: float | None = None
        self._dropped = 0
        self.lines = 0
        """How many lines were written in all."""
        self.last_write: float | None = None
        """When something was last written, by `anyio.current_time()`."""

    def tail(self, count: int = RING_LINES) -> list[str]:
        """The newest lines, oldest first, with the line that has no end yet."""
        return [line.text for line in self.timed_tail(count)]

    def timed_tail(self, count: int = RING_LINES) -> list[StderrLine]:
        """As `tail`, each line with when it was written."""
        unended = [StderrLine(self._written_at, self._clean(self._partial)[0])] if self._partial else []
        return [*self._ring, *unended][-count:] if count > 0 else []

    def feed(self, data: bytes, now: float) -> bool:
        """Take what was written; whether it came faster than the rate."""
        self.last_write = now
        self._written_at = time.time()
        first, *rest = data.split(b"\n")
        head = self._partial + first[: max(0, _RAW_LINE - len(self._partial))]
        if not rest:
            self._partial = head
            return False
        self._partial = rest[-1][:_RAW_LINE]
        ended = [head, *rest[:-1]]
        self.lines += len(ended)
        lines = [self._clean_ended(line) for line in ended[-RING_LINES:]]  # more would not stay, and cleaning is what costs
        self._ring.extend(StderrLine(self._written_at, line) for line in lines)
        return self._pass_on(lines, len(ended), now)

    def end(self, now: float) -> None:
        """The writer is gone: what it has left without an end is a line, too."""
        if self._partial:
            self.feed(b"\n", now)
        if self._dropped:  # the last words say why it ended: they go out whatever the rate
            last = tuple(self.tail(min(self._dropped, LAST_LINES)))
            self._dropped -= len(last)
            self._sink(last, self._dropped)
            self._dropped = 0

    async def drain(self, fd: int) -> None:
        """Read `fd`, which must be non-blocking, until its end. Fair: a flood is slowed down, not the loop."""
        while True:
            await anyio.wait_readable(fd)
            try:
                data = os.read(fd, _READ)
            except BlockingIOError:
                continue
            began = time.perf_counter()
            now = anyio.current_time()
            if not data:
                self.end(now)
                return
            if self.feed(data, now) or len(data) == _READ:
                await anyio.sleep(max(_SHORTEST_REST, (time.perf_counter() - began) * _REST_FACTOR))

    def drain_rest(self, fd: int) -> None:
        """Take what a dead writer has left in the pipe, up to what a pipe holds."""
        now = anyio.current_time()
        try:
            data = os.read(fd, _READ)
        except OSError:
            data = b""
        if data:
            self.feed(data, now)
        self.end(now)

    def _pass_on(self, lines: list[str], ended: int, now: float) -> bool:
        if self._counted_at is not None:
            earned = (now - self._counted_at) * LINES_PER_SECOND
            self._allowance = min(float(LINES_BURST), self._allowance + earned)
        self._counted_at = now
        allowed = min(len(lines), int(self._allowance))
        self._allowance -= allowed
        dropped, self._dropped = self._dropped + ended - allowed, 0
        if allowed:
            self._sink(tuple(lines[-allowed:]), dropped)
        else:
            self._dropped = dropped
        return ended > allowed

    def _clean_ended(self, raw: bytes) -> str:
        line, self._before = self._clean(raw)
        return line

    def _clean(self, raw: bytes) -> tuple[str, str]:
        """A line as it is told, and with what the next one may go on."""
        # Masked when it is clean: there may be escapes within a secret, or it is cut with the line.
        line = clean_text(self._mask.raw(raw[:_RAW_LINE]).rstrip(b"\r"), LINE_CHARACTERS * _ROOM)
        shown, before = unfolded(line, self._before, self._mask)
        return clip(shown if len(raw) < _RAW_LINE else f"{shown[: LINE_CHARACTERS - 1]}{ELLIPSIS}", LINE_CHARACTERS), before

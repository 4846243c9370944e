"""Owns the share of the loop that long work may have: it is done in slices, and others have their turns in between."""

from __future__ import annotations

import time
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar, checkpoint

SLICE: Final = 0.0005
"""Seconds of work in one go. A call takes some twenty turns of the loop, each of which may have such a slice in it."""

REST_FACTOR: Final = 3.0
"""While others are at work, long work rests several times as long as it has worked: a quarter of the loop is its share."""

LONGEST_REST: Final = 0.02
"""Seconds; a slice that could not be cut shorter is not to be paid for by a standstill."""

_AT_ONCE: Final = 1000
"""Members that are freed in one step."""

_IDLE_TURN: Final = 0.0001
"""Seconds that a turn of the loop takes, at most, when nobody else has anything to do in it."""


class Pace:
    """One piece of long work, which asks after each of its steps whether it is time for a pause."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def begin(self) -> None:
        """Work begins anew, after something that was no work."""
        self._since = time.perf_counter()

    async def pause(self, *, rests: bool = True) -> None:
        """Let others have their turns once a slice is over.

        With `rests` they have the loop for as long as is their share; without, for one turn.
        """
        worked = time.perf_counter() - self._since
        if worked < SLICE:
            return
        if rests:
            await _give_way(worked)
        else:
            await checkpoint()
        self._since = time.perf_counter()


async def let_go(value: Any) -> None:
    """Free a JSON value of any size, which nobody else holds, in slices; it is empty afterwards."""
    pace = Pace()
    containers = [value]
    while containers:
        one = containers.pop()
        while one:
            if isinstance(one, list):
                members = one[-_AT_ONCE:]
                del one[-_AT_ONCE:]
            else:
                members = [one.popitem()[1] for _ in range(min(len(one), _AT_ONCE))]
            containers += [member for member in members if isinstance(member, list | dict) and member]
            del members
            await pace.pause()


async def _give_way(worked: float) -> None:
    # One after another: all long work together has one share.
    async with _line():
        began = time.perf_counter()
        await checkpoint()
        if time.perf_counter() - began > _IDLE_TURN:
            await anyio.sleep(min(worked * REST_FACTOR, LONGEST_REST))


_lines: Final = RunVar[anyio.Lock]("mcpvisor_long_work")


def _line() -> anyio.Lock:
    try:
        return _lines.get()
    except LookupError:
        line = anyio.Lock(fast_acquire=True)
        _lines.set(line)
        return line

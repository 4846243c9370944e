"""Owns the question whether the clocks have jumped: a wall clock that was set, or a machine that slept.

Durations are measured by the monotonic clock alone, which knows neither. The wall clock is for what is shown, and for what
expires at a date; after a jump everything of that kind has to be looked at again, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

JUMP: Final = 5.0
"""Seconds by which the wall clock has to get ahead of the others, or behind, between two looks to have jumped."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The three clocks at one moment, in seconds; `boottime` goes on while the machine sleeps, `monotonic` does not."""

    wall: float
    monotonic: float
    boottime: float


@dataclass(frozen=True, slots=True)
class Jump:
    """The wall clock went `seconds` further than the monotonic clock (less than 0: back); for `asleep` of them it slept."""

    seconds: float
    asleep: float


def jump_between(before: Reading, after: Reading) -> Jump | None:
    """The jump between two readings; None where the clocks went alike, give or take 5 s."""
    passed = after.monotonic - before.monotonic
    ahead = after.wall - before.wall - passed
    asleep = after.boottime - before.boottime - passed
    if abs(ahead) <= JUMP and asleep <= JUMP:
        return None
    return Jump(ahead, asleep if asleep > JUMP else 0.0)


def read_clocks() -> Reading:
    """The clocks of this machine."""
    return Reading(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))


async def watch_clocks(read: Callable[[], Reading], jumped: Callable[[Jump], None], *, interval: float) -> None:
    """Tell of each jump once, within `interval` seconds, until cancelled."""
    before = read()
    while True:
        await anyio.sleep(interval)
        after = read()
        jump = jump_between(before, after)
        before = after
        if jump is not None:
            jumped(jump)

"""Owns the share of the loop that long work may have: it is done in slices, and others have their turns in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar, checkpoint

SLICE: Final = 0.0005
"""Seconds of work in one go. A call takes some twenty turns of the loop, each of which may have such a slice in it."""

REST_FACTOR: Final = 4.0
"""While others are at work, long work rests several times as long as it has worked: a fifth of the loop is its share."""

LONGEST_REST: Final = 0.01
"""Seconds; a slice that could not be cut shorter is not to be paid for by a standstill."""

_FORGOTTEN: Final = 2.0
"""Seconds in which half of what an account has spent is forgotten."""

_SETTLED: Final = 10 * _FORGOTTEN
"""Seconds after which next to nothing of it is left."""

_AT_ONCE: Final = 1000
"""Members that are freed in one step."""

_IDLE_TURN: Final = 0.0001
"""Seconds of work in a turn of the loop, at most, in which nobody else has anything to do."""


class Account:
    """What somebody, such as a server, has had of the loop lately: who had least is served first."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._at = 0.0

    def charge(self, worked: float) -> float:
        """Add seconds of work; returns what was spent lately."""
        now = time.monotonic()
        self._spent = self._spent * 0.5 ** ((now - self._at) / _FORGOTTEN) + worked
        self._at = now
        return self._spent


class Accounts:
    """The accounts of many, by their names; who has asked for nothing for long gets a new one, which is as good as the old."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[Account, float]] = {}
        """Each with the time when it was asked for last, in the order of that."""

    @property
    def number(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def of(self, name: str) -> Account:
        """The account of that name."""
        now = self._clock()
        account, _ = self._kept.pop(name, (Account(), now))
        self._kept[name] = account, now
        while (oldest := next(iter(self._kept))) != name and now - self._kept[oldest][1] > _SETTLED:
            del self._kept[oldest]
        return account


class Pace:
    """One piece of long work, which asks after each of its steps whether it is time for a pause.

    Work is counted in the processor's time of the loop's thread. `account` is that of whoever causes it; without one it
    begins as one who has had nothing yet.
    """

    def __init__(self, account: Account | None = None) -> None:
        self._account = account or Account()
        self._worked = 0.0
        self._since = time.thread_time()

    @property
    def worked(self) -> float:
        """Seconds of work since it was made, or since `begin`."""
        return self._worked + time.thread_time() - self._since

    def begin(self) -> None:
        """Work begins anew."""
        self._worked = 0.0
        self.go_on()

    def go_on(self) -> None:
        """Work goes on, after something that was no work of its own."""
        self._since = time.thread_time()

    async def pause(self, *, rests: bool = True) -> None:
        """Let others have their turns once a slice is over.

        With `rests` they have the loop for as long as is their share; without, for one turn.
        """
        worked = time.thread_time() - self._since
        if worked < SLICE:
            return
        if rests:
            await _line().rest(self._account.charge(worked), worked)
        else:
            await checkpoint()
        self._worked += worked
        self._since = time.thread_time()


class _Line:
    """Those who have to rest do it one after another, so that all long work together has one share of the loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[anyio.Event, float] = {}

    async def rest(self, spent: float, worked: float) -> None:
        """Rest for a slice that has just been worked, as soon as nobody rests who has spent less lately."""
        if self._is_taken:
            await self._wait(spent)
        self._is_taken = True
        try:
            began = time.thread_time()
            await checkpoint()
            if time.thread_time() - began > _IDLE_TURN:
                await anyio.sleep(min(worked * REST_FACTOR, LONGEST_REST))
        finally:
            self._release()

    async def _wait(self, spent: float) -> None:
        """Return when the place is handed over."""
        turn = anyio.Event()
        self._waiting[turn] = spent
        try:
            await turn.wait()
        except BaseException:
            if self._waiting.pop(turn, None) is None:  # it was handed over already
                self._release()
            raise

    def _release(self) -> None:
        """Hand the place over; else whoever leaves it would be the first to take it again."""
        if self._waiting:
            turn = min(self._waiting, key=self._waiting.__getitem__)
            del self._waiting[turn]
            turn.set()
        else:
            self._is_taken = False


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


_lines: Final = RunVar[_Line]("mcpvisor_long_work")


def _line() -> _Line:
    try:
        return _lines.get()
    except LookupError:
        line = _Line()
        _lines.set(line)
        return line

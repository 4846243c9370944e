"""Owns how many requests of one server run at once, how many may wait for that, and whose turn it is.

No caller can keep all others out: a part of the places is for others than whoever has most of them, a place that is free
goes to whoever has fewest, and where the queue is full those give way who have most in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.principal import Principal

KEPT_FROM_IDENTITY: Final = 8
"""One place of so many is never taken by an identity that has all others."""

KEPT_FROM_SESSION: Final = 4
"""One place of so many is never taken by a session that has all others."""

REMEMBERED: Final = 1000
"""Identities and sessions of which it is known when they had their last turn."""


class _Tally:
    """How much each identity has, and each session. A request outside of sessions counts for its identity alone."""

    def __init__(self) -> None:
        self._identities: Counter[str] = Counter()
        self._sessions: Counter[Principal] = Counter()

    def change(self, caller: Principal, by: int) -> None:
        """Count `by` more of a caller."""
        self._identities[caller.name] += by
        if not self._identities[caller.name]:
            del self._identities[caller.name]
        if caller.session is None:
            return
        self._sessions[caller] += by
        if not self._sessions[caller]:
            del self._sessions[caller]

    def of(self, caller: Principal) -> tuple[int, int]:
        """What the identity has, and what the session has."""
        return self._identities[caller.name], self._sessions[caller]


class _Turns:
    """When each identity and each session was let in last, as far as that is not long ago."""

    def __init__(self) -> None:
        self._number = 0
        self._last: dict[str | Principal, int] = {}

    def took(self, caller: Principal) -> None:
        """A caller has been let in."""
        self._number += 1
        for key in (caller.name, caller):
            self._last.pop(key, None)
            self._last[key] = self._number
        while len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]

    def last(self, caller: Principal) -> tuple[int, int]:
        """The numbers of the last turns of the identity and of the session; 0 where none is remembered."""
        return self._last.get(caller.name, 0), self._last.get(caller, 0)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request in the queue, until its `turn`: it may run then or, where it was `displaced`, it is refused."""

    caller: Principal
    turn: anyio.Event = field(default_factory=anyio.Event)
    displaced: bool = False


class Admission:
    """First come, first served, as far as callers have equally much; the limits may change at any time."""

    def __init__(self, concurrency: int, queue: int) -> None:
        self._concurrency = concurrency
        self._queue = queue
        self._waiting: list[_Waiting] = []
        """In the order of their arrival."""
        self._in_queue = _Tally()
        self._at_work = _Tally()
        self._turns = _Turns()
        self.running = 0

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def limit(self, concurrency: int, queue: int) -> None:
        """Set new limits; those already waiting keep their place."""
        self._concurrency, self._queue = concurrency, queue
        self._let_in()

    @asynccontextmanager
    async def place(self, caller: Principal) -> AsyncGenerator[None]:
        """A place among the running. Raises RequestFailed (`rejected`, `queue_full`) when too many wait already."""
        if self._may_run(caller):  # nobody waits who might
            self._begin(caller)
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._end(caller)

    def _may_run(self, caller: Principal) -> bool:
        of_identity, of_session = self._at_work.of(caller)
        return (
            self.running < self._concurrency
            and of_identity < self._concurrency - self._concurrency // KEPT_FROM_IDENTITY
            and of_session < self._concurrency - self._concurrency // KEPT_FROM_SESSION
        )

    def _begin(self, caller: Principal) -> None:
        self.running += 1
        self._at_work.change(caller, 1)
        self._turns.took(caller)

    def _end(self, caller: Principal) -> None:
        self.running -= 1
        self._at_work.change(caller, -1)
        self._let_in()

    def _let_in(self) -> None:
        """Give free places to those who have fewest, of these to whoever had no turn for longest."""
        while free := [one for one in self._waiting if self._may_run(one.caller)]:
            following = min(free, key=lambda one: (self._at_work.of(one.caller), self._turns.last(one.caller)))
            self._leave(following)
            self._begin(following.caller)
            following.turn.set()

    async def _wait(self, caller: Principal) -> None:
        if len(self._waiting) >= self._queue:
            self._make_room(caller)
        waiting = _Waiting(caller)
        self._waiting.append(waiting)
        self._in_queue.change(caller, 1)
        try:
            await waiting.turn.wait()
        except BaseException:
            if waiting in self._waiting:
                self._leave(waiting)
            elif not waiting.displaced:  # the place was given in the same moment: hand it on
                self._end(caller)
            raise
        if waiting.displaced:
            raise self._full()

    def _leave(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        self._in_queue.change(waiting.caller, -1)

    def _make_room(self, caller: Principal) -> None:
        """Displace the newest of whoever has most in the queue. Raises RequestFailed where nobody has more than the caller.

        Identities are compared by all that they have, and the caller's session with others of its own identity.
        """
        of_identity, of_session = self._in_queue.of(caller)
        others = [one for one in self._waiting if self._in_queue.of(one.caller)[0] > of_identity + 1]
        siblings = [
            one
            for one in self._waiting
            if caller.session is not None
            and one.caller.name == caller.name
            and self._in_queue.of(one.caller)[1] > of_session + 1
        ]
        if not others and not siblings:
            raise self._full()
        greatest = max(others or siblings, key=lambda one: self._in_queue.of(one.caller)).caller
        displaced = next(one for one in reversed(self._waiting) if one.caller == greatest)
        displaced.displaced = True
        self._leave(displaced)
        displaced.turn.set()

    def _full(self) -> RequestFailed:
        return RequestFailed(
            Outcome.REJECTED,
            "queue_full",
            f"{self.running} requests run and {len(self._waiting)} wait; more are refused (concurrency, queue)",
            retry_after_s=1.0,
        )

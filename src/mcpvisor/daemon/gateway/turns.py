"""Owns the order in which requests begin: one of each client in one turn of the loop, however many it has sent at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from typing import Final

from mcpvisor.daemon.gateway.places import Standing

RUSH_SECONDS: Final = 3.0
"""How long after a start all clients come back at one time, while the start of all servers makes each turn a long one."""

RUSH_TURN: Final = 8
"""Requests of one client that begin in a turn meanwhile."""

LIGHT_SECONDS: Final = 0.05
"""For how long a client that had not to wait for its turn is thought to come again."""

BUSY_SHARE: Final = 0.5
"""Of the loop's time what is to be spent at work, at most, while a client waits for its turn and a light one is there."""

LONGEST_PAUSE: Final = 0.005
"""Seconds after which the next request of whoever waits begins in any case."""


class Turns:
    """A turnstile for each key, for asyncio loops. A key that nobody shares with others never waits.

    Without it a client with many connections has all their requests handled between two steps of everybody else's. With
    it each turn of the loop holds one of them; those that wait are held back in their connections, where they cost nothing.
    While somebody is there who sends one request after another, whoever sends more than can be handled at once gets a part
    of the loop's time only: else every step of everybody's call would take place behind one of theirs.
    """

    def __init__(
        self,
        rush_seconds: float = 0.0,
        *,
        nobodys: Container[str] = (),
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        """For `rush_seconds` from now on `RUSH_TURN` requests of a key begin in each turn, from then on one.

        Nobody is made to wait for the sake of the keys `nobodys`. `busy` counts the seconds for which the loop's thread has
        worked.
        """
        self._clock = clock
        self._busy = busy
        self._nobodys = nobodys
        self._rush_until = clock() + rush_seconds
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}
        self._begun: dict[str, tuple[float, float]] = {}
        """Of each key that waits the time of its last beginning, and how busy the loop had been by then."""
        self._light: dict[str, float] = {}
        """Keys that had not to wait, and when that was last."""

    async def take(self, key: str, standing: Standing | None = None) -> bool:
        """Return when it is this request's turn: first come, first served. False as soon as its connection is lost.

        Connections have their limit, but those that are lost do not count in it: who opens one after another, and waits for
        nothing, would have more and more requests wait here.
        """
        standing = standing or Standing()
        if standing.is_lost:
            return False
        loop = asyncio.get_running_loop()
        queue = self._waiting.get(key)
        if queue is None:
            self._waiting[key] = deque()
            self._begun[key] = now, _ = self._clock(), self._busy()
            self._light.pop(key, None)  # the dictionary is in the order of time
            if key not in self._nobodys:
                self._light[key] = now
            loop.call_soon(self._next, key)
            return True
        turn: asyncio.Future[bool] = loop.create_future()
        queue.append(turn)
        standing.on_lost = partial(_give_up, turn)
        try:
            return await turn
        finally:
            standing.on_lost = None

    def _next(self, key: str) -> None:
        """A turn of the loop is over: the next requests of the key may begin."""
        queue = self._waiting[key]
        while queue and queue[0].done():  # its request was cancelled, or has nobody who waits for it
            queue.popleft()
        if not queue:
            del self._waiting[key], self._begun[key]
            return
        loop = asyncio.get_running_loop()
        self._light.pop(key, None)
        if pause := self._pause(key):
            loop.call_later(pause, self._next, key)
            return
        places = RUSH_TURN if self._clock() < self._rush_until else 1
        while queue and places:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(True)
                places -= 1
        self._begun[key] = self._clock(), self._busy()
        loop.call_soon(self._next, key)

    def _pause(self, key: str) -> float:
        """Seconds that the next request of a key has to wait still."""
        now = self._clock()
        if now < self._rush_until or not self._is_anybody_light(now):
            return 0.0
        began, busy = self._begun[key]
        due = began + min(LONGEST_PAUSE, (self._busy() - busy) / BUSY_SHARE)
        return max(0.0, due - now)

    def _is_anybody_light(self, now: float) -> bool:
        while self._light:
            key, at = next(iter(self._light.items()))
            if now - at < LIGHT_SECONDS:
                return True
            del self._light[key]
        return False


def _give_up(turn: asyncio.Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)

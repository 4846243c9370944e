"""Owns the order in which requests begin: one of each client in one turn of the loop, however many it has sent at once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

RUSH_SECONDS: Final = 3.0
"""How long after a start all clients come back at one time, while the start of all servers makes each turn a long one."""

RUSH_TURN: Final = 8
"""Requests of one client that begin in a turn meanwhile."""


class Turns:
    """A turnstile for each key, for asyncio loops. A key that nobody shares with others never waits.

    Without it a client with many connections has all their requests handled between two steps of everybody else's. With
    it each turn of the loop holds one of them; those that wait are held back in their connections, where they cost nothing.
    """

    def __init__(self, rush_seconds: float = 0.0) -> None:
        """For `rush_seconds` from now on `RUSH_TURN` requests of a key begin in each turn, from then on one."""
        self._rush_until = time.monotonic() + rush_seconds
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, key: str) -> None:
        """Return when it is this request's turn: first come, first served."""
        loop = asyncio.get_running_loop()
        queue = self._waiting.get(key)
        if queue is None:
            self._waiting[key] = deque()
            loop.call_soon(self._next, key)
            return
        turn = loop.create_future()
        queue.append(turn)
        await turn

    def _next(self, key: str) -> None:
        """A turn of the loop is over: the next requests of the key may begin."""
        queue = self._waiting[key]
        places = RUSH_TURN if time.monotonic() < self._rush_until else 1
        begun = 0
        while queue and begun < places:
            turn = queue.popleft()
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                begun += 1
        if begun:
            asyncio.get_running_loop().call_soon(self._next, key)
        else:
            del self._waiting[key]

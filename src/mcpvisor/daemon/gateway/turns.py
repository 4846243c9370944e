"""Owns the order in which requests begin: one of each client in one turn of the loop, however many it has sent at once."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A turnstile for each key, for asyncio loops. A key that nobody shares with others never waits.

    Without it a client with many connections has all their requests handled between two steps of everybody else's. With
    it each turn of the loop holds one of them; those that wait are held back in their connections, where they cost nothing.
    """

    def __init__(self) -> None:
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
        """A turn of the loop is over: the next request of the key may begin."""
        queue = self._waiting[key]
        while queue:
            turn = queue.popleft()
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next, key)
                return
        del self._waiting[key]

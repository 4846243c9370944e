"""Owns the connections of one server: which are idle, which may be used again, and when they are let go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.abc

from mcpvisor.supervisor.transports.http_connection import HttpConnection

IDLE_SECONDS: Final = 4.0
"""Idle connections are dropped before the other side does it: uvicorn closes at 5 s."""

MAX_IDLE: Final = 32


class HttpPool:
    """Idle connections, the latest used last. A connection in use belongs to its exchange and is not in here."""

    def __init__(self, dial: Callable[[], Awaitable[anyio.abc.ByteStream]]) -> None:
        self._dial = dial
        self._idle: list[HttpConnection] = []
        self._filled = anyio.Event()
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpPool({len(self._idle)} idle{', closed' if self._closed else ''})"

    async def take(self, *, fresh: bool = False) -> HttpConnection:
        """A connection that stood a moment ago, or (always with `fresh`) a new one. Raises DialFailed."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            if anyio.current_time() - connection.idle_since < IDLE_SECONDS and connection.is_quiet():
                return connection
            await connection.aclose()
        return HttpConnection(await self._dial())

    async def give_back(self, connection: HttpConnection) -> None:
        """Take a connection after its exchange: kept where it can carry another one, else closed."""
        if connection.finish_exchange() and not self._closed and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
            self._filled.set()
        else:
            await connection.aclose()

    async def reap(self) -> None:
        """Close what has been idle too long, for ever."""
        while True:
            if not self._idle:
                self._filled = anyio.Event()
                await self._filled.wait()
            due = self._idle[0].idle_since + IDLE_SECONDS if self._idle else anyio.current_time()
            await anyio.sleep_until(due)
            now = anyio.current_time()
            old = [one for one in self._idle if now - one.idle_since >= IDLE_SECONDS]
            self._idle = [one for one in self._idle if one not in old]
            for connection in old:
                await connection.aclose()

    async def aclose(self) -> None:
        """Close what is idle, and keep nothing from now on."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.aclose()

"""Owns how an event stream is written to one client: its head, pings while nothing is said, and its end."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio
from starlette.types import Receive, Send

from mcpvisor.daemon.gateway.event_memory import Track
from mcpvisor.daemon.gateway.frames import PING

_T = TypeVar("_T")

CONTENT_TYPE: Final = "text/event-stream"

PING_INTERVAL: Final = 15.0

WRITE_SECONDS: Final = 30.0
"""How long a client may leave a stream unread before it is ended."""

RETRY_MS: Final = 1000
"""What a client is told to wait before it takes up a stream again."""

PRIMED_SINCE: Final = "2025-11-25"
"""The first revision whose clients know events with an id and no data."""

_HEADERS: Final = (
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def is_preferred(accept: str) -> bool:
    """Whether a client names event streams before JSON."""
    return -1 < accept.find(CONTENT_TYPE) < accept.find("application/json")


def primer(track: Track, number: int, version: str) -> bytes:
    """The event that tells where a stream is, so that it can be taken up before anything is said; a ping for older clients."""
    if version < PRIMED_SINCE:
        return PING
    return f"id: {track.id_at(number)}\r\nretry: {RETRY_MS}\r\ndata: \r\n\r\n".encode()


class Line:
    """One answer over HTTP that is an event stream. Once it is shut nothing is written any more, and that is no error."""

    def __init__(self, send: Send, session: str) -> None:
        self._send = send
        self._session = session.encode()
        self.is_open = False

    async def begin(self) -> None:
        """Send the head."""
        self.is_open = True
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": [*_HEADERS, (b"mcp-session-id", self._session)]}
        )

    async def write(self, data: bytes) -> bool:
        """Send what is said; whether the client still reads. One that does not in time is given up."""
        await self._put(data, more=True)
        return self.is_open

    async def end(self, data: bytes = b"") -> None:
        """Send the last of it."""
        await self._put(data, more=False)
        self.is_open = False

    async def _put(self, data: bytes, *, more: bool) -> None:
        if not self.is_open:
            return
        self.is_open = False  # until it is written: whoever is cut here has nothing more to say
        with anyio.move_on_after(WRITE_SECONDS):
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
            self.is_open = True


async def pinging(line: Line, next_thing: Callable[[], Awaitable[_T]]) -> _T:
    """The next thing to say, with a ping every now and then while the line is open.

    `next_thing` is asked anew after each ping, and has to find what has come while that was written.
    """
    while True:
        interval = PING_INTERVAL if line.is_open else math.inf
        with anyio.move_on_after(interval):
            return await next_thing()
        await line.write(PING)


async def follow(track: Track, number: int, line: Line, *, otherwise: bytes) -> None:
    """Send what is said on a stream from a place on, until its end, or until somebody else takes it up.

    `otherwise` is the last word where the answer that it was to bring is not kept.
    """
    me = object()
    track.take_up(me)
    try:
        while line.is_open and track.reader is me:
            kept, _ = track.after(number)
            number = track.last
            for at, data in kept:
                if track.reader is me:
                    if track.is_over and at == track.last:
                        await line.end(data)
                    else:
                        await line.write(data)
            if track.is_over:
                await line.end(otherwise)
            elif number == track.last:
                await pinging(line, partial(track.stirred, number, me))
        await line.end()
    finally:
        track.leave(me)


async def until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a scope once the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()

"""Owns the HTTP exchanges with one endpoint of the gateway, wherever it is found after the daemon was restarted."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from mcpvisor.daemon.cli.exits import CliError
from mcpvisor.daemon.shim.door import Door, FindDoor
from mcpvisor.supervisor.spec import TlsTrust
from mcpvisor.supervisor.transports.codec import Unreadable
from mcpvisor.supervisor.transports.dial import Dialer, DialFailed, client_context
from mcpvisor.supervisor.transports.eventstream import EventStream
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken, HttpConnection
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.http_response import Head, ResponseRefused

MAX_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of one message of the gateway: twice what a server may send unless its entry says otherwise."""

CONNECT_SECONDS: Final = 5.0

EVENT_STREAM: Final = "text/event-stream"


class Reply:
    """What the gateway says to one request: its head, and then a body or messages."""

    def __init__(self, head: Head, connection: HttpConnection) -> None:
        self.status = head.status
        self.headers = head.headers
        self.is_stream = head.content_type == EVENT_STREAM
        self._connection = connection
        self._events = EventStream(limit=MAX_ANSWER)

    async def body(self) -> bytes:
        """The whole body. Raises ConnectionBroken and ResponseRefused."""
        return await self._connection.body(MAX_ANSWER)

    async def messages(self) -> list[bytes] | None:
        """The messages of an event stream that came next, which may be none; None at its end.

        Raises ConnectionBroken and ResponseRefused.
        """
        data = await self._connection.chunk()
        if not data:
            return None
        try:
            return [event.data for event in self._events.feed(data) if event.data]
        except Unreadable as error:
            raise ResponseRefused(error.reason, str(error)) from error


async def last_message(reply: Reply) -> bytes:
    """The answer of a reply for which nothing else matters. Raises ConnectionBroken and ResponseRefused."""
    if not reply.is_stream:
        return await reply.body()
    last = b""
    while (some := await reply.messages()) is not None:
        last = some[-1] if some else last
    return last


class GatewayHttp:
    """HTTP to one endpoint; connections are kept for a while. `find` is asked again when nobody is at the known address."""

    def __init__(self, door: Door, find: FindDoor) -> None:
        self.door = door
        self._find = find
        self._pool = HttpPool(self._dial)

    async def reap(self) -> None:
        """Close idle connections in time, for ever."""
        await self._pool.reap()

    async def aclose(self) -> None:
        """Close what is idle."""
        await self._pool.aclose()

    @asynccontextmanager
    async def exchange(
        self, method: str, headers: Mapping[str, str], body: bytes = b"", begin: Callable[[], None] | None = None
    ) -> AsyncGenerator[Reply]:
        """One request and its reply; leaving before its end closes the connection, which withdraws a request of 2026-07-28.

        `begin` is called when the first byte is about to leave. Raises DialFailed where nothing was sent, ConnectionBroken
        and ResponseRefused.
        """
        connection = await self._pool.take()
        try:
            lines = [f"{method} {self.door.path} HTTP/1.1"]
            lines += [f"{name}: {value}" for name, value in {**self.door.headers, **headers}.items()]
            if method == "POST":
                lines.append(f"content-length: {len(body)}")
            if begin is not None:
                begin()
            head = await connection.ask("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            yield Reply(head, connection)
        finally:
            await self._pool.give_back(connection)

    async def _dial(self) -> anyio.abc.ByteStream:
        try:
            return await _connect(self.door)
        except DialFailed:
            try:
                door = await anyio.to_thread.run_sync(self._find)
            except CliError as error:
                raise DialFailed("connect_failed", str(error)) from error
            if door == self.door:
                raise
            self.door = door
        return await _connect(self.door)


async def _connect(door: Door) -> anyio.abc.ByteStream:
    """A connection to the gateway. Raises DialFailed; its cause is `permission` where that is what is wanting."""
    if not isinstance(door.where, Path):
        context = client_context(TlsTrust()) if door.where.origin.scheme == "https" else None
        return await Dialer(door.where.origin, context).dial()
    try:
        with anyio.fail_after(CONNECT_SECONDS):
            return await anyio.connect_unix(door.where)
    except TimeoutError as error:
        raise DialFailed("connect_failed", f"the gateway {door} does not accept connections") from error
    except OSError as error:
        cause = "permission" if error.errno in {errno.EACCES, errno.EPERM} else "connect_failed"
        raise DialFailed(cause, f"the gateway {door} cannot be reached: {error.strerror or error}") from error


__all__ = ["ConnectionBroken", "DialFailed", "GatewayHttp", "Reply", "ResponseRefused"]

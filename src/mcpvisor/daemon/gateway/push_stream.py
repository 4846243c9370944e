"""Owns the GET stream of one session: what its client is told unasked, in order, and taken up again where it broke."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.streamable_http import GET_STREAM_KEY, REQUEST_STREAM_BUFFER_SIZE, EventMessage
from mcp_types import DEFAULT_NEGOTIATED_VERSION, JSONRPCNotification
from starlette.requests import Request
from starlette.types import Send

from mcpvisor.daemon.gateway.event_memory import EventMemory, Place
from mcpvisor.daemon.gateway.event_stream import Line, pinging, primer, until_gone
from mcpvisor.daemon.gateway.frames import frame
from mcpvisor.daemon.gateway.replies import refuse

JsonObject = dict[str, Any]
Incoming = MemoryObjectReceiveStream[EventMessage]
Streams = dict[int | str, tuple[MemoryObjectSendStream[EventMessage], Incoming]]

Unsent = Callable[[str, JsonObject | None], bool]
"""Whether a notification that was not sent is told later in some other way."""


class PushStream:
    """The GET stream of a session, of which there is one at a time. `streams` are all that the SDK's transport has open."""

    def __init__(
        self, streams: Streams, clean_up: Callable[[str], Awaitable[None]], session_id: str, memory: EventMemory
    ) -> None:
        self.on_unsent: Unsent = lambda _, __: False
        """Told of each notification that a stream has taken and not sent before its client was gone."""
        self.on_gap: Callable[[], None] = lambda: None
        """Told that the client has missed nobody knows what on its stream."""
        self._streams = streams
        self._clean_up = clean_up
        self._session_id = session_id
        self._memory = memory
        self._changed = anyio.Event()

    async def listened(self) -> None:
        """Return once the client has a GET stream."""
        while GET_STREAM_KEY not in self._streams:
            await self._changed.wait()

    async def send(self, method: str, params: JsonObject | None) -> None:
        """Send a notification on the client's GET stream; waits until the client has one, and room in it."""
        message = JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        if params is None:
            message = JSONRPCNotification(jsonrpc="2.0", method=method)
        while True:
            streams = self._streams.get(GET_STREAM_KEY)
            if streams is None:
                await self._changed.wait()
                continue
            try:
                await streams[0].send(EventMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                if self._streams.get(GET_STREAM_KEY) is streams:  # else another one is in its place already
                    del self._streams[GET_STREAM_KEY]
            else:
                return

    @property
    def is_open(self) -> bool:
        """Whether the client reads its GET stream."""
        return GET_STREAM_KEY in self._streams

    async def end(self) -> None:
        """End the client's GET stream in good order, if there is one."""
        await self._clean_up(GET_STREAM_KEY)

    async def take(self, place: Place | None, request: Request, send: Send, *, has_gap: bool) -> None:
        """Begin a stream of notifications; with the id of one it goes on after that, in place of one that seems to be open."""
        track = self._memory.push
        is_known = place is not None and self._memory.find(place) is track
        open_now = self._streams.get(GET_STREAM_KEY)
        if open_now is not None and not is_known:
            await refuse(send, 409, "Conflict: Only one SSE stream is allowed per session")
            return
        if open_now is not None:
            del self._streams[GET_STREAM_KEY]
            self._hand_back(open_now[1])
            for end in open_now:  # at once, so that of two who come together each finds the other
                end.close()
        missed: list[tuple[int, bytes]] = []
        begin = track.last
        if place is not None and is_known:
            begin = place.number
            missed, has_gap = track.after(begin)
        if has_gap:
            self.on_gap()
        streams = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._streams[GET_STREAM_KEY] = streams
        self._changed.set()
        self._changed = anyio.Event()
        line = Line(send, self._session_id)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(until_gone, request.receive, tasks.cancel_scope)
                await line.begin()
                await line.write(primer(track, begin, version_of(request)))
                for _, data in missed:
                    await line.write(data)
                await self._carry(streams[1], line)
                tasks.cancel_scope.cancel()
        finally:
            self._hand_back(streams[1])
            if self._streams.get(GET_STREAM_KEY) is streams:
                await self._clean_up(GET_STREAM_KEY)

    async def _carry(self, stream: Incoming, line: Line) -> None:
        """Send and keep what is pushed, until the stream is ended or its client is gone."""
        track = self._memory.push
        while line.is_open:
            pending = await pinging(line, partial(next_of, stream))
            if pending is None:
                await line.end()
                return
            data = track.record(frame(pending.message))
            number = track.last
            try:
                is_read = await line.write(data)
                await anyio.lowlevel.checkpoint()  # that the client is gone is no error of `send`
            except anyio.get_cancelled_exc_class():
                self._take_back(pending, number)
                raise
            if not is_read:
                self._take_back(pending, number)

    def _take_back(self, message: EventMessage, number: int) -> None:
        """What was being sent when its client was gone is merged again where that can be; else it stays kept."""
        one = message.message
        if isinstance(one, JSONRPCNotification) and self.on_unsent(one.method, one.params):
            self._memory.push.take_back(number)

    def _hand_back(self, stream: Incoming) -> None:
        """Tell of what has not been sent, or keep it; nothing is left where the stream was closed from our side."""
        with suppress(anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                one = stream.receive_nowait().message
                if not isinstance(one, JSONRPCNotification) or not self.on_unsent(one.method, one.params):
                    self._memory.push.record(frame(one))


async def next_of(stream: Incoming) -> EventMessage | None:
    """What comes next on a stream; None where it was ended from our side."""
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.ClosedResourceError):
        return None


def version_of(request: Request) -> str:
    """The protocol version that a request names; the oldest that has sessions where it names none."""
    return request.headers.get("mcp-protocol-version", DEFAULT_NEGOTIATED_VERSION)

"""Owns the transport of one session with a client: how its POSTs are answered, and the streams of answers taken up again.

It stands on the SDK's transport, of which it uses the streams and the two methods that answer POST and GET; the contract test
of `sdk_server` fails when these move. Both are answered here where the request is plain; whatever is odd about it goes to the
SDK, so that every refusal is the SDK's own.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    REQUEST_STREAM_BUFFER_SIZE,
    EventMessage,
    StreamableHTTPServerTransport,
    check_accept_headers,
)
from mcp_types import (
    JSONRPCNotification,
    JSONRPCRequest,
)
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.gateway.event_memory import EventMemory, Place, Shelf, Track, read_place
from mcpvisor.daemon.gateway.event_stream import PRIMED_SINCE, Line, follow, is_preferred, pinging, primer, until_gone
from mcpvisor.daemon.gateway.frames import (
    SESSION_ENDED,
    ended,
    event,
    forgotten,
    frame,
    is_answer,
)
from mcpvisor.daemon.gateway.guard import MESSAGE_SCOPE
from mcpvisor.daemon.gateway.malformed import message_fault
from mcpvisor.daemon.gateway.push_stream import Incoming, PushStream, next_of, version_of
from mcpvisor.daemon.gateway.replies import refuse

# The SDK writes session ids at INFO; whoever has one can speak in that session.
logging.getLogger("mcp.server.streamable_http").setLevel(logging.WARNING)

Context = ServerRequestContext[Any, Any]
SESSION_HEADER: Final = "mcp-session-id"
LAST_EVENT_HEADER: Final = "last-event-id"

JSON_WITHIN: Final = 5.0
"""Seconds in which an answer that nothing precedes is sent as JSON; later ones become an event stream with pings."""


class _Nothing(Exception):
    """What is read in place of a message."""


class _Paused(EventMessage):
    """The server has ended its stream, and is asked for the rest of it."""


_PAUSED: Final = _Paused(JSONRPCNotification(jsonrpc="2.0", method="mcpvisor/paused"))


class SessionTransport(StreamableHTTPServerTransport):
    """The SDK's transport of one session, with answers as JSON where an event stream is not needed.

    A stream that broke is taken up again with the id of an event of it. Whoever has left an answer's stream has not withdrawn
    the request: what comes on it meanwhile is kept.
    """

    def __init__(self, session_id: str, *, idle_timeout: float, shelf: Shelf | None = None) -> None:
        super().__init__(session_id, idle_timeout=None if math.isinf(idle_timeout) else idle_timeout)
        self._is_letting_go = False
        self.memory = EventMemory(shelf if shelf is not None else Shelf())
        self.pushing = PushStream(self._request_streams, self._clean_up_memory_streams, session_id, self.memory)
        """The client's GET stream."""
        self._tracks: dict[str, Track] = {}
        """The streams of requests in flight, where an event stream was begun."""
        self._paused: set[str] = set()
        """Whose streams were ended when their servers ended theirs: their clients are to come back."""
        self._pausable: set[str] = set()
        self.end_cause = SESSION_ENDED
        """Why the session ends, for the requests that are still in flight then."""

    def pause(self, ctx: Context) -> None:
        """The server of a request has ended the stream of its answer: so does a client's that has asked for a stream."""
        key = str(ctx.request_id)
        if key in self._pausable:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._request_streams[key][0].send_nowait(_PAUSED)

    async def is_read(self, ctx: Context) -> bool:
        """Whether the client still reads the stream of a request of its own, or was told to come back for it."""
        key = str(ctx.request_id)
        if key not in self._request_streams or ctx.request is None:
            return False
        track = self._tracks.get(key)
        if track is not None and track.is_taken_up:
            return track.reader is not None
        return key in self._paused or not await _is_gone(ctx.request)

    async def _handle_post_request(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        await self._take_post(scope, request, receive, send)
        await self._let_go()

    async def _take_post(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        message = self._plain_request(scope, request)
        if MESSAGE_SCOPE in scope and (fault := message_fault(scope[MESSAGE_SCOPE])):
            await refuse(send, 400, fault)
        elif message is None:
            await super()._handle_post_request(scope, request, receive, send)
        elif str(message.id) in self._request_streams or message.id == GET_STREAM_KEY:
            await refuse(send, 400, "a request with this id is in flight already")
        else:
            await self._answer(message, request, send)

    async def _let_go(self) -> None:
        """Make the SDK's loop drop the message it read last, which it would hold for as long as the client is silent.

        An exception in place of a message is logged at DEBUG, and that is all. One at a time is enough: the loop reads it
        after whatever was sent to it before.
        """
        writer = self._read_stream_writer
        if writer is None or self._is_letting_go:
            return
        self._is_letting_go = True
        try:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session is over, and its loop too
                await writer.send(_Nothing())
        finally:
            self._is_letting_go = False

    def _plain_request(self, scope: Scope, request: Request) -> JSONRPCRequest | None:
        """The request in a POST about which nothing is odd; None leaves it to the SDK."""
        raw = scope.get(MESSAGE_SCOPE)
        if not isinstance(raw, dict) or "method" not in raw or "id" not in raw:
            return None
        session_id = request.headers.get(SESSION_HEADER)
        is_session_right = session_id == self.mcp_session_id or (session_id is None and raw["method"] == "initialize")
        if not is_session_right or check_accept_headers(request) != (True, True) or not self._check_content_type(request):
            return None
        try:
            return JSONRPCRequest.model_validate(raw)
        except ValidationError:
            return None

    async def _answer(self, message: JSONRPCRequest, request: Request, send: Send) -> None:
        key = str(message.id)
        streams = anyio.create_memory_object_stream[EventMessage](REQUEST_STREAM_BUFFER_SIZE)
        self._request_streams[key] = streams
        version = version_of(request)
        begun: tuple[Track, Line] | None = None
        try:
            assert self._read_stream_writer is not None  # set by connect(), which a session is in before it is found
            begun = await self._begin_early(message, request, send, version)
            await self._read_stream_writer.send(self._create_session_message(message, request, key, version))
            first = None
            if begun is None:
                with anyio.move_on_after(JSON_WITHIN):
                    first = await streams[1].receive()
            if first is not None and is_answer(first.message):
                await self._send_json(frame(first.message), send)
                return
            if begun is None:
                begun = await self._begin(message, send, version)
            await self._bring(message, first, streams[1], *begun)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            last = ended(message.id, self.end_cause)
            await (self._send_json(frame(last), send) if begun is None else begun[1].end(event(last)))
        finally:
            self._tracks.pop(key, None)
            self._pausable.discard(key)
            self._paused.discard(key)
            await self._clean_up_memory_streams(key)

    async def _begin_early(
        self, message: JSONRPCRequest, request: Request, send: Send, version: str
    ) -> tuple[Track, Line] | None:
        """An event stream for a client that names those before JSON; None where the answer decides."""
        if message.method == "initialize" or not is_preferred(request.headers.get("accept", "")):
            return None
        if version >= PRIMED_SINCE:
            self._pausable.add(str(message.id))
        return await self._begin(message, send, version)

    async def _begin(self, message: JSONRPCRequest, send: Send, version: str) -> tuple[Track, Line]:
        track, line = self.memory.open(message.id), Line(send, self.mcp_session_id or "")
        self._tracks[str(message.id)] = track
        await line.begin()
        await line.write(primer(track, 0, version))
        return track, line

    async def _bring(
        self, message: JSONRPCRequest, first: EventMessage | None, stream: Incoming, track: Track, line: Line
    ) -> None:
        """Send and keep what is said, until the answer or until the stream is ended from our side, which is then said."""
        key, pending = str(message.id), first
        try:
            while pending is None or not is_answer(pending.message):
                if isinstance(pending, _Paused):
                    self._paused.add(key)
                    await line.end()
                elif pending is not None:
                    await self._say(track.record(frame(pending.message)), track, line)
                pending = None
                pending = await pinging(line, partial(next_of, stream))
                if pending is None:
                    break
        finally:
            answer = pending.message if pending is not None and is_answer(pending.message) else None
            last = track.record(frame(answer or ended(message.id, self.end_cause)), is_last=True)
            self.memory.ended(track)
        if not track.is_taken_up:
            await line.end(last)

    @staticmethod
    async def _say(data: bytes, track: Track, line: Line) -> None:
        if track.is_taken_up:
            await line.end()
        else:
            await line.write(data)

    async def _send_json(self, body: bytes, send: Send) -> None:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (SESSION_HEADER.encode(), (self.mcp_session_id or "").encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _handle_get_request(self, request: Request, send: Send) -> None:
        is_plain = check_accept_headers(request)[1] and request.headers.get(SESSION_HEADER) == self.mcp_session_id
        if not is_plain:
            await super()._handle_get_request(request, send)
            return
        event_id = request.headers.get(LAST_EVENT_HEADER)
        place = read_place(event_id) if event_id else None
        if place is not None and not place.is_push:
            await self._take_up(place, request, send)
        else:
            await self.pushing.take(place, request, send, has_gap=bool(event_id))

    async def _take_up(self, place: Place, request: Request, send: Send) -> None:
        """Go on with the stream of an answer; one that is not kept, or another's, ends with an error for its request."""
        track = self.memory.find(place)
        if track is None and (place.request is None or str(place.request) in self._request_streams):
            await refuse(send, 400, "this Last-Event-ID is not known any more")
            return
        line = Line(send, self.mcp_session_id or "")
        await line.begin()
        lost = event(forgotten(place.request))
        if track is None:
            await line.end(lost)
            return
        if track.is_over and place.number == track.last:  # the answer is what it has received last
            await line.end()
            return
        await line.write(primer(track, place.number, version_of(request)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(until_gone, request.receive, tasks.cancel_scope)
            await follow(track, place.number, line, otherwise=lost)
            tasks.cancel_scope.cancel()


async def _is_gone(request: Request) -> bool:
    """Whether the connection of a request is closed, as far as is known already."""
    with anyio.CancelScope() as scope:
        scope.cancel()  # nothing is waited for
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return True
    return False

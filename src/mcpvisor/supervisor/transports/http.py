"""Owns the Streamable HTTP wire: one session, each request a POST of its own, and the push stream beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.open_calls import OpenCall
from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.transports.address import Address
from mcpvisor.supervisor.transports.answer_stream import AnswerStream
from mcpvisor.supervisor.transports.endpoint import Endpoint, Response
from mcpvisor.supervisor.transports.eventstream import StreamEvent
from mcpvisor.supervisor.transports.exchange import AckSink, JsonObject, LogSink, Pending, ProgressSink, WireHooks
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_memory import HttpMemory
from mcpvisor.supervisor.transports.http_outcome import (
    Meaning,
    Verdict,
    asks_for_session,
    is_session_error,
    judge,
    session_lost,
)
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.http_response import ResponseRefused
from mcpvisor.supervisor.transports.http_session import HttpSession
from mcpvisor.supervisor.transports.posting import NO_HEADERS, NOTE_SECONDS, PostingWire, reply_of, written
from mcpvisor.supervisor.transports.push import PushState, PushStream
from mcpvisor.supervisor.transports.wire import LINGERING, WireEnd

HTTP_OK: Final = 200

_OF_NO_SESSION: Final = frozenset({"ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list"})
"""Methods in whose answers no other session is spoken of than that with the server; all that a probe asks for is among them."""

LATE_SECONDS: Final = 1.0
"""How long what was sent on the push stream before an answer may come after it."""

DRAIN_SECONDS: Final = 1.0
"""How long a stream that has brought its answer may take to end, before its connection is closed instead of kept."""


class HttpWire(PostingWire):
    """A wire over Streamable HTTP.

    When the session is lost the wire ends for new requests (`end`, `ended`); those in flight have answers of their own to
    come and end by themselves. `run` returns once the last of them has; cancelling it fails what is left.
    """

    kind = "http"

    def __init__(
        self, hooks: WireHooks, endpoint: Endpoint, pool: HttpPool, *, max_message: int, memory: HttpMemory | None = None
    ) -> None:
        super().__init__(hooks, endpoint, pool, max_message=max_message)
        self._exchange.left.late = LATE_SECONDS
        self._memory = memory or HttpMemory()
        self._session = HttpSession(endpoint, self._memory)
        self._is_modern = False
        self._settled = anyio.Event()
        self._empty = anyio.Event()
        self.push_stream = PushStream(self, limit=max_message)

    @property
    def push(self) -> PushState:
        """How the push stream stands; `none` in the modern era, where there is no such thing."""
        return "none" if self._is_modern else self.push_stream.state

    @property
    def push_trouble(self) -> str:
        """See `Wire.push_trouble`; a server that refuses the stream in good order has none to offer, which is no trouble."""
        return f"push channel: {self.push_reason}" if self.push == "retrying" else ""

    async def push_changed(self) -> None:
        """See `Wire.push_changed`."""
        await self.push_stream.changed.wait()

    @property
    def push_reason(self) -> str:
        """Why the push stream stands so, in words."""
        return self.push_stream.reason

    @property
    def push_next_at(self) -> float | None:
        """When the push stream is asked for again, in monotonic seconds."""
        return None if self._is_modern else self.push_stream.next_at

    @property
    def address(self) -> Address:
        """Where requests go now: redirects have been followed."""
        return self._endpoint.address

    async def request(
        self,
        method: str,
        params: JsonObject | None,
        *,
        on_progress: ProgressSink | None = None,
        on_log: LogSink | None = None,
        on_ack: AckSink | None = None,
        call: OpenCall | None = None,
        headers: Mapping[str, str] | None = None,
        cancellable: bool = True,
    ) -> JsonObject:
        if method == "initialize":
            await self._session.end_owed()
        session = self._session.id
        try:
            result = await super().request(
                method,
                params,
                on_progress=on_progress,
                on_log=on_log,
                on_ack=on_ack,
                call=call,
                headers=headers,
                cancellable=cancellable,
            )
            if method == "initialize":
                self._session.speaks(result.get("protocolVersion"))
            return result  # noqa: TRY300 - an else branch would only move it
        except RequestFailed as failure:
            if session is not None and failure.outcome is Outcome.PEER_ERROR and asks_for_session(failure.message):
                self._weigh(failure, method, session)
            raise
        finally:
            if self.end is not None and not self.in_flight:
                self._empty.set()

    def negotiated(self, protocol_version: str, *, modern: bool) -> None:
        self._is_modern = modern
        self._session.negotiated(protocol_version, modern=modern)
        self._settled.set()

    def finish(self, end: WireEnd) -> None:
        first = self.end or end
        self.end = first
        self.ended.set()
        if end.cause not in LINGERING:  # each request in flight has an answer of its own; closing the wire fails them
            self._exchange.fail_all(lambda _: self._maybe_executed(first))
            self._exchange.intake.close()
        if not self.in_flight:
            self._empty.set()

    async def lets_sessions_end(self) -> bool:
        """Whether the server takes the end of a session, which it is asked without naming one."""
        return await self._session.can_be_ended()

    async def close(self) -> None:
        """End the session at the server, within 2 s, unless the server has lost it itself."""
        if self.end is None or self.end.cause != "session_lost":
            await self._session.end()

    # What goes out

    async def _ask(self, pending: Pending, body: bytes, headers: Mapping[str, str]) -> None:
        session, data = self._session.id, b""
        stream = AnswerStream(self, pending, session, limit=self._max_message)
        async with await self._post(body, headers, pending.method) as response:
            is_success = 200 <= response.head.status < 300
            if is_success and not self._is_modern:
                self._session.named(response.head.headers, by_handshake=pending.method == "initialize")
            is_stream = is_success and response.head.content_type == "text/event-stream"
            if is_stream:
                await stream.read(response)
            else:
                data = await (response.body(self._max_message) if is_success else response.error_body())
        if is_stream:
            await stream.finish(resumable=not self._is_modern)
            return
        verdict = judge(reply_of(response, data, pending, session_sent=session is not None))
        self._note_loss(verdict, session)
        self._settle(verdict)
        await self._exchange.reader.ahead(data)
        self._take_answer(data, pending)
        if not pending.done.is_set():
            text = f"the answer to {pending.method} holds no response to it"
            raise RequestFailed(Outcome.MAYBE_EXECUTED, Meaning.NO_ANSWER.value, text)

    # What the stream of an answer needs

    async def answer_events(
        self, events: list[StreamEvent], pace: Pace, pending: Pending, session: str | None, status: int
    ) -> None:
        """Sort what came within the answer to `pending`. Raises RequestFailed where it says that the session is gone."""

        def take(event: StreamEvent) -> None:
            if session is not None and is_session_error(event.data):
                self._note_loss(Verdict(Meaning.SESSION_LOST, session_lost(status)), session)
                raise session_lost(status)
            if event.is_message:
                self._take_answer(event.data, pending)

        await self._take_events(events, pace, take)

    def keep(self, response: Response) -> None:
        """A stream has brought its answer: it is read to its end, so that its connection can be used again."""
        if self._tasks is not None:
            response.detach()
            self._tasks.start_soon(self._drain, response)

    @staticmethod
    async def _drain(response: Response) -> None:
        """Read a stream to its end, so that its connection can be used again."""
        try:
            with anyio.move_on_after(DRAIN_SECONDS):
                while await response.chunk():
                    pass
        except (ConnectionBroken, ResponseRefused):
            pass  # the answer is in; the connection is closed for it
        finally:
            await response.release()

    async def _cancel(self, pending: Pending) -> None:
        # In the modern era the end of the POST, which has just happened, is the cancellation.
        if self._settled.is_set() and not self._is_modern:
            await self.notify("notifications/cancelled", {"requestId": pending.id, "reason": "the caller has withdrawn it"})

    async def _send(self, message: JsonObject) -> None:
        session = self._session.id
        try:
            with anyio.move_on_after(NOTE_SECONDS), self._faults(None):
                async with await self._post(written(message), NO_HEADERS, None) as response:
                    # Some servers answer even a notification with an event stream, which need not end.
                    is_stream = response.head.content_type == "text/event-stream"
                    data = b"" if is_stream else await response.error_body()
                self._note_loss(judge(reply_of(response, data, None, session_sent=session is not None)), session)
        except RequestFailed:
            return  # what went wrong is marked already, and a notification has nobody to tell

    # What comes in

    def _note_loss(self, verdict: Verdict, session: str | None) -> None:
        # An answer to an id that was replaced meanwhile says nothing about the present one.
        if verdict.meaning is Meaning.SESSION_LOST and session == self._session.id:
            detail = verdict.failure.message if verdict.failure else "the session is gone"
            self.finish(WireEnd(cause="session_lost", detail=detail))

    def _weigh(self, failure: RequestFailed, method: str, session: str) -> None:
        """Judge an error under the id of a request, whose words are those of a lost session. Raises RequestFailed if it is one.

        A tool may well speak of sessions of its own, so that such an error only makes a probe necessary.
        """
        if method not in _OF_NO_SESSION:
            self.doubt()
            return
        data = failure.data if isinstance(failure.data, dict) else {}
        lost = session_lost(data.get("http_status", HTTP_OK))
        self._note_loss(Verdict(Meaning.SESSION_LOST, lost), session)
        raise lost from failure

    async def _pump(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pool.reap)
            async with anyio.create_task_group() as pushing:
                pushing.start_soon(self._run_push)
                await self.ended.wait()
                pushing.cancel_scope.cancel()
            await self._empty.wait()
            tasks.cancel_scope.cancel()

    async def _run_push(self) -> None:
        await self._settled.wait()
        if not self._is_modern:
            await self.push_stream.run()

    # What the push stream needs

    async def open_push(self, headers: Mapping[str, str]) -> Response:
        """Send the GET of the push stream, or (by an event id) of one that was cut."""
        self._memory.given(*headers.values())
        return await self._endpoint.open("GET", b"", headers, repeatable=True)

    async def push_events(self, events: list[StreamEvent], pace: Pace) -> None:
        """Sort what came on the push stream; keep-alives are skipped."""
        await self._take_events(events, pace, self._take_pushed)

    def _take_pushed(self, event: StreamEvent) -> None:
        if event.is_message:
            self._received(event.data, unasked=True)

    def push_refused(self, reason: str, detail: str) -> None:
        """Tell that the push stream was cut."""
        self._hooks.refused(reason, detail)

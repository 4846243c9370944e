"""Owns the event stream that is to bring one answer: how it is read, and taken up again where it was cut before that."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import anyio

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.transports.codec import Unreadable
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.endpoint import Response
from mcpvisor.supervisor.transports.eventstream import EventStream, StreamEvent, in_steps
from mcpvisor.supervisor.transports.exchange import Pending
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_outcome import PushAnswer, judge_push, status_line
from mcpvisor.supervisor.transports.http_response import ResponseRefused
from mcpvisor.supervisor.transports.push import PushPacing

MAX_BARREN: Final = 5
"""Tries in a row that bring no event, after which the answer is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a stream ended before its answer.

    `last_id` is the event to go on from, empty where the server gave none. `detail` says how the stream ended, `in_order`
    whether the server did it in good order, `lived` for how many seconds it was open, `delivered` whether any event came on it.
    """

    last_id: str = ""
    retry_ms: int | None = None
    detail: str = ""
    in_order: bool = False
    lived: float = 0.0
    delivered: bool = False


class Resumption:
    """The tries to get one answer whose stream was cut. Pure.

    A server that gives ids may end its streams on purpose, as often as it likes: only the caller's own time ends that. It gets
    the wait that it asks for by `retry:`; where it asks for none, or brings nothing, the waits grow.
    """

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._pacing = PushPacing(jitter)
        self._barren = 0

    def wait_after(self, cut: Cut) -> float | None:
        """Seconds to wait before the next try; None where there is none."""
        if not cut.last_id or not cut.last_id.isprintable():
            return None
        self._barren = 0 if cut.delivered else self._barren + 1
        if self._barren > MAX_BARREN:
            return None
        return self._pacing.after(cut.lived, retry_ms=cut.retry_ms, carried=cut.delivered)


class AnswerHost(Protocol):
    """What the stream needs of its wire."""

    def open_push(self, headers: Mapping[str, str]) -> Awaitable[Response]:
        """Send the GET that takes a stream up again."""
        ...

    def pace(self) -> Pace:
        """For what is read of its server."""
        ...

    def answer_events(
        self, events: list[StreamEvent], pace: Pace, pending: Pending, session: str | None, status: int
    ) -> Awaitable[None]:
        """Events came in one piece, within the answer to `pending`. Raises RequestFailed."""
        ...

    def keep(self, response: Response) -> None:
        """The answer is in, the stream not yet at its end."""
        ...

    def doubt(self) -> None:
        """A stream broke, or cannot be taken up again."""
        ...


class AnswerStream:
    """The stream of one answer, over all its pieces; `session` is the id that the request was sent with."""

    def __init__(self, host: AnswerHost, pending: Pending, session: str | None, *, limit: int) -> None:
        self._host = host
        self._pending = pending
        self._session = session
        self._limit = limit
        self._cut = Cut()

    async def read(self, response: Response) -> None:
        """Read until the answer is in, or as far as the stream goes. Raises RequestFailed and ResponseRefused."""
        stream, opened_at, delivered = EventStream(limit=self._limit), anyio.current_time(), False
        pace = self._host.pace()
        detail, in_order = "the server ended the stream", True
        while not self._pending.done.is_set():
            try:
                chunk = await response.chunk()
            except ConnectionBroken as broken:
                self._host.doubt()
                chunk, detail, in_order = b"", str(broken), False
            if not chunk:
                lived = anyio.current_time() - opened_at
                self._cut = replace(self._cut, detail=detail, in_order=in_order, lived=lived, delivered=delivered)
                return
            pace.begin()
            for part in in_steps(chunk):
                try:
                    events = stream.feed(part)
                except Unreadable as error:
                    raise ResponseRefused(error.reason, str(error)) from error
                delivered = delivered or bool(events)
                self._learn(stream)
                await self._host.answer_events(events, pace, self._pending, self._session, response.head.status)
        self._host.keep(response)

    def _learn(self, stream: EventStream) -> None:
        """Keep where to go on from and when; a stream that says nothing of it goes on by what the one before has said."""
        if stream.last_id or stream.retry_ms is not None:
            retry_ms = self._cut.retry_ms if stream.retry_ms is None else stream.retry_ms
            self._cut = replace(self._cut, last_id=stream.last_id or self._cut.last_id, retry_ms=retry_ms)

    async def finish(self, *, resumable: bool) -> None:
        """Take the stream up again, where the protocol and the server let us, until the answer is in. Raises RequestFailed."""
        resumption = Resumption()
        while not self._pending.done.is_set():
            wait = resumption.wait_after(self._cut) if resumable else None
            if wait is None:
                raise self._failed(self._cut.detail)
            if self._pending.call is not None and self._cut.in_order:
                self._pending.call.paused()
            await anyio.sleep(wait)
            await self._take_up()

    async def _take_up(self) -> None:
        """One try; raises RequestFailed where the server has nothing to go on with."""
        failed = "it cannot be taken up again"
        try:
            async with await self._host.open_push({"last-event-id": self._cut.last_id}) as response:
                head = response.head
                answer = judge_push(head.status, head.content_type)
                if answer is PushAnswer.OPEN:
                    await self.read(response)
                    return
                await response.error_body()
        except (DialFailed, ConnectionBroken, CredentialsMissing) as error:
            self._host.doubt()
            self._cut = replace(self._cut, detail=f"{failed}: {error}", in_order=False, lived=0.0, delivered=False)
            return
        detail = f"{failed}: GET was answered {status_line(head.status)}"
        if answer is not PushAnswer.RETRY:
            self._host.doubt()  # it gave an id for this very purpose: most likely the session is gone
            raise self._failed(detail)
        self._cut = replace(self._cut, detail=detail, in_order=False, lived=0.0, delivered=False)

    def _failed(self, detail: str) -> RequestFailed:
        text = f"the event stream ended without the answer to {self._pending.method}: {detail}"
        return RequestFailed(Outcome.MAYBE_EXECUTED, "stream_failed", text)

"""Owns the push stream of a legacy session: the standing GET on which a server says what nobody asked for."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Protocol

import anyio

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.transports.codec import Unreadable
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.endpoint import RedirectRefused, Response, Unsendable
from mcpvisor.supervisor.transports.eventstream import EventStream, StreamEvent, in_steps
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_outcome import PushAnswer, judge_push, parse_retry_after, status_line
from mcpvisor.supervisor.transports.http_response import ResponseRefused

PushState = Literal["opening", "open", "none", "retrying"]

ASK_AGAIN: Final = 300.0
"""Seconds before a server that has no push stream is asked again."""

FIRST_DELAY: Final = 1.0
MAX_DELAY: Final = 60.0
MIN_ASKED_DELAY: Final = 0.5
"""The shortest wait that a server's `retry:` can ask for."""

LIVED: Final = 10.0
"""Seconds after which a stream counts as one that works: the next delay is the first one again."""

HELD: Final = 2.0
"""Seconds after which a stream that is ended was in use, and not merely answered, though nothing came on it."""


class PushPacing:
    """How long to wait before the stream is opened again: 1 s, doubled up to 60 s, jittered by half."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._short = 0

    def after(self, lived: float, *, retry_ms: int | None = None, carried: bool = False) -> float:
        """The delay after a stream that lived so many seconds (0: it never opened).

        A server that says `retry:` and keeps its streams for a while, or has `carried` a message on this one, ends them on
        purpose: it gets what it asks for, within bounds. Of any other a `retry:` only makes the wait longer.
        """
        if lived >= LIVED:
            self._short = 0
        asked = min(retry_ms / 1000, MAX_DELAY) if retry_ms is not None else 0.0
        if retry_ms is not None and (carried or lived >= HELD):
            return max(asked, MIN_ASKED_DELAY)
        delay = min(FIRST_DELAY * (1 << self._short), MAX_DELAY)
        self._short = min(self._short + 1, 10)
        return max(delay * (0.5 + self._jitter() / 2), asked)


class PushHost(Protocol):
    """What the stream needs of its wire."""

    def open_push(self, headers: Mapping[str, str]) -> Awaitable[Response]:
        """Send the GET."""
        ...

    def pace(self) -> Pace:
        """For what is read of its server."""
        ...

    def push_events(self, events: list[StreamEvent], pace: Pace) -> Awaitable[None]:
        """Events came in one piece."""
        ...

    def push_refused(self, reason: str, detail: str) -> None:
        """The stream was cut for what came on it."""
        ...

    def doubt(self) -> None:
        """The stream ended, or could not be dialled."""
        ...


class PushStream:
    """Keeps the stream open, for ever: it never gives up, holds nobody up and ends nothing but itself.

    `state` says how it stands, `reason` why in words; `changed` is set, and replaced, at each change of `state`.
    """

    def __init__(self, host: PushHost, *, limit: int, pacing: PushPacing | None = None) -> None:
        self._host = host
        self._limit = limit
        self._pacing = pacing or PushPacing()
        self._last_id = ""
        self._has_been_open = False
        self.state: PushState = "opening"
        self.reason = "not asked for yet"
        self.next_at: float | None = None
        """When it is asked for again, in monotonic seconds; None while it is being asked for, or is open."""
        self.changed = anyio.Event()

    async def run(self) -> None:
        """Open the stream and open it again whenever it ends, until cancelled."""
        while True:
            if self.state != "retrying":  # while it is tried again, nothing is better than it was
                self._move("opening", "")
            try:
                delay = await self._live()
            except CredentialsMissing as missing:
                delay = max(self._again(missing.detail), min(missing.retry_after_s or 0.0, ASK_AGAIN))
            except (DialFailed, ConnectionBroken) as error:
                self._host.doubt()
                delay = self._again(str(error))
            except (ResponseRefused, Unreadable) as refused:
                self._host.push_refused(refused.reason, str(refused))
                delay = self._again(str(refused))
            except (RedirectRefused, Unsendable) as error:
                self._move("none", str(error))
                delay = ASK_AGAIN
            self.next_at = anyio.current_time() + delay
            await anyio.sleep(delay)
            self.next_at = None

    async def _live(self) -> float:
        """One stream from its GET to its end in good order; the seconds to wait then."""
        resume = {"last-event-id": self._last_id} if self._last_id.isprintable() and self._last_id else {}
        async with await self._host.open_push(resume) as response:
            head = response.head
            answer = judge_push(head.status, head.content_type)
            said = f"GET was answered {status_line(head.status)}, {head.content_type or 'no content type'}"
            if answer is PushAnswer.OPEN:
                return await self._read(response)
            await response.error_body()
        if self._has_been_open:
            self._host.doubt()  # what has stood before is refused now: most likely the session is gone
        if answer is PushAnswer.RETRY:
            asked = parse_retry_after(head.headers.get("retry-after", ""), time.time())
            return max(self._again(said), min(asked or 0.0, ASK_AGAIN))
        self._move("none", said)
        return self._pacing.after(0.0) if answer is PushAnswer.REFUSED else ASK_AGAIN

    async def _read(self, response: Response) -> float:
        self._has_been_open = True
        self._move("open", "")
        stream, opened_at, carried = EventStream(limit=self._limit), anyio.current_time(), False
        pace = self._host.pace()
        try:
            while chunk := await response.chunk():
                pace.begin()
                for part in in_steps(chunk):
                    events = stream.feed(part)
                    carried = carried or any(event.is_message for event in events)
                    await self._host.push_events(events, pace)
            detail = "the server ended the stream"
        except ConnectionBroken as broken:
            detail = str(broken)
        finally:
            self._last_id = stream.last_id or self._last_id
        self._host.doubt()
        return self._again(detail, anyio.current_time() - opened_at, stream.retry_ms, carried=carried)

    def _again(self, reason: str, lived: float = 0.0, retry_ms: int | None = None, *, carried: bool = False) -> float:
        delay = self._pacing.after(lived, retry_ms=retry_ms, carried=carried)
        self._move("retrying", reason)
        return delay

    def _move(self, state: PushState, reason: str) -> None:
        self.reason = reason
        if state != self.state:
            self.state = state
            changed, self.changed = self.changed, anyio.Event()
            changed.set()

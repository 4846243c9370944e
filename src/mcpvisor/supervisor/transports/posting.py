"""Owns what the two HTTP transports share: messages that leave as POSTs, each in the task of its caller."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.pace import Pace
from mcpvisor.supervisor.transports.ahead import LARGE
from mcpvisor.supervisor.transports.codec import encode
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.endpoint import Endpoint, RedirectRefused, Response, Unsendable
from mcpvisor.supervisor.transports.eventstream import StreamEvent
from mcpvisor.supervisor.transports.exchange import JsonObject, Pending, WireHooks
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_outcome import Reply, Verdict, is_repeatable
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.http_response import ResponseRefused
from mcpvisor.supervisor.transports.wire import Wire

NO_HEADERS: Final[Mapping[str, str]] = {}

NOTE_SECONDS: Final = 5.0
"""How long a server may take to accept a message that gets no answer; no caller waits longer for it."""

_REST_FACTOR: Final = 4.0
_LONGEST_REST: Final = 0.2
"""In a flood the reader rests several times as long as it has worked, so that other servers keep their share of the loop."""


class PostingWire(Wire):
    """A wire whose requests do not hang together: what befalls one POST ends that request only.

    It becomes suspect by what a lost session often begins with: a refused or broken connection, or the end of the push stream.
    """

    def __init__(self, hooks: WireHooks, endpoint: Endpoint, pool: HttpPool, *, max_message: int) -> None:
        super().__init__(hooks, max_message=max_message)
        self._endpoint = endpoint
        self._pool = pool
        self._max_message = max_message

    @contextmanager
    def _faults(self, method: str | None) -> Generator[None]:
        """Turn what can go wrong below into the failure of the one request that met it; `method` is None for no request.

        Once a byte of it was written, what may not run twice never counts as unsent.
        """
        was_harmless = is_repeatable(method)
        try:
            yield
        except CredentialsMissing as missing:
            raise RequestFailed(
                Outcome.NOT_SENT, missing.cause, missing.detail, retry_after_s=missing.retry_after_s
            ) from missing
        except DialFailed as failed:
            self.doubt()
            outcome = Outcome.NOT_SENT if was_harmless or not failed.was_written else Outcome.MAYBE_EXECUTED
            raise RequestFailed(outcome, failed.cause, str(failed)) from failed
        except ConnectionBroken as broken:
            self.doubt()
            raise RequestFailed(Outcome.MAYBE_EXECUTED, "stream_failed", f"{self._endpoint.address}: {broken}") from broken
        except ResponseRefused as refused:
            self._hooks.refused(refused.reason, refused.detail)
            text = f"the server's answer was refused: {refused.detail}"
            raise RequestFailed(Outcome.MAYBE_EXECUTED, "answer_refused", text) from refused
        except RedirectRefused as refused:
            outcome = Outcome.REJECTED if was_harmless else Outcome.MAYBE_EXECUTED
            raise RequestFailed(outcome, "redirect", str(refused)) from refused
        except Unsendable as error:
            raise RequestFailed(Outcome.REJECTED, "unsendable", str(error)) from error

    async def _carry(self, pending: Pending, message: JsonObject, headers: Mapping[str, str]) -> JsonObject:
        # The answer may come by another way than this POST, or the wire may be closed: either wakes this task.
        with anyio.CancelScope() as scope, self._faults(pending.method):
            pending.on_done = scope.cancel
            await self._ask(pending, written(message), headers)
        if pending.failure is not None:
            raise pending.failure
        if pending.result is None:
            raise RequestFailed(Outcome.MAYBE_EXECUTED, "stream_failed", f"no answer to {pending.method}")
        return pending.result

    @abstractmethod
    async def _ask(self, pending: Pending, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a request, and read until it is settled or there is nothing more to read. Raises RequestFailed."""

    async def _post(self, body: bytes, headers: Mapping[str, str], method: str | None) -> Response:
        return await self._endpoint.open("POST", body, headers, repeatable=is_repeatable(method))

    def pace(self) -> Pace:
        """For whoever reads a stream of this server."""
        return Pace(self._exchange.account)

    async def _take_events(self, events: list[StreamEvent], pace: Pace, take: Callable[[StreamEvent], None]) -> None:
        """Hand on what came in one piece; in a flood what is surely dropped is only counted, and the reader rests."""
        intake = self._exchange.intake
        overruns, answers = intake.overruns, self._exchange.answers
        for event in events:
            if event.data and intake.drops_unread(event.data):
                intake.dropped(1)
            else:
                if len(event.data) >= LARGE:
                    await self._exchange.reader.ahead(event.data)
                    pace.go_on()
                take(event)
            await pace.pause(rests=self._exchange.answers == answers)
        await pace.pause(rests=self._exchange.answers == answers)
        if intake.overruns > overruns:
            await anyio.sleep(min(_LONGEST_REST, pace.worked * _REST_FACTOR))
            pace.begin()

    def _settle(self, verdict: Verdict) -> None:
        """End a request by what its response means; raises RequestFailed where that is no answer."""
        if verdict.is_doubtful:
            self.doubt()
        if verdict.failure is not None:
            raise verdict.failure

    def _take_answer(self, data: bytes, pending: Pending) -> None:
        """Sort a JSON text out of the answer to `pending`, without waking the task that is reading it: this one."""
        wake, pending.on_done = pending.on_done, None
        self._received(data, pending)
        pending.on_done = wake


def written(message: JsonObject) -> bytes:
    """A message as JSON. Raises Unsendable."""
    try:
        return encode(message)
    except ValueError as error:
        raise Unsendable(str(error)) from error


def reply_of(response: Response, body: bytes, pending: Pending | None, *, session_sent: bool) -> Reply:
    """The facts about a response that its meaning depends on."""
    headers = response.head.headers
    return Reply(
        status=response.head.status,
        content_type=response.head.content_type,
        body=body,
        method=pending.method if pending else None,
        request_id=pending.id if pending else None,
        session_sent=session_sent,
        was_redirected=response.was_redirected,
        retry_after=headers.get("retry-after", ""),
        www_authenticate=headers.get("www-authenticate", ""),
        now=time.time(),
    )

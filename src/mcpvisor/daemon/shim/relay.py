"""Owns the way of each line: the client's to the gateway in the era it speaks, the gateway's answers back, failures told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio
import anyio.abc

from mcpvisor.daemon.shim.gateway_http import ConnectionBroken, DialFailed, GatewayHttp, Reply, ResponseRefused
from mcpvisor.daemon.shim.headers import BOTH, VERSION_HEADER, modern_headers
from mcpvisor.daemon.shim.messages import (
    INVALID_REQUEST,
    Answer,
    Notification,
    NotTaken,
    Outline,
    Request,
    as_line,
    error_line,
    failure_line,
    outline,
    read_line,
    value_of,
)
from mcpvisor.daemon.shim.session import Opened, Session
from mcpvisor.daemon.shim.standard_io import Line, LineWriter
from mcpvisor.daemon.shim.tools import ShownParams
from mcpvisor.daemon.shim.waiting import Backoff, retry_after
from mcpvisor.supervisor.errors import Outcome, RequestFailed

T = TypeVar("T")

MAX_IN_FLIGHT: Final = 256
MAX_IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
"""Requests of the client without an answer, and the bytes of their lines; what is above is refused."""

HEADER_MISMATCH: Final = -32020

_BUSY: Final = frozenset({429, 503})
_ERRORS: Final = 400
"""Where HTTP's errors begin."""
_NOT_FOUND: Final = 404


class _TryLater(Exception):
    """The gateway did not take a message, and may a little later."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__()
        self.seconds = seconds


class _SessionLost(Exception):
    """The gateway does not know the session (any more); the message was not taken."""


@dataclass(slots=True, eq=False)
class _InFlight:
    scope: anyio.CancelScope
    size: int
    is_begun: bool = False
    """Whether bytes of it may have left."""
    is_withdrawn: bool = False
    """Whether the client does not want the answer any more."""

    def begin(self) -> None:
        self.is_begun = True


class Relay:
    """One client's conversation. Nothing is sent twice that may have run; each request is answered once, or withdrawn."""

    def __init__(self, http: GatewayHttp, out: LineWriter, server: str | None, tell: Callable[[str], None]) -> None:
        """`tell` takes messages for people."""
        self._http = http
        self._out = out
        self._server = server
        self._tell = tell
        self._in_flight: dict[tuple[bool, Any], _InFlight] = {}
        self._bytes = 0
        self._params = ShownParams(http)
        self.session = Session(http, out, tell)
        self.on_opened: Callable[[], object] = lambda: None
        """Called when the client is ready for what comes unasked."""
        self._version: dict[str, str] = {}
        """The header with the revision that a client without a session speaks."""

    async def run(self, lines: AsyncIterator[Line]) -> None:
        """Carry lines until there are no more, and until each request that came is answered."""
        async with anyio.create_task_group() as tasks:
            async for line in lines:
                try:
                    message = read_line(line)
                except NotTaken as refusal:
                    await self._out.write(refusal.line + b"\n")
                    continue
                await self._take(message, tasks)

    async def _take(self, message: Request | Notification | Answer, tasks: anyio.abc.TaskGroup) -> None:
        """Begin to carry a message. Only requests are carried side by side: order means something for all others."""
        if isinstance(message, Request):
            if message.method == "initialize" and self.session.opened is None:
                await self._open(message)
            elif self._admits(message):
                tasks.start_soon(self._carry, message)
            else:
                await self._out.write(failure_line(message, self._server, _refused(message, self._in_flight)))
        elif isinstance(message, Notification):
            await self._notify(message)
        else:
            await self._post(message.line)

    def _admits(self, request: Request) -> bool:
        """Count a request as in flight from here on; False where there is no room, or its id is in use."""
        size = len(request.line)
        is_over = len(self._in_flight) >= MAX_IN_FLIGHT or self._bytes + size > MAX_IN_FLIGHT_BYTES
        if is_over or request.key in self._in_flight:
            return False
        self._in_flight[request.key] = _InFlight(anyio.CancelScope(), size)
        self._bytes += size
        return True

    # Requests

    async def _carry(self, request: Request) -> None:
        entry = self._in_flight[request.key]
        try:
            with entry.scope:
                await self._answer(request, entry)
        finally:
            del self._in_flight[request.key]
            self._bytes -= entry.size

    async def _answer(self, request: Request, entry: _InFlight) -> None:
        """Ask until there is an answer, or none to be had, and write it."""
        try:
            line = await self._until_taken(lambda: self._ask(request, entry))
        except RequestFailed as failure:
            line = failure_line(request, self._server, failure)
        if line is not None and not entry.is_withdrawn:
            await self._out.write(line)

    async def _ask(self, request: Request, entry: _InFlight) -> bytes | None:
        """Send a request once, pass on what comes before its answer, and give the answer."""
        entry.is_begun = False
        opened = self.session.opened
        if opened is not None:
            self.session.note(request)
            return await self._exchange(request, opened.headers, entry, opened)
        return await self._ask_modern(request, entry)

    async def _ask_modern(self, request: Request, entry: _InFlight) -> bytes | None:
        said = modern_headers(request.method, request.params, self._params.of(request))
        self._version = {name: value for name, value in said.items() if name == VERSION_HEADER} or self._version
        answer = await self._exchange(request, {**BOTH, **said}, entry, None)
        if _error_code(answer) == HEADER_MISMATCH and await self._params.learn(request):
            said = modern_headers(request.method, request.params, self._params.of(request))
            answer = await self._exchange(request, {**BOTH, **said}, entry, None)
        if request.method == "tools/list" and answer is not None:
            self._params.take(answer)
        return answer

    async def _exchange(
        self, request: Request, headers: Mapping[str, str], entry: _InFlight, opened: Opened | None
    ) -> bytes | None:
        async with self._http.exchange("POST", headers, request.line, entry.begin) as reply:
            if reply.status >= _ERRORS:
                return await self._refusal(request, reply, opened)
            if not reply.is_stream:
                body = await reply.body()
                said = outline(body)
                if said is None or not said.is_answer or said.id != request.id:
                    raise _cut(request)
                return as_line(body)
            while (some := await reply.messages()) is not None:
                for data in some:
                    said = outline(data)
                    if said is not None and said.is_answer and said.id == request.id:
                        return as_line(data)
                    await self._pass_on(said, data, entry)
        raise _cut(request)

    async def _pass_on(self, said: Outline | None, data: bytes, entry: _InFlight) -> None:
        """Write what comes before an answer."""
        if said is None:
            self._tell("the gateway said something that is no message; it was dropped")
        elif not entry.is_withdrawn:
            await self._out.write(as_line(data))

    async def _refusal(self, request: Request, reply: Reply, opened: Opened | None) -> bytes:
        """The answer in an HTTP error. Raises _TryLater and _SessionLost, and RequestFailed where it holds no answer."""
        if reply.status in _BUSY:
            raise _TryLater(retry_after(reply.headers.get("retry-after", "")))
        body = await reply.body()
        message = value_of(body)
        error = message.get("error") if isinstance(message, dict) else None
        if isinstance(error, dict) and isinstance(message, dict):
            if reply.status == _NOT_FOUND and opened is not None and message.get("id") is None:
                raise _SessionLost
            return as_line(body) if message.get("id") is not None else error_line(request, error)
        text = error if isinstance(error, str) else f"HTTP status {reply.status}"
        raise RequestFailed(Outcome.REJECTED, "refused", f"the gateway refused it: {text}")

    # What is no request

    async def _open(self, request: Request) -> None:
        """Carry the client's `initialize`, before anything that comes after it."""

        async def once() -> bytes:
            return await self.session.open(request.line)

        try:
            answer = await self._until_taken(once)
            said = outline(answer)
            if said is None or said.id != request.id:
                raise _cut(request)
            line = as_line(answer)
        except RequestFailed as failure:
            line = failure_line(request, self._server, failure)
        await self._out.write(line)

    async def _notify(self, message: Notification) -> None:
        cancels = message.cancels
        if cancels is not None:
            entry = self._in_flight.get(cancels)
            if entry is None:
                return
            entry.is_withdrawn = True
            if self.session.opened is None or not entry.is_begun:
                entry.scope.cancel()  # closing the stream of its answer is how 2026-07-28 withdraws a request
                return
        await self._post(message.line)
        if message.method == "notifications/initialized" and self.session.opened is not None:
            self.on_opened()

    async def _post(self, line: bytes) -> None:
        """Send what gets no answer; where it cannot be sent, that is told to people alone."""

        async def once() -> None:
            opened = self.session.opened
            headers = opened.headers if opened is not None else {**BOTH, **self._version}
            async with self._http.exchange("POST", headers, line) as reply:
                if reply.status in _BUSY:
                    raise _TryLater(retry_after(reply.headers.get("retry-after", "")))
                if reply.status == _NOT_FOUND and opened is not None:
                    raise _SessionLost
                if reply.status >= _ERRORS:
                    self._tell(f"a message of the client was refused: HTTP status {reply.status}")
                await reply.body()

        try:
            await self._until_taken(once)
        except RequestFailed as failure:
            self._tell(f"a message of the client was lost: {failure.message}")

    # What becomes of a message while the gateway is away

    async def _until_taken(self, once: Callable[[], Awaitable[T]]) -> T:
        """Try again while nothing was sent, for as long as its patience lasts. Raises RequestFailed."""
        backoff = Backoff(anyio.current_time())
        while True:
            seconds: float | None = None
            opened = self.session.opened
            try:
                try:
                    return await once()
                except _SessionLost:
                    assert opened is not None  # it is only lost where there is one
                    await self._open_again(opened)
                    why = "the gateway does not keep the session"
            except _TryLater as later:
                seconds, why = later.seconds, "the gateway takes no more requests at present"
            except DialFailed as failed:
                why = str(failed)
            except ConnectionBroken as broken:
                text = f"the gateway was lost before this was answered; it may have been carried out: {broken}"
                raise RequestFailed(Outcome.MAYBE_EXECUTED, "gateway_lost", text) from broken
            except ResponseRefused as refused:
                text = f"the gateway's answer was refused: {refused}"
                raise RequestFailed(Outcome.MAYBE_EXECUTED, "answer_refused", text) from refused
            pause = backoff.next(anyio.current_time(), seconds)
            if pause is None:
                raise RequestFailed(Outcome.NOT_SENT, "gateway_away", f"not sent: {why}", retry_after_s=seconds)
            await anyio.sleep(pause)

    async def _open_again(self, lost: Opened) -> None:
        """Open the session once more; of the message that met its loss nothing was taken, whatever happens."""
        try:
            await self.session.open_again(lost)
        except (ConnectionBroken, ResponseRefused) as error:
            raise _TryLater(None) from error


def _refused(request: Request, in_flight: Mapping[tuple[bool, Any], _InFlight]) -> RequestFailed:
    if request.key in in_flight:
        return RequestFailed(Outcome.REJECTED, "id_in_use", "a request with this id is in flight already", code=INVALID_REQUEST)
    text = f"more than {MAX_IN_FLIGHT} requests, or {MAX_IN_FLIGHT_BYTES} bytes of them, are in flight"
    return RequestFailed(Outcome.REJECTED, "too_many", text)


def _cut(request: Request) -> RequestFailed:
    """A reply that has ended, in good order to HTTP, and answers nothing."""
    text = f"the gateway ended its reply to {request.method[:100]} without an answer; it may have been carried out"
    return RequestFailed(Outcome.MAYBE_EXECUTED, "gateway_lost", text)


def _error_code(line: bytes | None) -> Any:
    """The code of an answer that is an error; short ones alone are looked at, as a long one is a result."""
    if line is None or len(line) > 64 * 1024 or b'"error"' not in line:
        return None
    message = value_of(line)
    error = message.get("error") if isinstance(message, dict) else None
    return error.get("code") if isinstance(error, dict) else None

"""Owns what every wire to a server has in common: requests out, answers in, and one stated end.

A wire is our own implementation of the SDK's `Dispatcher` protocol: raw dicts both ways, one id space. How bytes travel is the
business of its subclasses, one for each transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import anyio.abc
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError

from mcpvisor.supervisor.errors import McpvisorError, Outcome, RequestFailed
from mcpvisor.supervisor.open_calls import OpenCall
from mcpvisor.supervisor.transports.exchange import (
    AckSink,
    Exchange,
    JsonObject,
    LogSink,
    PeerRefusal,
    PeerRequest,
    Pending,
    ProgressSink,
    WireHooks,
)
from mcpvisor.supervisor.transports.push import PushState

CANCEL_SECONDS: Final = 1.0
"""How long the notice of a cancellation may take to be written."""

CANCEL_WAIT: Final = 0.1
"""How long whoever ran out of time waits for that; a server that does not take it holds nobody up."""

MAX_PEER_REQUESTS: Final = 32
"""Requests of the server that are answered at one time; more are refused."""

MAX_REFUSING: Final = 64
"""Refusals that are on their way at one time; a server that asks for more than these gets no answer at all."""

MAX_LEAVING: Final = 4
"""Answers and refusals that are being sent at one time: each may be a connection of its own, which no flood shall multiply."""

REFUSALS_TOLD: Final = 1.0
"""Seconds between two reports of requests that were refused."""

LINGERING: Final = frozenset({"session_lost", "connect_failed", "auth"})
"""Ends of an HTTP wire after which requests in flight still have answers of their own coming: each has its own connection."""

REQUEST_TIMEOUT_CODE: Final = -32001
METHOD_NOT_FOUND_CODE: Final = -32601
INTERNAL_ERROR_CODE: Final = -32603


@dataclass(frozen=True, slots=True, kw_only=True)
class WireEnd:
    """Why a wire is at its end. `cause` is of a closed set, `detail` is one sentence for people.

    Causes: `process_exited`, `stdout_closed`, `session_lost`, `connect_failed`, `stream_failed`, `auth`,
    `auth_unavailable`, `tls`, `redirect`, `no_such_program`, `permission`, `bad_cwd`, `protocol`, `version_mismatch`,
    `no_answer`, `occupied`, `not_found`, `start_timeout`, `closed` (by us).
    """

    cause: str
    detail: str
    exit_code: int | None = None
    signal: int | None = None
    retry_after_s: float | None = None


class OpenFailed(McpvisorError):
    """A wire could not be opened; `end` says why, and whether a retry makes sense."""

    def __init__(self, end: WireEnd) -> None:
        super().__init__(end.detail)
        self.end = end


class Wire(ABC):
    """One wire to one server, good for one session."""

    kind: str = ""
    """`stdio`, `http` or `sse`."""

    def __init__(self, hooks: WireHooks, *, max_message: int) -> None:
        self._hooks = hooks
        self._exchange = Exchange(hooks, max_message=max_message)
        self._exchange.on_withdrawn = self._withdrawn
        self._refused_requests = 0
        self._refused_at = float("-inf")
        self._answering = 0
        self._refusing = 0
        self._answers_leaving = anyio.Semaphore(MAX_LEAVING)
        self._questions: dict[str | int, anyio.CancelScope] = {}
        """The requests of the server that are being answered, by its ids."""
        self._tasks: anyio.abc.TaskGroup | None = None
        self.ended = anyio.Event()
        """Set once, when the wire carries nothing any more."""
        self.end: WireEnd | None = None
        self.suspect = False
        """Whether something happened that makes it doubtful that the session still stands; an answer sets it back."""
        self.suspicion = anyio.Event()
        """Set, and replaced, each time the wire becomes suspect."""

    @property
    def in_flight(self) -> int:
        """Requests of ours without an answer."""
        return len(self._exchange)

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
        """Send a request and wait for its result, for as long as the caller's scope lets it.

        `params` is not changed; where `on_progress` is given its `_meta.progressToken` is set to our own. `on_log` gets the log
        messages that come within the answer, on a wire that knows; `on_ack` is for streams of notifications. `call` is the call
        that it is sent for, to which questions of the server may belong. When the caller is cancelled, so is the request,
        unless `cancellable` is false. Raises RequestFailed.
        """
        if self.end is not None:
            raise self._not_sent(self.end)
        pending = self._exchange.open(method, on_progress, on_log, on_ack, call)
        message: JsonObject = {"jsonrpc": "2.0", "id": pending.id, "method": method}
        if on_progress is not None:
            meta = (params or {}).get("_meta")
            params = {**(params or {}), "_meta": {**(meta if isinstance(meta, dict) else {}), "progressToken": pending.id}}
        if params is not None:
            message["params"] = params
        try:
            return await self._carry(pending, message, headers or {})
        except RequestFailed as failure:
            if failure.outcome is Outcome.MAYBE_EXECUTED:
                self._exchange.give_up(pending)
            raise
        except anyio.get_cancelled_exc_class():
            self._exchange.give_up(pending)
            if cancellable and not pending.done.is_set() and self._tasks is not None:
                told = anyio.Event()
                self._tasks.start_soon(self._tell_cancelled, pending, told)
                with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_WAIT):
                    await told.wait()
            raise
        finally:
            self._exchange.close(pending)

    def finish(self, end: WireEnd) -> None:
        """The wire is at its end: whatever is in flight fails now. The first reason stands."""
        if self.end is not None:
            return
        self.end = end
        self.ended.set()
        self._exchange.fail_all(lambda _: self._maybe_executed(end))

    def doubt(self) -> None:
        """Mark the wire: its session may be gone."""
        if not self.suspect:
            self.suspect = True
            suspicion, self.suspicion = self.suspicion, anyio.Event()
            suspicion.set()

    async def _tell_cancelled(self, pending: Pending, told: anyio.Event) -> None:
        with anyio.move_on_after(CANCEL_SECONDS):
            await self._cancel(pending)
        told.set()

    @property
    def push(self) -> PushState:
        """How the channel stands on which notifications come; open where they come the same way as answers."""
        return "open"

    @property
    def push_reason(self) -> str:
        """Why it stands so, in words."""
        return ""

    @property
    def push_next_at(self) -> float | None:
        """When it is asked for again, in monotonic seconds; None where that is not due."""
        return None

    @property
    def push_trouble(self) -> str:
        """What keeps the server's notifications from coming, in words; empty while nothing does, or where none can come."""
        return ""

    async def push_changed(self) -> None:
        """Return when `push_trouble` may have changed; for ever where notifications come the same way as answers."""
        await anyio.sleep_forever()

    @abstractmethod
    async def _carry(self, pending: Pending, message: JsonObject, headers: Mapping[str, str]) -> JsonObject:
        """Write a request and return its result. Raises RequestFailed."""

    @abstractmethod
    async def _cancel(self, pending: Pending) -> None:
        """Tell the server that nobody waits for the answer."""

    @abstractmethod
    async def _send(self, message: JsonObject) -> None:
        """Write a notification or an answer; one that cannot be written is dropped."""

    @abstractmethod
    async def _pump(self) -> None:
        """Read until the wire is at its end, then call `finish`."""

    def negotiated(self, protocol_version: str, *, modern: bool) -> None:  # noqa: B027 - most wires need not know
        """The handshake is done; a wire that sends the version with each request learns it here."""

    # The SDK's Dispatcher protocol; `mcpvisor.supervisor.sdk` has the contract test.

    async def run(
        self,
        on_request: OnRequest,  # noqa: ARG002 - the SDK's protocol names it; see below
        on_notify: OnNotify,  # noqa: ARG002 - as above
        on_notify_intercept: OnNotifyIntercept | None = None,  # noqa: ARG002 - as above
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Drive the receive loop until the wire ends.

        The SDK's own callbacks are not used: it would validate and sieve what we relay.
        """
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            try:
                await self._pump()
            finally:
                self.finish(WireEnd(cause="closed", detail="the wire was closed"))
                self._tasks = None
            tasks.cancel_scope.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """A request of the SDK's handshake. Raises MCPError, as its protocol demands."""
        options: CallOptions = opts or {}
        try:
            with anyio.fail_after(options.get("timeout")):
                return await self.request(
                    method,
                    dict(params) if params is not None else None,
                    headers=options.get("headers"),
                    cancellable=options.get("cancel_on_abandon", True),
                )
        except TimeoutError:
            raise MCPError(REQUEST_TIMEOUT_CODE, f"no answer to {method} in time") from None
        except RequestFailed as failure:
            raise MCPError(failure.code, failure.message, failure.data) from failure

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,  # noqa: ARG002 - as the SDK's protocol names it
    ) -> None:
        """Send a notification; one that cannot be written is dropped."""
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        await self._send(message)

    # For subclasses

    def _received(self, data: bytes, within: Pending | None = None, *, unasked: bool = False) -> None:
        """Sort one JSON text, and answer the server's requests in it in tasks of their own; see `Exchange.receive`."""
        for request in self._exchange.receive(data, within, unasked=unasked):
            if self._tasks is None:
                continue
            if self._answering >= MAX_PEER_REQUESTS:
                self._refuse_request(request, self._tasks)
                continue
            self._answering += 1
            scope = anyio.CancelScope()
            self._questions[request.id] = scope
            self._tasks.start_soon(self._answer, request, scope)

    def _withdrawn(self, peer_id: object) -> None:
        """The server does not want the answer to that request of its own any more."""
        if isinstance(peer_id, str | int) and not isinstance(peer_id, bool) and peer_id in self._questions:
            self._questions[peer_id].cancel()

    def _refuse_request(self, request: PeerRequest, tasks: anyio.abc.TaskGroup) -> None:
        """Answer a request that is one too many with an error, as far as that is not too much itself.

        Told of are the first, and then how many there were, once a second at the most.
        """
        if self._refusing < MAX_REFUSING:
            self._refusing += 1
            tasks.start_soon(self._refuse, request)
        self._refused_requests += 1
        now = anyio.current_time()
        if now - self._refused_at >= REFUSALS_TOLD:
            self._hooks.refused(
                "rate", f"more than {MAX_PEER_REQUESTS} requests of the server at one time: {self._refused_requests} refused"
            )
            self._refused_at, self._refused_requests = now, 0

    async def _refuse(self, request: PeerRequest) -> None:
        error = {"code": INTERNAL_ERROR_CODE, "message": f"more than {MAX_PEER_REQUESTS} requests at one time; ask again later"}
        try:
            async with self._answers_leaving:
                await self._send({"jsonrpc": "2.0", "id": request.id, "error": error})
        finally:
            self._refusing -= 1

    async def _answer(self, request: PeerRequest, scope: anyio.CancelScope) -> None:
        message: JsonObject = {"jsonrpc": "2.0", "id": request.id}
        try:
            try:
                with scope:
                    message["result"] = await self._hooks.answer(request.method, request.params, request.origin)
            except PeerRefusal as refusal:
                message["error"] = {"code": refusal.code, "message": refusal.message}
            finally:
                if self._questions.get(request.id) is scope:
                    del self._questions[request.id]
            if len(message) > 2:  # else it was withdrawn, and wants no answer
                async with self._answers_leaving:
                    await self._send(message)
        finally:
            self._answering -= 1

    @staticmethod
    def _not_sent(end: WireEnd) -> RequestFailed:
        return RequestFailed(Outcome.NOT_SENT, end.cause, end.detail, retry_after_s=end.retry_after_s)

    @staticmethod
    def _maybe_executed(end: WireEnd) -> RequestFailed:
        return RequestFailed(Outcome.MAYBE_EXECUTED, end.cause, end.detail, retry_after_s=end.retry_after_s)

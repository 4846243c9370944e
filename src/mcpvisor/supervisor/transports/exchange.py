"""Owns what is in flight on one wire: one id space, one table of pending requests, and where each incoming message goes.

Nothing here does I/O: a wire feeds received bytes in, and sends what it is told to send.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.open_calls import OpenCall, Origin, may_ask, may_log, origin_among, origin_within
from mcpvisor.supervisor.pace import Account
from mcpvisor.supervisor.transports.ahead import AheadReader
from mcpvisor.supervisor.transports.codec import MAX_BATCH, Unreadable
from mcpvisor.supervisor.transports.intake import Intake
from mcpvisor.supervisor.transports.left_calls import LeftCalls
from mcpvisor.supervisor.transports.noise import count_noise

JsonObject = dict[str, Any]
ProgressSink = Callable[[JsonObject], None]
"""Takes the params of each `notifications/progress` of one request, in order, at once."""

LogSink = Callable[[JsonObject], None]
"""Takes the params of each `notifications/message` that belongs to one request, in order, at once.

Those that came within its answer do; where the wire does not say it, those that came while calls of one client alone were open.
"""

AckSink = Callable[[JsonObject], None]
"""Takes the params of the `notifications/subscriptions/acknowledged` of one stream of notifications, at once."""

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""The key in `_meta` under which a notification names the stream that it is of: by the id of its request."""

_ID_IN_TEXT: Final = re.compile(rb'"id"\s*:\s*"?(\d{1,15})"?')
_SAYS_METHOD: Final = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*(?:"[^"]{0,200}"|[\w.-]{1,200})\s*,\s*)*"method"\s*:')
"""How a notification or a request of the server begins: it is the answer to nothing, whatever stands in its params."""

_EXCERPT: Final = 200
_BEGIN: Final = 60
"""Characters that are shown of a message that is no valid JSON: enough to know it by, and hardly any of its content."""


class WireHooks(Protocol):
    """What a wire tells the generation that owns it. All but `answer` are called on the receive path and must be quick."""

    def notified(self, method: str, params: JsonObject, *, to_caller: bool = False, private: bool = False) -> None:
        """A notification that is no progress.

        `to_caller` where the pending request that it belongs to has taken it, `private` where it has not, or where it may be of
        several: no other client is to have it.
        """
        ...

    def answer(self, method: str, params: JsonObject, origin: Origin) -> Awaitable[JsonObject]:
        """The result for a request of the server; raises `PeerRefusal`. Cancelled when the server withdraws it."""
        ...

    def noise(self, excerpt: bytes) -> None:
        """Bytes on the wire that are no JSON-RPC message."""
        ...

    def noise_dropped(self, lines: int) -> None:
        """So many lines more were none, above the rate at which they are looked at."""
        ...

    def refused(self, reason: str, detail: str) -> None:
        """A message was refused: `size`, `values`, `depth`, `syntax`, `rate`."""
        ...


class PeerRefusal(Exception):
    """The JSON-RPC error with which a request of the server is answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True, eq=False)
class Pending:
    """One request of ours that has no answer yet."""

    id: int
    method: str
    on_progress: ProgressSink | None
    on_log: LogSink | None = None
    on_ack: AckSink | None = None
    """Set for a stream of notifications: a request that stays open until one side has enough."""
    call: OpenCall | None = None
    """The call that it was sent for; None for a request of our own."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: JsonObject | None = None
    failure: RequestFailed | None = None
    on_done: Callable[[], None] | None = None
    """Called once when the request is settled; wakes a wire that waits for something else than `done`."""

    def settle(self, result: JsonObject) -> None:
        if not self.done.is_set():
            self.result = result
            self._end()

    def fail(self, failure: RequestFailed) -> None:
        if not self.done.is_set():
            self.failure = failure
            self._end()

    def _end(self) -> None:
        self.done.set()
        if self.on_done is not None:
            self.on_done()

    async def outcome(self) -> JsonObject:
        """Wait for the answer. Raises RequestFailed."""
        await self.done.wait()
        if self.failure is not None:
            raise self.failure
        return self.result if self.result is not None else {}


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request of the server that has to be answered under `id`, the server's own."""

    id: str | int
    method: str
    params: JsonObject
    origin: Origin


class Exchange:
    """The requests in flight on one wire, and the sorting of what comes in."""

    def __init__(self, hooks: WireHooks, *, max_message: int) -> None:
        self._hooks = hooks
        self.account = Account()
        """What reading this wire has taken of the loop's time."""
        self.reader = AheadReader(max_message, self.account)
        self.answers = 0
        """How many requests of ours have been answered."""
        self._last_id = 0
        self._pending: dict[int, Pending] = {}
        self._strays = 0
        """Answers under ids that were never used."""
        self.left = LeftCalls()
        self.on_withdrawn: Callable[[object], None] = lambda _: None
        """Takes the id of a request that the server withdraws, whatever it is."""
        self.intake = Intake(lambda detail: hooks.refused("rate", detail))

    def __len__(self) -> int:
        return len(self._pending)

    def open(
        self,
        method: str,
        on_progress: ProgressSink | None = None,
        on_log: LogSink | None = None,
        on_ack: AckSink | None = None,
        call: OpenCall | None = None,
    ) -> Pending:
        """A pending request under a fresh id; ids are never used twice on a wire."""
        self._last_id += 1
        pending = Pending(self._last_id, method, on_progress, on_log, on_ack, call)
        self._pending[pending.id] = pending
        return pending

    def close(self, pending: Pending) -> None:
        """Forget a request: what still comes for it is late and is dropped."""
        if self._pending.pop(pending.id, None) is not None and pending.call is not None:
            self.left.answered(pending.call)

    def give_up(self, pending: Pending) -> None:
        """Nobody waits for its answer, but the server may go on with it for a while, and ask something."""
        if pending.call is not None and not pending.done.is_set():
            self.left.gave_up(pending.id, pending.call)

    def origin(
        self, within: Pending | None, answered: Iterable[OpenCall] = (), counts: Callable[[str], bool] = may_ask
    ) -> Origin:
        """Where something comes from that came within the answer to `within`; None: the wire does not know.

        `answered` are calls that it may belong to although they have their answers; `counts` says which methods do.
        """
        if within is not None:
            return origin_within(within.call)
        open_calls = [one.call for one in self._pending.values() if one.call is not None]
        return origin_among(open_calls, [*self.left.still_at(), *answered], counts)

    def fail_all(self, failure: Callable[[Pending], RequestFailed]) -> None:
        """End every pending request, each with a failure of its own."""
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.fail(failure(one))

    def receive(self, data: bytes, within: Pending | None = None, *, unasked: bool = False) -> list[PeerRequest]:
        """Take one JSON text off the wire; `within` is the request in whose answer it came, where the wire knows.

        `unasked`: it came where no answers come, so that without an id it is the answer to nothing. Returns the server's
        requests in it, for the wire to answer. Never raises for what a server sends.
        """
        try:
            messages, is_cut = self.reader.messages(data)  # arrays: batches of revision 2025-03-26
        except Unreadable as error:
            self.unreadable(data, error, within, unasked=unasked)
            return []
        if not messages:
            self.intake.admits()
        sorted_ones = (self._sort(message, data, within, unasked) for message in messages)
        requests = [request for request in sorted_ones if request is not None]
        if is_cut:
            self._refuse_rest(data, within, unasked)
        return requests

    def _refuse_rest(self, data: bytes, within: Pending | None, unasked: bool) -> None:
        """Drop the messages of an array beyond `MAX_BATCH`; a request whose answer may be among them fails."""
        detail = f"an array of more than {MAX_BATCH} messages, of which only the first {MAX_BATCH} are taken"
        if self.intake.admits():
            self._hooks.refused("values", detail)
        pending = within
        if pending is None and (b'"result"' in data or b'"error"' in data):
            pending = self._owner_of(data, unasked)
        if pending is not None and not pending.done.is_set():
            self._fail_refused(pending, detail)

    def unreadable(self, data: bytes, error: Unreadable, within: Pending | None = None, *, unasked: bool = False) -> None:
        """Fail the request that a refused message was the answer to, where that can be told; `data` may be cut."""
        if error.reason == "syntax" and not _looks_like_a_message(data) and within is None:
            self._noise(data)
            return
        detail = str(error)
        if error.reason == "syntax":  # what is wrong with it shows best in itself, such as text in front of the message
            detail += f"; it begins {clean_text(data, _BEGIN)!r}"
        if self.intake.admits():
            self._hooks.refused(error.reason, detail)
        pending = within if within is not None else self._owner_of(data, unasked)
        if pending is not None:
            self._fail_refused(pending, detail)

    def _fail_refused(self, pending: Pending, detail: str) -> None:
        text = f"the server's answer was refused: {detail}"
        self._settle_failed(pending, RequestFailed(Outcome.MAYBE_EXECUTED, "answer_refused", text))

    def _owner_of(self, data: bytes, unasked: bool) -> Pending | None:
        """The one pending request whose id stands in a message that cannot be parsed; None where that is ambiguous."""
        if _SAYS_METHOD.match(data[:4096]):
            return None
        near_ends = data[:4096] + data[-4096:]
        named = {int(found) for found in _ID_IN_TEXT.findall(near_ends)} & self._pending.keys()
        if len(named) == 1:
            return self._pending[named.pop()]
        return self._only_one() if not named and not unasked else None

    def _only_one(self) -> Pending | None:
        return next(iter(self._pending.values())) if len(self._pending) == 1 else None

    def _sort(self, message: Any, data: bytes, within: Pending | None, unasked: bool) -> PeerRequest | None:
        if not isinstance(message, dict):
            self._noise(data)
            return None
        method = message.get("method")
        if isinstance(method, str):
            params = message.get("params")
            return self._sort_method(message, method, params if isinstance(params, dict) else {}, within)
        if "result" in message or "error" in message:
            self._sort_answer(message, within, unasked)
        else:
            self._noise(data)
        return None

    def _noise(self, data: bytes) -> None:
        if self.intake.admits():
            self._hooks.noise(data[:_EXCERPT])
        else:
            self._hooks.noise_dropped(1)

    def drop_unread(self, data: bytes, lines: int) -> None:
        """So many whole lines are above the rate, and not worth to be parsed; those that are surely no messages are counted."""
        self.intake.dropped(lines)
        if noise := count_noise(data):
            self._hooks.noise_dropped(noise)

    def _sort_method(self, message: JsonObject, method: str, params: JsonObject, within: Pending | None) -> PeerRequest | None:
        if not self.intake.admits(method):
            return None
        if "id" not in message:
            if method == "notifications/progress":
                self._progress(params)
            elif method == "notifications/message":
                self._logged(method, params, within)
            else:
                if method == "notifications/cancelled":
                    self.on_withdrawn(params.get("requestId"))
                self._of_stream(method, params, within)
                self._hooks.notified(method, params)
            return None
        peer_id = message["id"]
        if isinstance(peer_id, bool) or not isinstance(peer_id, str | int):
            self._hooks.refused("syntax", f"a request {method!r} of the server has no usable id")
            return None
        return PeerRequest(peer_id, method, params, self.origin(within))

    def _logged(self, method: str, params: JsonObject, within: Pending | None) -> None:
        """Hand a log message to the call that it belongs to, as far as that is known."""
        answered = self.left.just_answered()
        origin = self.origin(within, answered, may_log)
        owner = within
        if owner is None and origin.call is not None:
            owner = next((one for one in self._pending.values() if one.call is origin.call), None)
        if owner is not None and owner.on_log is not None:
            owner.on_log(params)
            self._hooks.notified(method, params, to_caller=True)
        elif origin.suspects or answered or self.left.still_at():
            self._hooks.notified(method, params, private=True)
        else:
            self._hooks.notified(method, params)

    def _of_stream(self, method: str, params: JsonObject, within: Pending | None) -> None:
        """Take what concerns a stream of notifications itself: it is acknowledged, or the server has ended it."""
        if method == "notifications/subscriptions/acknowledged":
            meta = params.get("_meta")
            pending = (self._find(meta.get(SUBSCRIPTION_ID)) if isinstance(meta, dict) else None) or within
            if pending is not None and pending.on_ack is not None:
                pending.on_ack(params)
        elif method == "notifications/cancelled":
            pending = self._find(params.get("requestId"))
            if pending is not None and pending.on_ack is not None:
                text = (
                    f"the server has ended the stream: {clean_text(str(params.get('reason') or 'no reason given'), _EXCERPT)}"
                )
                self._settle_failed(pending, RequestFailed(Outcome.MAYBE_EXECUTED, "stream_failed", text))

    def _progress(self, params: JsonObject) -> None:
        pending = self._find(params.get("progressToken"))
        if pending is not None and pending.on_progress is not None:
            pending.on_progress(params)

    def _sort_answer(self, message: JsonObject, within: Pending | None, unasked: bool) -> None:
        pending = self._find(message.get("id"))
        error = message.get("error")
        if pending is None and message.get("id") is None and error is not None:
            # An error without an id can only mean the request it came with, or the only one there is.
            pending = within or (None if unasked else self._only_one())
        if pending is None:
            self._stray(message.get("id"), error)
            return
        self.answers += 1
        if error is not None:
            self._settle_failed(pending, peer_error(error))
            return
        result = message.get("result")
        if isinstance(result, dict):
            self.close(pending)
            pending.settle(result)
        else:
            self._settle_failed(
                pending,
                RequestFailed(Outcome.MAYBE_EXECUTED, "answer_refused", "the server's result is no object"),
            )

    def _stray(self, peer_id: Any, error: Any) -> None:
        """Tell of an answer to nothing, unless it is a late one: whose it was meant to be waits for it in vain."""
        number = int(peer_id) if isinstance(peer_id, str) and peer_id.isdecimal() and len(peer_id) < 16 else peer_id
        is_late = isinstance(number, int) and not isinstance(number, bool) and 0 < number <= self._last_id
        if isinstance(number, int):
            self.left.done_with(number)
        if not self.intake.admits() or is_late:
            return
        self._strays += 1
        if str(self._strays).strip("0") == "1":  # the first, and each power of ten: a flood of them is told of rarely
            said = "" if error is None else f" ({clean_text(peer_error(error).message, _BEGIN)})"
            self._hooks.refused("syntax", f"an answer under the id {clean_text(repr(peer_id), _BEGIN)} of no request{said}")

    def _settle_failed(self, pending: Pending, failure: RequestFailed) -> None:
        self.close(pending)
        pending.fail(failure)

    def _find(self, peer_id: Any) -> Pending | None:
        """The request of an id as servers return it: the number, or its text (field case: ids come back as text)."""
        if isinstance(peer_id, str):
            peer_id = int(peer_id) if peer_id.isdecimal() and len(peer_id) < 16 else None
        if isinstance(peer_id, bool) or not isinstance(peer_id, int):
            return None
        return self._pending.get(peer_id)


def peer_error(error: Any) -> RequestFailed:
    """The failure for a JSON-RPC error member, however odd the server made it."""
    body: JsonObject = error if isinstance(error, dict) else {"message": str(error)}
    code = body.get("code")
    return RequestFailed(
        Outcome.PEER_ERROR,
        "error_answer",
        str(body.get("message") or "the server gave no message"),
        code=code if isinstance(code, int) and not isinstance(code, bool) else -32603,
        data=body.get("data"),
    )


def _looks_like_a_message(data: bytes) -> bool:
    """Whether broken JSON was meant as JSON-RPC: it decides between `noise` (a banner) and `refused` (a lost answer).

    A line of a message that was written over many lines is noise like the others: it begins no object.
    """
    return b"{" in data[:4096] and (b'"jsonrpc"' in data[:4096] or b'"jsonrpc"' in data[-4096:])

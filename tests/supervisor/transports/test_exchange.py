"""Where messages go: a log message within the answer to a request, and arrays of messages without end."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.open_calls import Origin
from mcpvisor.supervisor.transports.codec import MAX_BATCH, MAX_DEPTH, encode
from mcpvisor.supervisor.transports.exchange import SUBSCRIPTION_ID, Exchange

LOG = encode({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
CHANGED = encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


class Hooks:
    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []
        self.refusals: list[tuple[str, str]] = []

    def notified(self, method: str, params: dict[str, Any], *, to_caller: bool = False, private: bool = False) -> None:
        self.told.append((method, to_caller))

    async def answer(self, method: str, params: dict[str, Any], origin: Origin) -> dict[str, Any]:
        return {}

    def noise(self, excerpt: bytes) -> None: ...

    def noise_dropped(self, lines: int) -> None: ...

    def refused(self, reason: str, detail: str) -> None:
        self.refusals.append((reason, detail))


@pytest.mark.parametrize(
    ("is_within", "has_sink", "expected"),
    [(True, True, 1), (True, False, 0), (False, True, 0)],
    ids=["within", "nobody listens", "outside"],
)
def test_a_message_within_an_answer_is_the_callers(is_within: bool, has_sink: bool, expected: int) -> None:
    """The sink of that request has it, and everybody else is told so; every other notification is nobody's in particular."""
    hooks, taken = Hooks(), []
    exchange = Exchange(hooks, max_message=1000)
    pending = exchange.open("tools/call", None, taken.append if has_sink else None)
    for data in (LOG, CHANGED):
        exchange.receive(data, pending if is_within else None)

    assert [{"level": "info", "data": "x"}] * expected == taken
    assert [("notifications/message", bool(expected)), ("notifications/tools/list_changed", False)] == hooks.told


def acknowledgement(number: Any) -> bytes:
    meta = {SUBSCRIPTION_ID: number}
    params = {"notifications": {"resourceSubscriptions": ["x://1"]}, "_meta": meta}
    return encode({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})


@pytest.mark.parametrize("is_named", [True, False], ids=["by its id", "by the answer that it is in"])
def test_an_acknowledgement_goes_to_its_stream(is_named: bool) -> None:
    """Of several streams the one that it names has it, also where the id comes back as a text; else the one it came within."""
    taken: dict[str, list[Any]] = {"old": [], "new": []}
    exchange = Exchange(Hooks(), max_message=1000)
    exchange.open("subscriptions/listen", on_ack=taken["old"].append)
    new = exchange.open("subscriptions/listen", on_ack=taken["new"].append)
    exchange.receive(acknowledgement(str(new.id) if is_named else 77), None if is_named else new)
    exchange.receive(acknowledgement(99))

    assert ([], 1) == (taken["old"], len(taken["new"]))


def test_a_server_can_end_a_stream_and_no_other_request() -> None:
    """A cancellation by the server is the end of a stream of notifications; a call goes on."""
    exchange = Exchange(Hooks(), max_message=1000)
    stream = exchange.open("subscriptions/listen", on_ack=lambda _: None)
    call = exchange.open("tools/call")
    for pending in (stream, call):
        params = {"requestId": pending.id, "reason": "\x1b[2Jbye"}
        exchange.receive(encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))

    assert stream.failure is not None
    assert (Outcome.MAYBE_EXECUTED, "the server has ended the stream: bye") == (stream.failure.outcome, stream.failure.message)
    assert not call.done.is_set()


def array(message: bytes, count: int, *last: bytes) -> bytes:
    return b"[" + b",".join([message] * count + list(last)) + b"]"


def test_an_array_is_bounded() -> None:
    """Of an array without end the first messages are handled and the others refused once, so that it costs no long turn."""
    hooks = Hooks()
    Exchange(hooks, max_message=100_000_000).receive(array(b'{"method":"notifications/tools/list_changed"}', 160_000))

    assert MAX_BATCH == len(hooks.told)
    assert [("values", "an array of more than 1000 messages, of which only the first 1000 are taken")] == hooks.refusals


@pytest.mark.parametrize(
    ("is_within", "last", "expected"),
    [
        (False, b'{"id":1,"result":{}}', "answer_refused"),
        (True, b'{"id":1,"result":{}}', "answer_refused"),
        (False, b'{"method":"x"}', None),
    ],
    ids=["answer", "answer within", "no answer"],
)
def test_an_answer_at_the_end_of_an_array(is_within: bool, last: bytes, expected: str | None) -> None:
    """A request whose answer is among the messages that are dropped fails at once, as one that may have run."""
    exchange = Exchange(Hooks(), max_message=1_000_000)
    pending = exchange.open("tools/call")
    exchange.receive(array(b'{"method":"x"}', MAX_BATCH, last), pending if is_within else None)

    failure = pending.failure
    assert expected == (failure.cause if failure else None)
    assert failure is None or Outcome.MAYBE_EXECUTED is failure.outcome


def test_an_answer_before_the_rest_of_an_array() -> None:
    """An answer among the messages that are taken counts, whatever is dropped after it."""
    exchange = Exchange(Hooks(), max_message=1_000_000)
    pending = exchange.open("tools/call")
    exchange.receive(array(b'{"id":1,"result":{"ok":true}}', MAX_BATCH + 1), pending)

    assert ({"ok": True}, None) == (pending.result, pending.failure)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (array(b"1", 3, b"[" * MAX_DEPTH + b"]" * MAX_DEPTH), "depth"),
        (b"[" * 100_000, "depth"),
        (b' [1,{"a":NaN}]', "syntax"),
        (b'[{"jsonrpc":"2.0","method":"\xff"}]', "syntax"),
        (b'[{"jsonrpc":"2.0"},', "syntax"),
    ],
)
def test_what_is_wrong_in_an_array(data: bytes, reason: str) -> None:
    """A message of an array is held to the same rules as one that stands alone; none of an array is handled if one is bad."""
    hooks = Hooks()
    exchange = Exchange(hooks, max_message=1_000_000)
    pending = exchange.open("tools/call")
    exchange.receive(data, pending)

    assert ([reason], []) == ([one[0] for one in hooks.refusals], hooks.told)
    assert pending.failure is not None
    assert "answer_refused" == pending.failure.cause


@pytest.mark.parametrize("ident", [b"1", b'"1"'], ids=["number", "text"])
def test_an_id_may_come_back_as_text(ident: bytes) -> None:
    """Number and text of the same value are the same id."""
    hooks = Hooks()
    exchange = Exchange(hooks, max_message=1000)
    pending = exchange.open("tools/call")
    exchange.receive(b'{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}' % ident)

    assert ({"ok": True}, []) == (pending.result, hooks.refusals)


@pytest.mark.parametrize("ident", [b"0", b'"x"', b"7", b"true", b'"7"'])
def test_an_answer_under_a_foreign_id_is_named(ident: bytes) -> None:
    """Whoever waits for it runs out of time; that something came, and under which id, can be seen by then."""
    hooks = Hooks()
    exchange = Exchange(hooks, max_message=1000)
    pending = exchange.open("tools/call")
    exchange.receive(b'{"jsonrpc":"2.0","id":%s,"result":{}}' % ident)

    assert (False, 1) == (pending.done.is_set(), len(hooks.refusals))
    assert "of no request" in hooks.refusals[0][1]


def test_a_late_answer_is_nothing_to_tell() -> None:
    """What comes for a request that was withdrawn is dropped."""
    hooks = Hooks()
    exchange = Exchange(hooks, max_message=1000)
    exchange.close(exchange.open("tools/call"))
    exchange.receive(b'{"jsonrpc":"2.0","id":1,"result":{}}')

    assert [] == hooks.refusals


@pytest.mark.parametrize(("waiting", "told"), [(1, 0), (2, 1)])
def test_an_error_without_an_id(waiting: int, told: int) -> None:
    """It is the answer to the one request that waits; where several do it is told of, with its words."""
    hooks = Hooks()
    exchange = Exchange(hooks, max_message=1000)
    pending = [exchange.open("tools/call") for _ in range(waiting)]
    exchange.receive(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"disk full"}}')
    failures = [one.failure.message for one in pending if one.failure is not None]

    assert (["disk full"] if waiting == 1 else [], told) == (failures, len(hooks.refusals))
    assert all("disk full" in detail for _, detail in hooks.refusals)

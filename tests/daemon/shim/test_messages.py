"""What a line is, and what becomes of one that is no message."""

from __future__ import annotations

import json

import pytest

from mcpvisor.daemon.shim.messages import (
    Answer,
    Notification,
    NotTaken,
    Request,
    as_line,
    failure_line,
    outline,
    read_line,
)
from mcpvisor.daemon.shim.waiting import Backoff, retry_after
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.lines import Overlong


def test_each_kind_is_known_by_its_members():
    """A request has a method and an id, a notification a method, an answer neither method."""
    kinds = [
        type(read_line(line))
        for line in (
            b'{"jsonrpc":"2.0","id":0,"method":"ping"}',
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
            b'{"jsonrpc":"2.0","id":"q","result":{}}',
            b'{"jsonrpc":"2.0","id":"q","error":{"code":1,"message":""}}',
        )
    ]

    assert [Request, Notification, Answer, Answer] == kinds


def test_a_text_and_a_number_are_two_ids():
    """To JSON-RPC `1` and `"1"` are different requests, and withdrawing one leaves the other alone."""
    one, other = (read_line(b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % given) for given in (b"1", b'"1"'))
    cancelled = read_line(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}')

    assert one.key != other.key
    assert other.key == cancelled.cancels


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"id":8', 7),
        (b'{"method":"x" , "id" : "seven" , "params":', "seven"),
        (b'{"method":"x","params":{"id":8,"text":"...' + b'"},"id":7}', 7),
        (b'{"method":"x","params":{"id":8,"text":"...' + b'"},"id":7,"jsonrpc":"2.0"}', 7),
        (b'{"method":"x","params":{"id":8,"text":"...' + b'"}}', None),
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":"...' + b'"}}', None),
        (b"x" * 100, None),
    ],
)
def test_the_id_of_a_line_that_is_too_long_is_told_where_it_is_certain(ends, expected):
    """An id within params is none, and neither is that of a server's request which is answered at length."""
    with pytest.raises(NotTaken) as caught:
        read_line(Overlong(5_000_000, ends))

    assert expected == json.loads(caught.value.line)["id"]


def test_an_answer_over_several_lines_becomes_one():
    """Line breaks stand between values only: the value stays what it is."""
    value = {"id": 1, "result": {"text": "a\nb\r"}}
    line = as_line(json.dumps(value, indent=2).replace("\n", "\r\n").encode())

    assert value == json.loads(line)
    assert 1 == line.count(b"\n")
    assert b"\r" not in line


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"id":{}}', b'{"method":1}', b"\xff"])
def test_what_is_no_message_of_the_gateway_has_no_outline(data):
    """Bytes that are no message are told from messages without being read whole."""
    assert None is outline(data)


def test_a_failure_says_what_became_of_the_request():
    """The error has the gateway's own shape: server, outcome, cause, and when to come again."""
    request = Request("a", "ping", {}, b"")
    failure = RequestFailed(Outcome.NOT_SENT, "gateway_away", "not sent", retry_after_s=2.0)

    assert {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {
            "code": -32000,
            "message": "not sent",
            "data": {"mcpvisor": {"server": "files", "outcome": "not_sent", "cause": "gateway_away", "retry_after_s": 2.0}},
        },
    } == json.loads(failure_line(request, "files", failure))


def test_tries_come_slower_and_end_with_the_patience():
    """The pauses double up to two seconds; what the gateway asks for is waited where the patience lasts."""
    backoff, now, pauses = Backoff(100.0, patience=10.0), 100.0, []
    while (pause := backoff.next(now)) is not None:
        pauses.append(round(pause, 1))
        now += pause

    assert [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0] == pauses
    assert 5.0 == Backoff(0.0, patience=10.0).next(0.0, 5.0)
    assert None is Backoff(0.0, patience=10.0).next(0.0, 11.0)


@pytest.mark.parametrize(("value", "expected"), [("3", 3.0), ("", None), ("Tue, 01 Dec", None), ("-1", None), ("9" * 9, None)])
def test_retry_after_is_a_number_of_seconds(value, expected):
    """What is no small number of seconds is passed over."""
    assert expected == retry_after(value)

"""Event streams as the standard defines them, in whatever pieces they come."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.transports.codec import Unreadable
from mcpvisor.supervisor.transports.eventstream import EventStream, StreamEvent


def parse(*pieces: bytes, limit: int = 1000) -> list[StreamEvent]:
    stream = EventStream(limit=limit)
    return [event for piece in pieces for event in stream.feed(piece)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"data: one\n\n", [StreamEvent("message", b"one")]),
        (b"data:one\n\n", [StreamEvent("message", b"one")]),
        (b"data:  one\n\n", [StreamEvent("message", b" one")]),
        (b"data: one\r\n\r\ndata: two\r\r", [StreamEvent("message", b"one"), StreamEvent("message", b"two")]),
        (b"data: a\ndata: b\n\n", [StreamEvent("message", b"a\nb")]),
        (b"event: ping\ndata\n\n", [StreamEvent("ping", b"")]),
        (b"event: x\n\ndata: y\n\n", [StreamEvent("message", b"y")]),
        (b": comment\n\n:\ndata: z\n\n", [StreamEvent("message", b"z")]),
        (b"\xef\xbb\xbfdata: bom\n\n", [StreamEvent("message", b"bom")]),
        (b"unknown: 1\ndata: k\n\n", [StreamEvent("message", b"k")]),
        (b"data: no end\n", []),
    ],
)
def test_rules_of_the_standard(text: bytes, expected: list[StreamEvent]) -> None:
    """All three line ends, fields with and without colon, comments, a BOM and several data lines are understood."""
    assert expected == parse(text)


@given(st.data())
def test_pieces_make_no_difference(data: st.DataObject) -> None:
    """However the bytes are cut, the same events come out."""
    text = b"\xef\xbb\xbfid: 1\r\ndata: a\r\ndata: b\r\n\r\n: c\revent: e\rdata: \xc3\xa9\r\r\n\ndata\n\nretry: 50\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert parse(text) == parse(*pieces)


def test_ids_and_retry() -> None:
    """The id of the last complete event and the server's retry time are kept; bad ones are ignored."""
    stream = EventStream(limit=100)
    stream.feed(b"id: 7\nretry: 500\ndata:\n\nid: 8\ndata: incomplete\n")

    assert ("7", 500) == (stream.last_id, stream.retry_ms)

    stream.feed(b"\nid: 9\0\nretry: soon\n\n")

    assert ("8", 500) == (stream.last_id, stream.retry_ms)


@pytest.mark.parametrize("piece", [b"data: x", b"x", b": c\n\n", b"data: y\n", b"id: 1\n"])
def test_endless_streams_are_refused(piece: bytes) -> None:
    """A line, an event or a row of comments without end is refused soon, by one count."""
    with pytest.raises(Unreadable) as refused:
        parse(*[piece] * 100_000)
    assert "size" == refused.value.reason


def test_comments_between_events_are_no_offence() -> None:
    """Keep-alives never add up to a refusal as long as events come between them."""
    stream = EventStream(limit=1000)

    assert 200 == sum(len(stream.feed(b": keep-alive\n" * 100 + b"data: x\n\n")) for _ in range(200))


def test_event_over_the_limit() -> None:
    """One event of more data than the limit is refused, one at the limit is not."""
    assert 1000 == len(parse(b"data: " + b"x" * 1000 + b"\n\n")[0].data)
    with pytest.raises(Unreadable):
        parse(b"data: " + b"x" * 1001 + b"\n\n")


def test_a_long_line_costs_linear_time() -> None:
    """A line of 32 MiB that comes in small pieces takes about as long as one that comes whole."""
    stream = EventStream(limit=64 * 1024 * 1024)
    began = time.thread_time()
    stream.feed(b"data: ")
    for _ in range(32 * 1024):
        stream.feed(b"x" * 1024)

    assert 32 * 1024 * 1024 == len(stream.feed(b"\n\n")[0].data)
    assert time.thread_time() - began < 3

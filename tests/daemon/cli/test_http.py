"""HTTP as the verbs speak it: answers of any form are read whole, and what ends too early is told from what has ended."""

from __future__ import annotations

import socket

import pytest

from mcpvisor.daemon.cli.http import Answer, BadAnswer, send

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"


def answered(data: bytes) -> Answer:
    """The answer that these bytes are, after which the connection has ended."""
    ours, theirs = socket.socketpair()
    theirs.sendall(data)
    theirs.close()
    return Answer(ours)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcmore", b"abc"),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (CHUNKED + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", b"abc0123456789"),
    ],
)
def test_a_body_is_whole_however_its_length_is_told(data, body):
    """By a number, by pieces, or by the end of the connection."""
    with answered(data) as answer:
        assert body == answer.read()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it ended before the status"),
        (b"SSH-2.0-OpenSSH\r\n", "does not begin as HTTP does"),
        (b"HTTP/1.1 200 OK\r\nA: b", "it ended before a header"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200, "too many headers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "it ended 6 bytes too early"),
        (CHUNKED + b"3\r\nabc\r\n", "it ended before a piece"),
        (CHUNKED + b"3\r\na", "it ended 2 bytes too early"),
        (CHUNKED + b"x\r\n", "where the size of a piece should be is no number"),
    ],
)
def test_what_is_no_whole_answer_says_so(data, why):
    """Whatever is at the other end, and wherever it breaks off."""
    with pytest.raises(BadAnswer, match=why), answered(data) as answer:
        answer.read()


def test_lines_come_whole_although_pieces_part_them():
    """A line is given as soon as it is whole; its type is known without its parameters."""
    with answered(CHUNKED + b"4\r\na\nbc\r\n5\r\nd\r\n\ne\r\n0\r\n\r\n") as answer:
        assert "text/event-stream" == answer.content_type
        assert [b"a", b"bcd", b""] == list(answer.lines())


def test_a_request_says_how_long_it_is():
    """A body has its length, and an order without a body has the length nothing."""
    ours, theirs = socket.socketpair()
    send(ours, "POST", "/v1/x", {"Accept": "*/*"}, b"{}")
    send(ours, "GET", "/v1/y", {})
    ours.close()
    with theirs.makefile("rb") as file:
        first, second = file.read().split(b"{}")

    assert b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: */*\r\nContent-Length: 2\r\n\r\n" == first
    assert b"GET /v1/y HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" == second
    theirs.close()

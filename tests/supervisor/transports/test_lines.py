"""The framing of stdio, without a process."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.transports.lines import LineSplitter, Overlong


def lines(pieces, max_line=1000):
    splitter = LineSplitter(max_line)
    found = [line for piece in pieces for line in splitter.feed(piece)]
    return [*found, *splitter.end()]


@given(st.lists(st.binary(max_size=40)), st.integers(1, 7))
def test_pieces_make_no_difference(texts, size):
    """However the bytes are cut into pieces, the lines are the same."""
    data = b"\n".join(texts)
    pieces = [data[i : i + size] for i in range(0, len(data), size)]

    assert lines([data]) == lines(pieces)


def test_cr_blank_lines_and_byte_order_mark_go():
    """CR before LF, blank lines and a mark before the first line are no part of a message; a mark later is left alone."""
    assert [b"{1}", b"{2}", b"\xef\xbb\xbf{3}", b"{4}"] == lines(
        [b"\r\n\xef\xbb", b"\xbf{1}\r\n \t\n\n{2}\n\xef\xbb\xbf{3}\n{4}"]
    )


def test_overlong_line_is_skipped_with_its_ends_kept():
    """Of a line over the limit the size and both ends remain, and the next line is whole again."""
    head, tail = b'{"id":1,' + b"h" * 5000, b"t" * 5000 + b"}"
    found = lines([head, b"x" * 100_000, tail + b"\n{2}\n"], max_line=50_000)

    assert [Overlong(len(head) + 100_000 + len(tail), head[:4096] + tail[-4096:]), b"{2}"] == found


def test_overlong_line_in_one_piece():
    """A line over the limit that comes in one piece is refused all the same."""
    assert [b"a", Overlong(2000, b"x" * 2000 + b"x" * 2000), b"b"] == lines([b"a\n" + b"x" * 2000 + b"\nb\n"])


@pytest.mark.alone
def test_huge_line_takes_linear_time():
    """Thirty-two megabytes in pieces of a pipe's size are put together in a fraction of a second."""
    splitter = LineSplitter(64 << 20)
    began = time.perf_counter()
    for _ in range(512):
        list(splitter.feed(b"x" * 65536))
    (line,) = splitter.feed(b"\n")
    seconds = time.perf_counter() - began

    assert 32 << 20 == len(line)
    assert seconds < 0.5

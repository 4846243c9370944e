"""The ring of what a server writes on stderr."""

from __future__ import annotations

import time

import pytest

from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.stderr import LINES_BURST, RING_LINES, StderrRing


class Sink:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.dropped = 0

    def __call__(self, lines: tuple[str, ...], dropped: int) -> None:
        self.lines += lines
        self.dropped += dropped


def test_lines_are_joined_cleaned_and_passed_on():
    """Lines in pieces are joined, CR and escapes go, what is no UTF-8 is replaced."""
    sink = Sink()
    ring = StderrRing(sink)
    for piece in (b"fir", b"st\r\n\x1b[31mse", b"cond\x1b[0m\ncaf\xe9\nrest"):
        ring.feed(piece, 1.0)

    assert ["first", "second", "caf\ufffd"] == sink.lines
    assert ["second", "caf\ufffd", "rest"] == ring.tail(3)
    assert (3, 1.0) == (ring.lines, ring.last_write)


def test_ring_keeps_the_newest_in_bounded_memory():
    """Of any number of lines of any length the newest 200 are kept, each of 500 characters at most."""
    ring = StderrRing(Sink())
    for start in range(0, 100_000, 1000):
        ring.feed(b"".join(b"%d %s\n" % (start + n, b"x" * 600) for n in range(1000)), 0.0)
    tail = ring.tail()

    assert RING_LINES == len(tail)
    assert tail[-1].startswith("99999 ")
    assert {500} == {len(line) for line in tail}
    assert 100_000 == ring.lines


def test_line_without_end_is_bounded_and_shown():
    """An endless line costs a few kilobytes, shows in the tail at once, and is one line in the end."""
    ring = StderrRing(Sink())
    for _ in range(1000):
        ring.feed(b"y" * 65536, 0.0)
    partial = ring._partial
    shown = ring.tail()
    ring.end(1.0)

    assert len(partial) <= 8192
    assert ["y" * 499 + "…"] == shown == ring.tail()
    assert 1 == ring.lines


def test_rate_limits_what_is_passed_on_but_not_the_ring():
    """Above the rate lines are dropped and counted on the way to the log; later ones pass again, and the ring has them all."""
    sink = Sink()
    ring = StderrRing(sink)
    for _ in range(20):
        ring.feed(b"flood\n" * 100, 0.0)
    first = len(sink.lines)
    ring.feed(b"after\n", 10.0)

    assert LINES_BURST == first
    assert (["after"], 2000 - LINES_BURST) == (sink.lines[first:], sink.dropped)
    assert "after" == ring.tail()[-1]


def test_last_words_pass_whatever_the_rate():
    """The end of a flood holds the reason: its last lines are passed on when the writer is gone."""
    sink = Sink()
    ring = StderrRing(sink)
    ring.feed(b"flood\n" * 5000, 0.0)
    ring.feed(b"flood\n" * 5000 + b"the reason", 0.0)
    ring.end(0.0)

    assert "the reason" == sink.lines[-1]
    assert 10_001 == len(sink.lines) + sink.dropped


def test_secrets_are_masked():
    """Values that were given to the server as secrets never show, the longer before the shorter; trifles are left alone."""
    ring = StderrRing(Sink(), mask=Mask(("hunter22", "hunter22-long", "a")))
    ring.feed(b"key hunter22-long and hunter22 and a\n", 0.0)

    assert ["key *** and *** and a"] == ring.tail()


@pytest.mark.parametrize("inside", ["\x1b[0m", "\u200b", "\x1b]0;t\x07", "\x00"])
def test_secrets_with_something_unseen_in_them_are_masked(inside: str):
    """What is taken out of a line does not hide a secret from who masks it."""
    ring = StderrRing(Sink(), mask=Mask(["hunter22-long"]))
    ring.feed(f"key hunter22{inside}-long!\nhunter22{inside}-long".encode(), 0.0)

    assert ["key ***!", "***"] == ring.tail()


@pytest.mark.parametrize(
    ("filler", "end"),
    [
        (b"x" * 490 + b" ", "x *** and …"),
        (b"x" * 495 + b" ", "x ***…"),
        (b"x" * 497 + b" ", "x *…"),
        (b"\x1b[0m" * 2046, "***…"),
    ],
)
def test_a_secret_that_is_cut_with_its_line_leaves_nothing(filler: bytes, end: str):
    """The begin of a secret at the limit of a line is masked, whether that is one of characters or of bytes."""
    ring = StderrRing(Sink(), mask=Mask(["hunter22-long"]))
    ring.feed(filler + b"hunter22\x1b[0m-long and more\n", 0.0)
    (line,) = ring.tail()

    assert line.endswith(end)
    assert "hunter" not in line


def test_each_line_has_the_time_at_which_it_was_written():
    """The tail knows of each line when it was written by the wall clock, of the one without an end too."""
    ring = StderrRing(Sink())
    before = time.time()
    ring.feed(b"first\nsec", 1.0)
    middle = time.time()
    ring.feed(b"ond\nthird", 2.0)
    first, second, third = ring.timed_tail()

    assert ["first", "second", "third"] == [first.text, second.text, third.text] == ring.tail()
    assert before <= first.at <= middle <= second.at <= third.at <= time.time()

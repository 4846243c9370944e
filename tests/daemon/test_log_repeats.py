"""A storm of equal lines costs a few lines and a count (field case K3)."""

from __future__ import annotations

from mcpvisor.daemon.log_repeats import EQUAL_LINES, REMEMBERED, WINDOW_SECONDS, RepeatLimit
from mcpvisor.daemon.log_sink import LogRecord


def line(at: float, message: str = "again", **fields: object) -> LogRecord:
    return LogRecord(at, "warning", message, fields)


def test_equal_lines_pass_up_to_their_limit():
    """Of 280,000 equal lines within a window ten are written."""
    limit = RepeatLimit()
    written = sum(len(limit.admit(line(number / 280_000))) for number in range(280_000))

    assert EQUAL_LINES == written


def test_the_next_line_after_the_window_brings_the_count():
    """The first equal line of a new window is preceded by the number of suppressed ones."""
    limit = RepeatLimit()
    for _ in range(EQUAL_LINES + 5):
        limit.admit(line(0.0, server="docs"))
    told = limit.admit(line(WINDOW_SECONDS, server="docs"))

    assert ["again (5 more such lines suppressed)", "again"] == [record.message for record in told]
    assert {"server": "docs", "suppressed": 5} == told[0].fields


def test_a_count_is_told_though_the_line_never_comes_again():
    """When the storm is over its count is written by itself, once."""
    limit = RepeatLimit()
    for _ in range(EQUAL_LINES + 5):
        limit.admit(line(0.0))

    early, due, late = limit.expired(1.0), limit.expired(WINDOW_SECONDS), limit.expired(99.0)
    assert ([], 1, []) == (early, len(due), late)


def test_lines_that_differ_in_anything_are_not_equal():
    """Lines of two servers, or with two reasons, never suppress each other."""
    limit = RepeatLimit()
    written = [record for number in range(EQUAL_LINES * 2) for record in limit.admit(line(0.0, server=f"s{number % 2}"))]

    assert EQUAL_LINES * 2 == len(written)


def test_a_clock_that_is_set_back_ends_the_window():
    """Lines are not suppressed for hours because the clock was corrected."""
    limit = RepeatLimit()
    for _ in range(EQUAL_LINES + 1):
        limit.admit(line(10_000.0))

    assert limit.admit(line(1.0))


def test_the_number_of_lines_remembered_is_bounded():
    """A storm of lines that all differ does not grow the memory."""
    limit = RepeatLimit()
    for number in range(REMEMBERED * 2):
        limit.admit(line(0.0, str(number)))

    assert REMEMBERED == len(limit._seen)

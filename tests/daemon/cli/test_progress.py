"""How often a person is told of progress."""

from __future__ import annotations

import time

from mcpvisor.daemon.cli import progress
from mcpvisor.daemon.cli.progress import Progress


def test_the_first_and_the_last_are_told():
    """The first news is told at once, what comes right after it as one, and at the end whatever is left."""
    told: list[str] = []
    with Progress(told.append) as one:
        for text in ("1", "2", "3"):
            one.heard(text)
        at_once = [*told]

    assert ["1"] == at_once
    assert ["1", "3"] == told


def test_what_is_left_is_told_without_more_news(monkeypatch):
    """The newest is told after its time, though nothing more is heard."""
    monkeypatch.setattr(progress, "APART_SECONDS", 0.01)
    told: list[str] = []
    with Progress(told.append) as one:
        one.heard("1")
        one.heard("2")
        deadline = time.monotonic() + 20
        while len(told) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert ["1", "2"] == told

    assert ["1", "2"] == told

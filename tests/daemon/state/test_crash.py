"""A daemon that is killed loses at most what it was gathering."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import pytest


@pytest.mark.alone
@pytest.mark.parametrize("size", [100, 20_000])
def test_killed_while_it_writes(rig, size):
    """After SIGKILL the file is whole, and holds every event up to a second before."""
    one = rig()
    told: list[tuple[float, int]] = []
    killed = threading.Timer(1.5, one.process.send_signal, (signal.SIGKILL,))
    killed.start()
    try:
        for number in itertools.count():
            one.ask("note", number, 1, size)
            told.append((time.monotonic(), number))
    except (AssertionError, BrokenPipeError):
        ended = time.monotonic()
    killed.join()
    due = max(number for at, number in told if at < ended - 1)
    other = rig()
    past = other.ask("past")
    total, newest = other.ask("rows", "SELECT count(*), max(at) FROM journal")[0]

    assert {"up": True, "reason": ""} == other.began
    assert newest >= due > 20
    assert total == newest + 1
    assert list(range(int(newest) - 99, int(newest) + 1)) == past
    assert ["ok"] == other.ask("rows", "PRAGMA integrity_check")[0]


def test_killed_right_after_a_token(rig):
    """A token that was kept is there after SIGKILL, and so is an order that was given before it."""
    one = rig()
    one.ask("order", "files", "uid:7")
    one.ask("token", "k", "s3cret")
    one.process.send_signal(signal.SIGKILL)
    one.process.wait(20)
    other = rig()

    assert "uid:7" == other.ask("ordered", "files")
    assert [["k", "s3cret"]] == other.ask("rows", "SELECT key, value FROM tokens")

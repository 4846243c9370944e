"""`mcpvisor explain` of servers that do not work, against a real daemon: what is wrong, what comes next, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, entry, puppet, serving

SERVERS = Path(__file__).parents[1] / "servers"


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon none of whose servers is well."""
    few = {"delay": "20ms", "intensity": "2/60s"}
    once: dict[str, Any] = {"start_timeout": "1s", "restart": {"delay": "60s"}}  # so that what is explained lasts
    daemon = RunningDaemon(
        tmp_path_factory.mktemp("e"),
        puppet("hangs", SERVERS / "lite.py", "--hang-init", **once)
        + puppet("cold", SERVERS / "stdio_slow_start.py", "30", "lossy", **once)
        + entry("gone", "no-such-program-anywhere")
        + puppet("loud", SERVERS / "stdio_stderr_flood.py", "1024")
        + puppet("dies", SERVERS / "stdio_exit_after_init.py", "before", restart=few),
    )
    with serving(daemon):
        yield daemon


@pytest.fixture
def explain(troubled: RunningDaemon) -> Callable[[str, str], list[str]]:
    """The lines of `mcpvisor explain` of a server, once it has come to a state."""

    def run(name: str, state: str) -> list[str]:
        troubled.until(lambda: troubled.server(name)["state"] == state, f"{name} {state}")
        done = nursery.run(["--socket", troubled.socket, "explain", name])
        assert "" == done.stderr
        return done.stdout.splitlines()

    return run


def test_a_server_that_hangs_at_initialize(explain):
    """The limit that it did not keep is named, the next try has a time, and the remedy names the key to raise."""
    what, following, remedy, *_ = explain("hangs", "backoff")

    assert what.startswith("hangs is down: did not answer the handshake within 1 s (start_timeout)")
    assert following.startswith("Next: the daemon tries again by itself")
    assert "raise start_timeout in" in remedy


def test_a_start_that_takes_too_long(explain):
    """A cold package start that ran out of time is told from one that hangs: it was still at work."""
    what, *_ = explain("cold", "backoff")

    assert "still writing to stderr, so it may only be slow" in what


def test_a_program_that_is_not_installed(explain):
    """The program, the PATH that was searched and the place of the entry are named; it is looked for again."""
    what, following, remedy, *_ = explain("gone", "failed")

    assert "no program 'no-such-program-anywhere' on PATH=" in what
    assert "looks again now and then" in following
    assert re.search(r"in (5 min|4 min( \d+ s)?)\.$", following)
    assert re.search(r"servers\.d/servers\.toml:\d+", remedy)


def test_a_flood_of_stderr(explain):
    """The server is ready all the same, and how much of its flood was dropped is told, with what to do about it."""
    what, _, remedy, *rest = explain("loud", "ready")

    assert what.startswith("loud is ready, but it floods stderr (")
    assert "make it say less" in remedy
    assert [] == [line for line in rest if not line.isprintable()]


def test_a_crash_loop(explain):
    """How often it ended and how is told, its last words stand below, and the remedy is what they complain of."""
    what, following, remedy, *rest = explain("dies", "crash_loop")

    assert what.startswith("dies keeps ending (")
    assert "exited with code 2" in what
    assert "one careful try every few minutes" in following
    assert "last words on stderr are below" in remedy
    assert any(line.endswith(" configuration error: EXAMPLE_API_KEY is not set") for line in rest)

"""Subscriptions of a real daemon: written in its configuration, edited in place, and seen in status, explain and metrics."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import RunningDaemon, puppet

from mcpvisor.daemon.cli.client import server_path

SERVERS = Path(__file__).parents[1] / "servers"
STREAMS = SERVERS / "resource_streams.py"


def watched(*subscriptions: object) -> str:
    return puppet("notes", STREAMS, "--unknown", "memo://bad", subscriptions=list(subscriptions))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon with one server and two subscriptions of it."""
    running = RunningDaemon(tmp_path, watched("memo://a", "MiXeD://B/"))
    try:
        running.until_serving()
        yield running
    finally:
        left = running.clear()
        print(running.log_text())
    assert [] == left


def counted(daemon: RunningDaemon) -> dict[str, float]:
    """`mcpvisor_subscriptions` of the server, by state."""
    with urllib.request.urlopen(f"http://{daemon.addresses('metrics')[0].removeprefix('http://')}/metrics") as page:
        text = page.read().decode()
    found = re.findall(r"^mcpvisor_subscriptions{([^}]*)} (\S+)", text, re.MULTILINE)
    states = {re.findall(r'state="(\w+)"', labels)[0]: float(value) for labels, value in found}
    return {state: value for state, value in states.items() if value}


def test_subscriptions_from_the_file_to_the_metrics(daemon: RunningDaemon) -> None:
    """They are restored after a kill; an edit touches no process; one that fails is named everywhere it is looked for."""
    daemon.until_ready()
    first = daemon.server("notes")
    os.kill(first["pid"], signal.SIGKILL)
    daemon.until(lambda: daemon.server("notes")["generation"] == 2 and daemon.server("notes")["healthy"], "a new session")
    restored = daemon.server("notes")
    daemon.write("servers.toml", watched("MiXeD://B/", "memo://bad", {"uri": "memo://c", "poll": "60s"}))
    daemon.until(lambda: daemon.server("notes")["state"] == "degraded", "the edit")
    edited = daemon.server("notes")
    explained = daemon.control.get(server_path("notes", ""))
    daemon.until(lambda: counted(daemon) == {"active": 2, "failed": 1}, "the metrics")

    assert {"wanted": 2, "active": 2} == first["subscriptions"] == restored["subscriptions"]
    assert ({"wanted": 3, "active": 2}, restored["pid"]) == (edited["subscriptions"], edited["pid"])
    assert edited["reason"].startswith("1 of 3 subscriptions does not work, such as memo://bad: ")
    shown = {
        one["uri"]: (one["state"], bool(one["reason"]), one["next_retry"] is not None) for one in explained["subscriptions"]
    }
    works, fails = ("active", False, False), ("failed", True, True)
    assert {"MiXeD://B/": works, "memo://bad": fails, "memo://c": works} == shown

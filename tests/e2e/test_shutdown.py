"""The end of the daemon: whatever way it ends, no process of its servers is left a second later."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.e2e.running import RunningDaemon, puppet

from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.status_view import status_lines
from mcpvisor.supervisor.process.sweep import INSTANCE_VARIABLE

SECOND = 1.0


def marked(instance: str) -> list[int]:
    """Every process that carries the instance id, by our own reading of /proc."""
    mark = f"{INSTANCE_VARIABLE}={instance}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                continue
    return found


def config(servers: Path, log: Path) -> str:
    return "".join(
        [
            puppet("plain", servers / "lite.py"),
            puppet("lingers", servers / "lite.py", "--linger"),
            puppet("holder", servers / "stdio_sleeper.py", "--hold"),
            puppet("stubborn", servers / "stdio_stubborn_tree.py", "60", env={"FIELD_LOG": log}),
        ]
    )


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(daemon: Callable[..., RunningDaemon], servers: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Launcher trees, children that ignore SIGTERM and children in sessions of their own included."""
    running = daemon(config(servers, tmp_path / "log"))
    running.until_ready()
    instance = running.instance
    before = marked(instance)
    os.kill(running.pid, number)
    running.process.wait(30)
    ended_at = time.monotonic()
    while (left := marked(instance)) and time.monotonic() - ended_at < SECOND:
        time.sleep(0.02)

    assert len(before) >= 6, "the servers, the worker of the tree and the process in its own session"
    assert left == []
    assert running.process.returncode == (0 if number == signal.SIGTERM else -signal.SIGKILL)


@pytest.mark.parametrize("signals", [1, 2])
def test_calls_in_flight_have_their_drain_unless_a_second_signal_comes(
    daemon: Callable[..., RunningDaemon], servers: Path, signals: int
) -> None:
    """One SIGTERM lets a call of seven seconds finish, and what goes on can be seen meanwhile; two end it at once."""
    running = daemon(puppet("slow", servers / "stdio_sleeper.py"))
    running.until_ready()
    session = HttpCaller(running.gateway)
    session.begin("slow__sleep", {"seconds": 7 if signals == 1 else 30})
    running.until(lambda: running.server("slow")["in_flight"] == 1, "the call")
    began = time.monotonic()
    os.kill(running.pid, signal.SIGTERM)
    while (ready := probe(running.gateway)) != (503, "draining"):  # two signals of one kind at one moment are one
        assert ready == (200, "ok")
        time.sleep(0.01)
    if signals == 2:
        os.kill(running.pid, signal.SIGTERM)
    seen = running.server("slow")["state"] if signals == 1 else "draining"
    answer = session.answer()
    session.close()
    code = running.process.wait(20)
    took = time.monotonic() - began

    assert (code, seen) in ((0, "ready"), (0, "draining"))
    if signals == 1:
        assert answer["result"]["content"] == [{"type": "text", "text": "slept"}]
    else:
        assert answer["error"]["code"] == -32000
        assert took < 20


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2], ids=lambda number: number.name)
def test_a_signal_of_no_meaning_ends_nothing(
    daemon: Callable[..., RunningDaemon], servers: Path, number: signal.Signals
) -> None:
    """What other daemons rotate their logs by is one line in the log, and the daemon serves on."""
    running = daemon(puppet("lite", servers / "lite.py"))
    running.until_ready()
    os.kill(running.pid, number)
    running.until(lambda: re.search(rf"means nothing here.*{number.name}", running.log_text()), "the line")

    assert "ready" == running.server("lite")["state"]


@pytest.mark.parametrize("hurried", [False, True])
def test_a_load_balancer_finds_out_before_anything_is_refused(
    daemon: Callable[..., RunningDaemon], servers: Path, *, hurried: bool
) -> None:
    """For the notice `/readyz` is 503 and `/livez` 200 while new sessions and calls are served; a second signal ends it."""
    notice = 30 if hurried else 6
    running = daemon(puppet("slow", servers / "stdio_sleeper.py"), env={"MCPVISOR_GATEWAY__DRAIN_NOTICE": str(notice)})
    running.until_ready()
    assert probe(running.gateway) == (200, "ok")
    began = time.monotonic()
    os.kill(running.pid, signal.SIGTERM)
    while (ready := probe(running.gateway)) != (503, "draining"):
        assert ready == (200, "ok")
    alive = probe(running.gateway, "/livez")
    client = HttpCaller(running.gateway)
    client.begin("slow__echo", {"text": "still here"})
    answer = client.answer()
    client.close()
    if hurried:
        os.kill(running.pid, signal.SIGTERM)
    code = running.process.wait(20)
    took = time.monotonic() - began

    assert alive == (200, "ok")
    assert answer["result"]["content"] == [{"type": "text", "text": "still here"}]
    assert (code, took < notice) == (0, hurried)


def test_a_daemon_that_stops_says_so(daemon: Callable[..., RunningDaemon], servers: Path) -> None:
    """`status` has what is going on, in text and JSON, and an order that cannot be followed any more is refused."""
    running = daemon(puppet("slow", servers / "stdio_sleeper.py"), env={"MCPVISOR_GATEWAY__DRAIN_NOTICE": "30"})
    before = running.until_ready()
    assert probe(running.gateway) == (200, "ok")
    os.kill(running.pid, signal.SIGTERM)
    notice = running.until(lambda: running.status()["stopping"], "the notice")
    shown = status_lines(running.status(wait=20))[0]
    with pytest.raises(CliError, match="restart is refused, the daemon is stopping: calls are still served") as refused:
        running.order("slow", "restart")
    session = HttpCaller(running.gateway)
    session.begin("slow__sleep", {"seconds": 3})
    running.until(lambda: running.server("slow")["in_flight"] == 1, "the call")
    stopped = running.order("slow", "stop")["wanted"]
    session.answer()
    session.close()
    os.kill(running.pid, signal.SIGTERM)

    assert before["stopping"] is None
    assert notice == "calls are still served, while /readyz says that it drains"
    assert (shown, stopped) == (f"stopping: {notice}", "stopped")
    assert refused.value.exit == Exit.NO
    assert running.process.wait(20) == 0


def test_a_stop_that_nobody_looks_at_takes_no_notice(daemon: Callable[..., RunningDaemon], servers: Path) -> None:
    """Where nobody has asked `/readyz`, the end comes at once."""
    running = daemon(puppet("plain", servers / "lite.py"), env={"MCPVISOR_GATEWAY__DRAIN_NOTICE": "60"})
    running.until_ready()

    assert running.end() == 0


def probe(gateway: str, path: str = "/readyz") -> tuple[int, str]:
    """What a probe says."""
    split = urlsplit(gateway)
    connection = HTTPConnection(split.hostname or "", split.port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class HttpCaller:
    """A client of the gateway that can leave a call open: one request on one connection, read later."""

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        self._connection = HTTPConnection(split.hostname or "", split.port, timeout=30)
        self._path = split.path
        self._headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self._post({"id": 1, "method": "initialize", "params": params})
        response = self._connection.getresponse()
        response.read()
        self._headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        self._post({"method": "notifications/initialized"})
        self._connection.getresponse().read()

    def begin(self, tool: str, arguments: dict[str, object]) -> None:
        self._post({"id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

    def answer(self) -> dict[str, Any]:
        text = self._connection.getresponse().read().decode()
        data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        return json.loads(data[-1] if data else text)

    def close(self) -> None:
        self._connection.close()

    def _post(self, message: dict[str, object]) -> None:
        self._connection.request("POST", self._path, json.dumps({"jsonrpc": "2.0", **message}), self._headers)

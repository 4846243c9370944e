"""The end of the daemon: whatever way it ends, no process of its servers is left a second later."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.running import RunningDaemon, puppet

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

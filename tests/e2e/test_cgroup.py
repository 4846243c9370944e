"""A daemon whose control group was delegated to it: where it and its servers run, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import RunningDaemon, puppet
from tests.processes import is_alive

from mcpvisor.supervisor.process.delegation import empty, group_folder

pytestmark = pytest.mark.cgroup


@pytest.fixture
def delegated() -> Iterator[Path]:
    """A control group that is marked as delegated, as systemd does it."""
    own = group_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    group = own / f"mcpvisor-test-{uuid.uuid4().hex[:12]}"
    group.mkdir()
    os.setxattr(group, "user.delegate", b"1")
    yield group
    assert empty(group), f"{group} cannot be emptied"


@pytest.fixture
def enclosed(daemon, delegated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Starts daemons in the delegated group: the interpreter is one that enters it first."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho 0 > {delegated}/cgroup.procs\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    def start(servers: str, **keys: str) -> RunningDaemon:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(python))
            return daemon(servers, **keys)

    return start


def group_of(pid: int) -> str:
    """The last part of the path of a process's control group."""
    return Path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1].rpartition("/")[2]


def groups(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir() if child.is_dir())


def test_each_generation_has_a_group_and_nothing_of_it_is_left(enclosed, delegated, servers):
    """The daemon is in its leaf, a server in its group, after a restart in the next; limits that do not hold are explained."""
    running = enclosed(puppet("sleeper", servers / "stdio_sleeper.py", limits={"memory": "512MiB", "tasks": 64}))
    running.status(wait=10)
    first = running.server("sleeper")
    at_first = (group_of(running.pid), group_of(first["pid"]), groups(delegated))
    running.order("sleeper", "restart")
    running.until(lambda: running.server("sleeper")["generation"] == 2 and running.server("sleeper")["pid"], "a restart")
    running.status(wait=10)
    second = running.server("sleeper")
    at_second = (group_of(second["pid"]), groups(delegated))
    held = {"memory", "pids"} <= set((delegated / "cgroup.subtree_control").read_text().split())
    running.process.terminate()
    running.process.wait(timeout=15)

    assert ("supervisor", "sleeper-1", ["sleeper-1", "supervisor"]) == at_first
    assert ("sleeper-2", ["sleeper-2", "supervisor"]) == at_second
    assert not is_alive(first["pid"])
    assert held is (second["limits_not_enforced"] == "")
    assert held or second["limits_not_enforced"].startswith("memory, tasks: ")
    assert ["supervisor"] == groups(delegated)
    assert "" == (delegated / "supervisor" / "cgroup.procs").read_text()


def test_a_process_that_hides_reaches_no_socket_of_the_daemon(enclosed, servers, tmp_path):
    """A server's process without parents, session and environment of ours is refused on both sockets, by its group."""
    gateway, file = tmp_path / "gateway.sock", tmp_path / "said.json"
    control = tmp_path / "control.link"
    hiding = puppet("hiding", servers / "stdio_escaping.py", file, gateway, control)
    running = enclosed(hiding, auth="auto", listen=f'"unix:{gateway}"')
    control.symlink_to(running.socket)
    running.until(file.exists, "the words of the hidden process")

    assert ["HTTP/1.1 403 Forbidden"] * 2 == json.loads(file.read_text())
    assert "hiding" == running.server("hiding")["name"]  # who is no server's process is served

"""Owns mcpvisor.service in a machine for tests: its configuration, its drop-in, and what systemd and the journal say of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.systemd.installation import PROGRAM
from tests.systemd.machine import Machine

from mcpvisor.daemon.cli.client import ControlClient, server_path

T = TypeVar("T")

UNIT = "mcpvisor.service"
CONFIG = "/etc/mcpvisor/servers.d/servers.toml"
CLI = f"{PROGRAM}/bin/mcpvisor"
_DROP_IN = f"/run/systemd/system/{UNIT}.d/test.conf"


class Service:
    """The installed unit, stopped and with a drop-in of one test's own; `clear` makes it what it was."""

    def __init__(self, machine: Machine, servers: str, drop_in: str = "") -> None:
        self.machine = machine
        self._since = time.time()  # no test reads another's part of the journal
        self.configure(servers)
        if drop_in:
            machine.write(_DROP_IN, f"[Service]\n{drop_in}\n")
        machine.run("systemctl", "daemon-reload")

    def configure(self, servers: str) -> None:
        """Write the drop-in with the servers."""
        self.machine.write(CONFIG, servers)

    def systemctl(self, verb: str, *options: str) -> tuple[int, float]:
        """The exit code of a verb, and how many seconds it took."""
        began = time.monotonic()
        done = self.machine.try_run("systemctl", *options, verb, UNIT)
        return done.returncode, time.monotonic() - began

    def start(self) -> None:
        """Start it and wait until every server is as it is wanted."""
        self.machine.run("systemctl", "start", UNIT)
        self.until_ready()

    def clear(self) -> None:
        """Stop it without patience, and forget its configuration and its failures."""
        self.machine.try_run("systemctl", "kill", "--signal=KILL", UNIT)
        for command in (("stop", UNIT), ("reset-failed", UNIT)):
            self.machine.try_run("systemctl", *command)
        (self.machine.root / CONFIG.lstrip("/")).unlink(missing_ok=True)
        (self.machine.root / _DROP_IN.lstrip("/")).unlink(missing_ok=True)

    # What systemd says

    def show(self, prop: str) -> str:
        """One property of the unit; points of time in microseconds since the epoch where systemd knows them so."""
        return self.machine.run("systemctl", "show", "--value", "--timestamp=us+utc", f"--property={prop}", UNIT).strip()

    @property
    def pid(self) -> int:
        """The daemon's process, by its number in the machine."""
        return int(self.show("MainPID"))

    def processes(self) -> set[int]:
        """Every process in the unit's control group, by its number in the machine."""
        group = f"/sys/fs/cgroup/system.slice/{UNIT}"
        listed = self.machine.run("find", group, "-name", "cgroup.procs", "-exec", "cat", "{}", "+")
        return {int(pid) for pid in listed.split()}

    def proc(self, pid: int, file: str) -> str:
        """What /proc says of a process of the machine."""
        return (self.machine.root / "proc" / str(pid) / file).read_text("utf-8", "replace")

    def kill(self, signal: str) -> None:
        """Send a signal to the daemon's process alone."""
        self.machine.run("kill", f"-{signal}", str(self.pid))

    def journal(self, *matches: str) -> list[dict[str, Any]]:
        """The journal's records of this test that match, oldest first; of the unit and about it where nothing is to match."""
        wanted = matches or ("--unit", UNIT)
        self.machine.run("journalctl", "--sync")
        lines = self.machine.run("journalctl", "--output=json", f"--since=@{self._since:.6f}", *wanted)
        return [json.loads(line) for line in lines.splitlines()]

    # What the daemon says

    @property
    def control(self) -> ControlClient:
        return ControlClient(str(self.machine.root / "run/mcpvisor/control.sock"))

    def server_pids(self) -> dict[str, int]:
        """The process of each server that has one."""
        servers = self.control.get("/v1/status")["servers"]
        return {server["name"]: server["pid"] for server in servers if server["pid"] is not None}

    def call(self, server: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        result: dict[str, Any] = self.control.post(server_path(server, "/call"), {"tool": tool, "arguments": arguments})
        return result

    def metrics(self) -> str:
        """The metrics page."""
        script = "import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())"
        return self.machine.run("/usr/bin/python3", "-c", script, "http://127.0.0.1:9433/metrics")

    def until_ready(self, seconds: int = 60) -> None:
        """Return once every server is as it is wanted."""
        status = self.control.get("/v1/status", {"wait": seconds}, timeout=seconds + 5)
        assert status["healthy"], json.dumps(status["servers"], indent=1)

    def until(self, look: Callable[[], T], what: str, seconds: float = 30.0) -> T:
        """The first true value of `look`; an error within it is no value. Fails with what was waited for."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(Exception):  # the daemon is away at times, and its processes too
                value = look()
                if value:
                    return value
            if time.monotonic() > deadline:
                told = self.machine.run("systemctl", "status", "--no-pager", "--lines=30", UNIT, check=False)
                raise AssertionError(f"{what} did not come within {seconds:g} s:\n{told}")
            time.sleep(0.05)

    def text(self, path: str) -> str:
        """A file of the machine."""
        return Path(self.machine.root / path.lstrip("/")).read_text()

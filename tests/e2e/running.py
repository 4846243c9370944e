"""Owns a real daemon as a process of its own: its configuration, the questions a test puts to it, and its certain end."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests import nursery

from mcpvisor.daemon.cli.client import ControlClient, server_path
from mcpvisor.daemon.cli.exits import CliError
from mcpvisor.supervisor.process.sweep import find_marked

T = TypeVar("T")

START_SECONDS = 60.0
END_SECONDS = 30.0
SWEEP_SECONDS = 20.0
"""How long the guardian of a daemon that was killed may take."""


def toml(value: Any) -> str:
    """A value as TOML writes it; what JSON writes alike is taken from there."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def entry(name: str, *command: str | Path, **keys: Any) -> str:
    """The table of one server; `command` is its program and arguments, `keys` any other key of an entry."""
    given: dict[str, Any] = {"command": command[0], "args": command[1:]} if command else {}
    return "\n".join([f"[servers.{name}]", *(f"{key} = {toml(value)}" for key, value in {**given, **keys}.items())]) + "\n"


def puppet(name: str, script: Path, *args: str, **keys: Any) -> str:
    """The table of one puppet server, run by this Python; its ladder of ends is short."""
    return entry(name, sys.executable, script, *args, **{"stop": {"stdin": "300ms", "term": "300ms"}, **keys})


class RunningDaemon:
    """A daemon under its own folder, with free ports and sockets of its own."""

    def __init__(
        self,
        folder: Path,
        servers: str,
        *,
        auth: str = "open",
        listen: str = '"127.0.0.1:0"',
        settings: str = "",
        env: Mapping[str, str] | None = None,
        more: Sequence[Path] = (),
    ):
        """`servers` is the text of a drop-in, `settings` more of the main file; the process runs when this returns.

        `more` are further files or folders that it is started with.

        `auth` and `listen` are the gateway's, the latter as it is written in TOML.
        """
        self.folder = folder
        self.socket = folder / "control.sock"
        self.drop_ins = folder / "config" / "servers.d"
        self.drop_ins.mkdir(parents=True)
        self.write("servers.toml", servers)
        (folder / "config" / "mcpvisor.toml").write_text(
            f'[daemon]\nstate_dir = "{folder}/state"\n'
            '[log]\nlevel = "warning"\n'
            f'[gateway]\nlisten = {listen}\nauth = "{auth}"\n'
            f'[control]\nlisten = "unix:{self.socket}"\n'
            '[metrics]\nlisten = "127.0.0.1:0"\n' + settings
        )
        self.log = folder / "stderr"
        self._env = dict(env or {})
        self._configs = [folder / "config", *more]
        self.process = self.start()
        self.control = ControlClient(str(self.socket))

    def write(self, name: str, text: str) -> None:
        """Write a drop-in the way careful editors do: whole, or not at all."""
        beside = self.drop_ins / f".{name}.new"
        beside.write_text(text)
        beside.replace(self.drop_ins / name)

    def start(self) -> nursery.Process:
        """Start the process, once more after it has ended."""
        configs = [argument for config in self._configs for argument in ("--config", str(config))]
        words = ["run", *configs]
        with self.log.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            self.process = nursery.start(
                words, stdin=nothing, stdout=log, stderr=log, env={**os.environ, **self._env}, cwd=self.folder
            )
        return self.process

    # What a test wants to know

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def instance(self) -> str:
        """The id that every process of its servers carries."""
        return (self.folder / "state" / "instance").read_text().strip()

    def status(self, **query: Any) -> dict[str, Any]:
        """What `mcpvisor status --json` prints; `wait` in seconds until all is as it is wanted."""
        answer: dict[str, Any] = self.control.get("/v1/status", query or None, timeout=20 + float(query.get("wait", 0)))
        return answer

    def server(self, name: str) -> dict[str, Any]:
        """One server of `status`."""
        return next(one for one in self.status()["servers"] if one["name"] == name)

    def addresses(self, listener: str) -> list[str]:
        """Where a listener is reached: `gateway` or `metrics`."""
        found: list[str] = self.status()["daemon"]["addresses"][listener]
        return found

    @property
    def gateway(self) -> str:
        """The URL of the MCP endpoint."""
        return f"{self.addresses('gateway')[0]}/mcp"

    def call(self, server: str, tool: str, timeout: float = 15.0, **arguments: Any) -> dict[str, Any]:
        """The result of a call through the control API. Raises Refused where there is none."""
        answer: dict[str, Any] = self.control.post(
            server_path(server, "/call"), {"tool": tool, "arguments": arguments}, timeout=timeout
        )
        return answer

    def rows(self, query: str) -> list[Any]:
        """What is in the state file."""
        with closing(sqlite3.connect(f"file:{self.folder}/state/state.db?mode=ro", uri=True)) as connection:
            found: list[Any] = connection.execute(query).fetchall()
        return found

    def order(self, server: str, order: str) -> dict[str, Any]:
        """Give an operator's order."""
        answer: dict[str, Any] = self.control.post(server_path(server, f":{order}"))
        return answer

    def until(self, look: Callable[[], T], what: str, seconds: float = 30.0) -> T:
        """The first true value of `look`; fails with what was waited for, and the whole status, when the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            value = look()
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"{what} did not come within {seconds:g} s: {json.dumps(self.status(), indent=1)}")
            time.sleep(0.02)

    def until_serving(self) -> None:
        """Return once the control socket answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(CliError):
                self.status()
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log_text()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the daemon does not serve:\n{self.log_text()}")
            time.sleep(0.02)

    def until_ready(self, seconds: int = 60) -> dict[str, Any]:
        """The status once every server is as it is wanted."""
        status = self.status(wait=seconds)
        assert status["healthy"], json.dumps(status["servers"], indent=1)
        return status

    def living(self) -> list[int]:
        """The processes of its servers that still run."""
        return find_marked(self.instance)

    def log_text(self) -> str:
        """What the daemon has written on stdout and stderr."""
        return self.log.read_text("utf-8", "replace")

    # Its end

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and return the exit code, negative for a signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(END_SECONDS)

    def _left(self) -> list[int]:
        return self.living() if (self.folder / "state" / "instance").exists() else []

    def clear(self) -> list[int]:
        """End it whatever it does; the processes that its end had left behind, which are killed too."""
        try:
            self.end()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_SECONDS)
        deadline = time.monotonic() + SWEEP_SECONDS
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


@contextmanager
def serving(daemon: RunningDaemon) -> Iterator[None]:
    """A daemon that was just started, from when it serves on; it has to leave nothing, and a failing test shows its log."""
    try:
        daemon.until_serving()
        yield
    finally:
        left = daemon.clear()
        print(daemon.log_text())
    assert [] == left

"""Owns a puppet daemon in a process of its own, and the command line as its users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import nursery

COMMAND = Path(sys.executable).with_name("mcpvisor")
"""The command as it is installed."""

PUPPET = Path(__file__).parents[1] / "control" / "puppet.py"
INSTANCE = "instance-of-tests"


class Daemon:
    """A running puppet daemon; `tell` moves its puppets."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        (its_stdin, ours), (theirs, its_stdout) = os.pipe(), os.pipe()
        with open(its_stdin) as stdin, open(its_stdout, "w") as stdout:
            words = [path, INSTANCE, *options]
            self.process = nursery.start(words, program=PUPPET, stdin=stdin, stdout=stdout, stderr=sys.__stderr__)
        self._orders, self._answers = os.fdopen(ours, "w"), os.fdopen(theirs)
        assert self._answers.readline() == "serving\n"

    def tell(self, line: str) -> None:
        self._orders.write(line + "\n")
        self._orders.flush()
        assert self._answers.readline() == "done\n"

    def end(self) -> None:
        self._orders.close()
        self.process.wait(20)
        self._answers.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts puppet daemons that end with the test."""
    running: list[Daemon] = []

    def run(*options: str) -> Daemon:
        running.append(Daemon(tmp_path / f"control-{len(running)}.sock", *options))
        return running[-1]

    yield run
    for daemon in running:
        daemon.end()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A puppet daemon with the servers `good`, `bad` (in backoff) and `off` (disabled), for tests that only look."""
    running = Daemon(tmp_path_factory.mktemp("daemon") / "control.sock")
    yield running
    running.end()


def environ(path: Path | None, **more: str) -> dict[str, str]:
    """The environment of a command: this daemon's socket, and nothing of the tester's own."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "XDG_RUNTIME_DIR")}
    return {**kept, **({"MCPVISOR_SOCKET": str(path)} if path else {}), **more}


@pytest.fixture
def mcpvisor(daemon: Daemon) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line as a process, against the puppet daemon or against another socket."""

    def run(*arguments: str, path: Path | None = daemon.path, stdin: str = "", **more: str):
        return nursery.run(arguments, env=environ(path, **more), typed=stdin)

    return run

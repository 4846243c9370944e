"""`mcpvisor demo` as a person runs it: a tour whose every line is true, and nothing left of it after Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.processes import is_alive

from mcpvisor.supervisor.process.sweep import INSTANCE_VARIABLE, find_marked

COMMAND = Path(sys.executable).with_name("mcpvisor")

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    }
).encode()


class Demo:
    """The demonstration, in a session of its own as in a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCPVISOR_", "XDG_"))}
        self.folder = folder
        self.env = {**kept, "XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(folder)}
        self._out = folder / "stdout"
        self._err = folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [COMMAND, "demo"], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.env, start_new_session=True
            )

    def said(self) -> str:
        return self._out.read_text()

    def complained(self) -> str:
        return self._err.read_text()

    def until(self, is_so: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < deadline, f"{what}:\n{self.said()}\n{self.complained()}"
            time.sleep(0.02)

    def tour(self) -> list[str]:
        """The lines of the tour, once it is shown."""
        self.until(lambda: "\n3. " in self.said() and self.said().endswith("\n"), "no tour")
        return [line for line in self.said().splitlines() if re.match(r"[0-9]+\. ", line)]

    def run(self, command: str) -> tuple[str, str]:
        """What a command prints, on stdout and on stderr, that was copied from the tour into a shell."""
        done = subprocess.run(["sh", "-c", command], env=self.env, capture_output=True, text=True, timeout=60)
        assert 0 == done.returncode, done.stderr
        return done.stdout, done.stderr

    def pids(self) -> dict[str, int]:
        """The processes of the servers, by `mcpvisor status`; the socket is named where the tour names it."""
        named = re.search(r"(--socket \S+) ", self.tour()[2])
        status = json.loads(self.run(f"{COMMAND} {named[1] if named else ''} status --json")[0])
        return {one["name"]: one["pid"] for one in status["servers"]}

    def interrupt(self) -> int:
        """Ctrl-C: the signal goes to the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A running demonstration, under a folder short enough for a socket's path."""
    running = Demo(tmp_path_factory.mktemp("m"))
    yield running
    if running.process.poll() is None:
        running.process.terminate()
        running.process.wait(30)
    print(running.said(), running.complained())


def test_the_tour_has_three_lines_that_are_true(demo):
    """Where the endpoint is, a call, and a real process to kill; what is named answers."""
    endpoint, call, kill = demo.tour()
    pids = demo.pids()
    gateway, metrics = re.findall(r"http://[^ ,;]+", endpoint)
    with urllib.request.urlopen(metrics.rstrip("."), timeout=20) as page:
        families = page.read().decode()
    with urllib.request.urlopen(urllib.request.Request(gateway, data=INITIALIZE, headers=HEADERS), timeout=20) as answer:
        greeting = answer.read().decode()

    assert '"serverInfo"' in greeting
    assert 'mcpvisor_server_up{server="flaky"} 1.0' in families
    assert gateway.endswith("/mcp")
    assert str(COMMAND) in call
    assert f"kill -9 {pids['flaky']} " in kill
    assert str(COMMAND) in kill
    assert {"clock", "flaky", "slow"} == pids.keys()
    assert all(is_alive(pid) for pid in pids.values())


def test_the_call_and_the_kill_do_what_they_say(demo):
    """The call counts down and answers; the killed server is back by itself, under another pid, and one is told of it."""
    _, call, kill = demo.tour()
    pid = demo.pids()["flaky"]
    answer, progress = demo.run(call.split(":", 1)[1])
    demo.run(shlex.join(shlex.split(kill.split(":", 1)[1])[:3]))
    demo.until(lambda: f"flaky  pid {pid} ended by signal 9" in demo.said(), "its end was not told")
    demo.until(lambda: demo.said().count("flaky  restoring -> ready") == 2, "it did not come back")
    after = demo.pids()

    assert "lift-off" in answer
    assert [f"mcpvisor: {step} of 3:" for step in range(4)] == [line.rpartition(" ")[0] for line in progress.splitlines()]
    assert after["flaky"] not in (None, pid)
    assert 3 == len(demo.tour()), "the tour is given once"


def test_ctrl_c_ends_it_with_nothing_left(demo):
    """Exit code 0, no process, no file, and no word on stderr."""
    demo.tour()
    pids = demo.pids()
    environ = Path(f"/proc/{pids['clock']}/environ").read_bytes().split(b"\0")
    mark = f"{INSTANCE_VARIABLE}=".encode()
    instance = next(one for one in environ if one.startswith(mark)).removeprefix(mark).decode()
    before = find_marked(instance)

    assert 0 == demo.interrupt()
    assert set(pids.values()) <= set(before)
    assert [] == find_marked(instance)
    assert [] == [pid for pid in pids.values() if is_alive(pid)]
    assert [] == [path for path in demo.folder.rglob("*") if path.name not in ("stdout", "stderr", "mcpvisor")]
    assert "" == demo.complained()

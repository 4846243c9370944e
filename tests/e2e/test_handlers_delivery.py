"""What was accepted for a handler reaches it: whatever becomes of the receiver, of the worker, and of the daemon."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.e2e.running import RunningDaemon, puppet, toml
from tests.supervisor.transports.http_rig import Puppet, launch

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError

SERVERS = Path(__file__).parents[1] / "servers"
QUIET = puppet("quiet", SERVERS / "lite.py")
KEY = "a-secret-of-some-length"
PATIENCE = 60.0
"""Seconds that something may take on a busy machine; it takes one or two."""

QUICK = {"retry": {"attempts": 1000, "delay": "50ms", "max_delay": "200ms"}, "circuit": {"failures": 3, "open_for": "100ms"}}


class Receiver:
    """A receiver of webhooks that can be ended and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "received"
        self.log.touch()
        self._port = 0
        self.puppet = self.start()

    def start(self) -> Puppet:
        self.puppet = launch("webhook_receiver.py", "--port", str(self._port), "--log", str(self.log))
        self._port = urlsplit(self.puppet.url).port or 0
        return self.puppet

    def end(self) -> None:
        self.puppet.end()

    @property
    def ids(self) -> set[str]:
        return set(self.log.read_text().split())


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path)
    yield receiver
    receiver.end()


def handler(name: str, **keys: Any) -> str:
    lines = [f"[handlers.{name}]", *(f"{key} = {toml(value)}" for key, value in {**QUICK, **keys}.items())]
    return "\n".join([*lines, "[[routes]]", 'event = "resource_updated"', f'handler = "{name}"', ""])


def hook(receiver: Receiver, **keys: Any) -> str:
    return handler("hook", type="webhook", url=receiver.puppet.url, secret=KEY, **keys)


def emit(control: ControlClient, number: int, wait: float = 0.01) -> tuple[str, str]:
    """Send a test event; its id, and what has become of it in that time."""
    body = {"kind": "resource_updated", "server": "quiet", "uri": f"test://{number}", "timeout": wait}
    answer = control.post("/v1/events:emit", body, timeout=20)
    (way,) = answer["ways"]
    return answer["event"]["id"], way["outcome"]


def counted(running: RunningDaemon, outcome: str) -> int:
    """How many events the metrics say to have that outcome."""
    with urllib.request.urlopen(f"http://{running.addresses('metrics')[0]}/metrics", timeout=20) as page:
        text = page.read().decode()
    found = re.findall(rf'^mcpvisor_handler_events_total{{[^}}]*outcome="{outcome}"[^}}]*}} (\d+)', text, re.MULTILINE)
    return sum(map(int, found))


def test_a_receiver_that_fails_and_comes_back_gets_every_event(
    daemon: Callable[..., RunningDaemon], receiver: Receiver
) -> None:
    """A receiver that refuses, hangs, closes, redirects, answers 500, and is away for a while, has every event in the end."""
    receiver.puppet.control("set", turns=[500, "hang", "close", 503, 404, 401, "moved", "hang", 500])
    running = daemon(QUIET + hook(receiver, deadline="300ms", concurrency=2))
    sent = {emit(running.control, number)[0] for number in range(20)}
    running.until(lambda: len(receiver.ids) >= 15, "what was sent before it went away", PATIENCE)
    receiver.end()
    sent |= {emit(running.control, number)[0] for number in range(20, 40)}
    running.until(
        lambda: running.control.get("/v1/handlers")["handlers"][0]["failures"] >= 3, "its absence to be seen", PATIENCE
    )
    receiver.start()
    sent |= {emit(running.control, number)[0] for number in range(40, 50)}
    running.until(lambda: sent <= receiver.ids, "every event", PATIENCE)

    assert 50 == len(sent)
    assert sent == receiver.ids
    assert 0 == running.control.get("/v1/handlers/dead")["total"]
    assert KEY not in running.log_text() + json.dumps(running.control.get("/v1/handlers"))


@pytest.mark.parametrize("way", ["hang", 500], ids=["hanging", "refusing"])
def test_a_kill_between_accept_and_delivery_loses_nothing(
    daemon: Callable[..., RunningDaemon], receiver: Receiver, way: str | int
) -> None:
    """Events that were accepted while the receiver hung or refused are delivered by the next run after a SIGKILL."""
    receiver.puppet.control("set", always=way)
    running = daemon(QUIET + hook(receiver, deadline="20s"))
    sent = {emit(running.control, number)[0] for number in range(30)}
    running.until(lambda: counted(running, "accepted") == 30, "them to be accepted", PATIENCE)
    assert set() == receiver.ids
    running.end(signal.SIGKILL)
    receiver.puppet.control("set", always=None)
    running.start()
    running.until_serving()
    running.until(lambda: sent <= receiver.ids, "every event", PATIENCE)

    assert sent == receiver.ids


@pytest.mark.slow
def test_kills_in_a_storm_lose_nothing_that_was_accepted(daemon: Callable[..., RunningDaemon], receiver: Receiver) -> None:
    """While events pour in the daemon is killed twice: whatever it had said to be with the handler arrives."""
    receiver.puppet.control("set", turns=[500, 200, "close"] * 30)
    running = daemon(QUIET + hook(receiver, deadline="2s"))
    promised: set[str] = set()
    stop = threading.Event()

    def pour() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                sent, outcome = emit(ControlClient(str(running.socket)), number, wait=2)
            except (CliError, OSError, ValueError):
                stop.wait(0.05)  # nobody is there: the next run needs the machine more than we do
                continue
            if outcome in ("handled", "failed"):
                promised.add(sent)

    pouring = threading.Thread(target=pour)
    pouring.start()
    try:
        for promises in (10, 20):
            running.until(lambda enough=promises: len(promised) >= enough, "enough events", PATIENCE)
            running.end(signal.SIGKILL)
            running.start()
            running.until_serving()
    finally:
        stop.set()
        pouring.join(30)
    running.until(lambda: promised <= receiver.ids, "every event", PATIENCE)

    assert len(promised) >= 20


CODE = """
import os
from pathlib import Path
FOLDER = Path(__file__).parent
class Handler:
    async def deliver(self, event):
        if not (FOLDER / "well").exists():
            os._exit(3)
        with (FOLDER / "log").open("a") as log:
            log.write(event.id + "\\n")
"""


def test_a_worker_that_crashes_gets_every_event(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    """A worker that crashes on each event has all of them once its code is mended; servers notice nothing of it."""
    (tmp_path / "hooks.py").write_text(CODE)
    (tmp_path / "log").touch()
    running = daemon(QUIET + handler("code", type="python", object="hooks:Handler", path=str(tmp_path)))
    before = running.until_ready()["servers"][0]["pid"]
    sent = {emit(running.control, number)[0] for number in range(10)}
    running.until(lambda: running.control.get("/v1/handlers")["handlers"][0]["failures"] >= 2, "it to crash", PATIENCE)
    (tmp_path / "well").touch()
    running.until(lambda: sent == set((tmp_path / "log").read_text().split()), "every event", PATIENCE)

    assert "the worker exited with code 3" in running.log_text()
    assert before == running.status()["servers"][0]["pid"]


def test_a_killed_daemon_leaves_no_worker(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    """The guardian ends the workers of a daemon that was killed, with what they have started."""
    code = "import subprocess\nclass Handler:\n    async def deliver(self, event):\n"
    code += "        subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
    (tmp_path / "hooks.py").write_text(code)
    running = daemon(QUIET + handler("code", type="python", object="hooks:Handler", path=str(tmp_path)))
    running.until_ready()
    assert "handled" == emit(running.control, 1, wait=15)[1]
    assert 3 == len(running.living())
    running.end(signal.SIGKILL)
    give_up = time.monotonic() + 20
    while running.living() and time.monotonic() < give_up:
        time.sleep(0.02)
    assert [] == running.living()


def test_a_reload_changes_the_receiver(daemon: Callable[..., RunningDaemon], receiver: Receiver, tmp_path: Path) -> None:
    """An edit of the address takes what waits to the new receiver; nothing is sent to the old one any more."""
    folder = tmp_path / "other"
    folder.mkdir()
    other = Receiver(folder)
    try:
        receiver.puppet.control("set", always=500)
        running = daemon(QUIET + hook(receiver))
        sent = {emit(running.control, number)[0] for number in range(5)}
        running.write("servers.toml", QUIET + hook(other))
        running.until(lambda: sent <= other.ids, "every event", PATIENCE)
        assert (set(), sent) == (receiver.ids, other.ids)
    finally:
        other.end()

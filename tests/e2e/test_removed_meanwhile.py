"""A server that is removed or disabled while something is under way that would start it never comes back."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.e2e.running import RunningDaemon, entry, puppet
from tests.supervisor.transports.http_rig import SERVERS

pytestmark = pytest.mark.slow

LITE, DYING, SLOW = SERVERS / "lite.py", SERVERS / "stdio_exit_after_init.py", SERVERS / "stdio_slow_start.py"
OFTEN = {"delay": "50ms", "max_delay": "200ms", "intensity": "off"}
RARELY = {"delay": "800ms", "max_delay": "800ms", "intensity": "off"}
A_WHILE = 1.2
"""Seconds; longer than any of these delays, so that a try which was due would have come."""
STEADY = puppet("steady", LITE)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with one server that nobody touches."""
    one = RunningDaemon(tmp_path_factory.mktemp("d"), STEADY)
    try:
        one.until_serving()
        one.until_ready()
        yield one
    finally:
        left = one.clear()
        print(one.log_text())
    assert [] == left


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Two addresses in one text: where nobody listens, and where somebody takes connections and says nothing."""
    with ExitStack() as sockets:
        closed, silent = (sockets.enter_context(socket.socket()) for _ in range(2))
        for one in (closed, silent):
            one.bind(("127.0.0.1", 0))
        silent.listen(50)
        yield f"{closed.getsockname()[1]} {silent.getsockname()[1]}"


def restless(nowhere: str, **keys: Any) -> str:
    """Servers in every state from which one is started again by itself, or in which a start is under way."""
    closed, silent = nowhere.split()
    return "".join(
        [
            puppet("flapping", DYING, "after-init", restart=OFTEN, **keys),
            puppet("dying", DYING, "before", restart=OFTEN, **keys),
            puppet("waiting", DYING, "before", restart=RARELY, **keys),
            puppet("looping", DYING, "before", restart={**OFTEN, "intensity": "2/60s", "crash_loop_retry": "300ms"}, **keys),
            puppet("slow", SLOW, "30", **keys),
            puppet("hanging", LITE, "--hang-init", **keys),
            puppet("timed", LITE, "--hang-init", start_timeout="200ms", restart=OFTEN, **keys),
            puppet("serving", LITE, "--linger", **keys),
            entry("unreachable", url=f"http://127.0.0.1:{closed}/mcp", restart=OFTEN, **keys),
            entry("dialling", url=f"http://127.0.0.1:{silent}/mcp", restart=OFTEN, **keys),
        ]
    )


NAMES = {"flapping", "dying", "waiting", "looping", "slow", "hanging", "timed", "serving", "unreachable", "dialling"}


def states(running: RunningDaemon) -> dict[str, str]:
    return {one["name"]: one["state"] for one in running.status()["servers"]}


def test_removed_and_disabled_in_every_state(running: RunningDaemon, nowhere: str) -> None:
    """After the edit each is gone, with its process, or `disabled`; no try that was due or under way brings one back."""
    running.write("servers.toml", STEADY + restless(nowhere))
    expected = {"slow": "negotiating", "hanging": "negotiating", "serving": "ready", "looping": "crash_loop"}
    running.until(lambda: expected.items() <= states(running).items() and len(states(running)) == 11, "their states")
    running.until(lambda: states(running)["waiting"] == "backoff", "a wait before the next try")
    steady = running.server("steady")

    running.write("servers.toml", STEADY + restless(nowhere, enabled=False))
    running.until(lambda: [states(running)[name] for name in NAMES] == ["disabled"] * 10, "all disabled", 40)
    running.until(lambda: running.living() == [steady["pid"]], "the end of their processes")
    generations = {one["name"]: one["generation"] for one in running.status()["servers"]}
    time.sleep(A_WHILE)
    assert generations == {one["name"]: one["generation"] for one in running.status()["servers"]}
    assert {"disabled"} == {states(running)[name] for name in NAMES}
    assert [steady["pid"]] == running.living()

    running.write("servers.toml", STEADY + restless(nowhere))
    running.until(lambda: expected.items() <= states(running).items(), "their states again")
    running.write("servers.toml", STEADY)
    running.until(lambda: set(states(running)) == {"steady"}, "their removal", 40)
    running.until(lambda: running.living() == [steady["pid"]], "the end of their processes")
    time.sleep(A_WHILE)
    assert {"steady": "ready"} == states(running)
    assert [steady["pid"]] == running.living()
    assert steady["since"] == running.server("steady")["since"]


@pytest.mark.parametrize("way", ["removed", "disabled"])
def test_at_every_moment_of_a_start(running: RunningDaemon, way: str) -> None:
    """From the first moment of a start until after its end: whenever the edit comes, nothing of the server is left."""
    for number in range(12):
        name = f"brief{number}"
        script, args = (LITE, ()) if number % 2 else (DYING, ("after-init",))
        running.write("servers.toml", STEADY + puppet(name, script, *args, restart=OFTEN))
        assert running.control.post("/v1/reload", {"wait": False}, timeout=20)["ok"]
        time.sleep(number * 0.02)  # the moment is the subject
        text = puppet(name, script, *args, restart=OFTEN, enabled=False) if way == "disabled" else ""
        running.write("servers.toml", STEADY + text)
        assert running.control.post("/v1/reload", {"wait": False}, timeout=20)["ok"]
        wanted = {"steady": "ready", **({name: "disabled"} if text else {})}
        running.until(lambda wanted=wanted: states(running) == wanted, f"{name} {way}")
        running.until(lambda: len(running.living()) == 1, f"the end of {name}")
    time.sleep(A_WHILE)
    assert [running.server("steady")["pid"]] == running.living()
    assert len(states(running)) <= 2

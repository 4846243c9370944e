"""What an operator sees of one running daemon by `plan`, `log-level`, `doctor` and `connect`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, entry, puppet

COMMAND = Path(sys.executable).with_name("mcpvisor")
PUPPET = Path(__file__).parents[1] / "servers" / "lite.py"

SERVERS = """
[handlers.note]
type = "log"
[[routes]]
event = "resource_updated"
server = "good"
uri = "memo://**"
handler = "note"
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with a server that is well, one without its program, one elsewhere, and a handler; its gateway wants a token."""
    folder = tmp_path_factory.mktemp("view")
    folder.chmod(0o755)
    servers = puppet("good", PUPPET) + entry("lost", "no-such-program-anywhere")
    servers += entry("away", url="https://mcp.invalid/mcp", enabled=False) + SERVERS
    running = RunningDaemon(folder, servers, auth="auto")
    running.until_serving()
    running.until(lambda: running.server("good")["state"] == "ready", "good is ready")
    yield running
    assert [] == running.clear()


@pytest.fixture
def mcpvisor(daemon: RunningDaemon) -> Run:
    """Runs the command against the daemon."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return nursery.run(arguments, env={**os.environ, "MCPVISOR_SOCKET": str(daemon.socket), "PATH": "/nowhere"}, timeout=60)

    return run


def test_orders_are_drift_in_the_plan(daemon: RunningDaemon, mcpvisor: Run) -> None:
    """A server that was stopped, and a log level that was changed, are in the plan until they are taken back: who and when."""
    before = mcpvisor("plan", "--exit-code")
    daemon.order("good", "stop")
    level = mcpvisor("log-level", "debug")
    plan = mcpvisor("plan", "--exit-code")
    told = json.loads(mcpvisor("plan", "--json").stdout)["drift"]
    refused = mcpvisor("log-level", "loud")
    back = mcpvisor("log-level", "configured")
    daemon.order("good", "start")
    after = mcpvisor("plan", "--exit-code")

    assert (0, 0) == (before.returncode, after.returncode), plan.stdout
    assert (1, 64, 0, 0) == (plan.returncode, refused.returncode, level.returncode, back.returncode)
    assert "warning, as configured\n" == back.stdout
    lines = [line for line in plan.stdout.splitlines() if line.startswith("drift")]
    assert ["good is stopped by order of ", "log.level is debug by order of "] == [
        line[9:].partition(" of ")[0] + " of " for line in lines
    ]
    assert ["the files say running", "the files say warning"] == [line.rpartition(", ")[2] for line in lines]
    assert [("server", "good", "stopped", "running"), ("log.level", "", "debug", "warning")] == [
        (one["what"], one["server"], one["actual"], one["configured"]) for one in told
    ]
    assert all(one["by"] and one["at"] > 1_700_000_000 for one in told)


def test_the_log_shows_more_at_once(daemon: RunningDaemon, mcpvisor: Run) -> None:
    """A level that is ordered holds at once, and the log says who ordered it."""
    assert 0 == mcpvisor("log-level", "debug").returncode
    daemon.until(lambda: "set the log level to debug" in daemon.log_text(), "the order in the log")
    assert 0 == mcpvisor("log-level", "configured").returncode
    shown = json.loads(mcpvisor("log-level", "--json").stdout)

    assert {"level": "warning", "configured": "warning", "by": None, "at": None} == shown


def test_the_plan_says_whom_an_event_would_reach(daemon: RunningDaemon, mcpvisor: Run, tmp_path: Path) -> None:
    """The plan of other files says where an event would go by their routes, and where it goes now."""
    tmp_path.chmod(0o755)
    other = tmp_path / "other.toml"
    other.write_text('[handlers.mail]\ntype = "log"\n[[routes]]\nevent = "resource_updated"\nhandler = "mail"\n')
    other.chmod(0o644)
    event = ("--event", "resource_updated", "--server", "good")

    same = mcpvisor("plan", *event, "--uri", "memo://a")
    elsewhere = mcpvisor("plan", *event, "--uri", "file:///a")
    changed = mcpvisor("plan", str(other), *event, "--uri", "memo://a", "--json")
    wrong = mcpvisor("plan", "--event", "resource_updaetd", "--server", "good")
    bare = mcpvisor("plan", "--uri", "memo://a")

    assert "event    resource_updated of good would reach note by " in same.stdout
    assert "now it reaches" not in same.stdout
    assert "event    resource_updated of good would reach no handler" in elsewhere.stdout
    ways = json.loads(changed.stdout)
    assert (["mail"], ["note"]) == ([way["handler"] for way in ways["ways"]], [way["handler"] for way in ways["ways_now"]])
    assert (64, 64) == (wrong.returncode, bare.returncode)
    assert "say which kind by --event" in bare.stderr


def test_the_doctor_sees_with_the_eyes_of_the_daemon(daemon: RunningDaemon, mcpvisor: Run) -> None:
    """A program is looked for on the daemon's PATH, not on that of whoever asks; what is missing is an error with a remedy."""
    result = mcpvisor("doctor", "--json")
    found = json.loads(result.stdout)["findings"]
    by_server = {(one["server"], one["check"]): one for one in found}

    assert 1 == result.returncode
    assert "ok" == by_server[("good", "program")]["level"]
    lost = by_server[("lost", "program")]
    assert "error" == lost["level"]
    assert "there is no no-such-program-anywhere on the daemon's PATH=" in lost["text"]
    assert "/nowhere" not in lost["text"]
    assert lost["remedy"].startswith("install it")
    assert "unknown" == by_server[("away", "network")]["level"]
    assert {"ok"} == {one["level"] for one in found if one["check"] in {"address", "state_dir", "daemon"}}
    assert {"versions", "clock", "file watches", "systemd", "open files", "control groups", "disk"} <= {
        one["check"] for one in found
    }


def test_the_doctor_looks_at_one_server(daemon: RunningDaemon, mcpvisor: Run) -> None:
    """One server alone is looked at where it is named, and its host is asked then; a server that is not there is told."""
    good, away, nobody = mcpvisor("doctor", "good"), mcpvisor("doctor", "away"), mcpvisor("doctor", "nobody")

    assert (0, "0 errors, 0 warnings, 0 unknown") == (good.returncode, good.stdout.splitlines()[-1])
    assert {"good"} == {line.split()[1].rstrip(":") for line in good.stdout.splitlines()[:-1]}
    assert 1 == away.returncode
    assert "away: dns: " in away.stdout
    assert (1, "mcpvisor: no server is named 'nobody'; there are away, good, lost\n") == (nobody.returncode, nobody.stderr)


def test_connect_names_what_a_client_needs(daemon: RunningDaemon, mcpvisor: Run) -> None:
    """The token is written only where it is asked for; otherwise a variable stands there, and it is said who may read it."""
    token = (daemon.folder / "state" / "gateway.token").read_text().strip()
    url = f"{daemon.addresses('gateway')[0]}/mcp"

    plain, whole = mcpvisor("connect", "claude-code"), mcpvisor("connect", "claude-code", "--token")
    one = json.loads(mcpvisor("connect", "cursor", "--server", "good", "--json").stdout)
    by_stdio = json.loads(mcpvisor("connect", "claude-desktop").stdout)
    listed = mcpvisor("connect")
    unknown = mcpvisor("connect", "emacs")

    assert token not in plain.stdout + plain.stderr + listed.stdout + listed.stderr
    expected = {"type": "http", "url": url, "headers": {"Authorization": "Bearer ${MCPVISOR_TOKEN}"}}
    assert {"mcpServers": {"mcpvisor": expected}} == json.loads(plain.stdout)
    assert f"the token is in {daemon.folder}/state/gateway.token (readable by root" in plain.stderr
    assert f"Bearer {token}" == json.loads(whole.stdout)["mcpServers"]["mcpvisor"]["headers"]["Authorization"]
    assert f"{url}/good" == one["url"]
    assert {"good"} == set(json.loads(one["text"])["mcpServers"])
    started = by_stdio["mcpServers"]["mcpvisor"]
    assert (str(COMMAND), ["stdio", "--socket", str(daemon.socket)]) == (started["command"], started["args"])
    assert "claude-desktop" in listed.stdout
    assert (64, "emacs" in unknown.stderr) == (unknown.returncode, True)

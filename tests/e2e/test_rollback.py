"""Versions of entries with a real daemon: what does not become ready is taken back, and what was good survives a restart."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, entry, puppet
from tests.processes import is_alive
from tests.supervisor.transports.http_rig import puppet as http_puppet

from mcpvisor.daemon.cli.exits import Exit

Start = Callable[..., RunningDaemon]

CANARY = "canary-7f3a9b2c51d8"


def program(servers: Path, *args: str, **keys: object) -> str:
    """An entry that is ready, or is not, by its script."""
    script = servers / (args[0] if args else "stdio_moody.py")
    return puppet("x", script, **{"start_timeout": "2s", "restart": {"delay": "100ms"}, **keys})


def verb(daemon: RunningDaemon, *words: str) -> tuple[int, str]:
    """What a verb of the command line prints, and its exit code."""
    done = nursery.run([*words, "--socket", daemon.socket], timeout=60)
    return done.returncode, done.stdout + done.stderr


def rejected(daemon: RunningDaemon) -> list[str]:
    """What `status` says is written and not in force."""
    return [f"{one['where']}: {one['error']}" for one in daemon.status()["config"]["rejected"]]


def metric(daemon: RunningDaemon, name: str) -> float:
    """One number of the metrics."""
    with urllib.request.urlopen(f"http://{daemon.addresses('metrics')[0]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def test_a_program_that_does_not_come_up_is_taken_back(daemon: Start, servers: Path) -> None:
    """`reload --wait` says so with 78, all show it, a restart of the daemon changes nothing, and an order tries again."""
    running = daemon(program(servers))
    running.until_ready()
    running.write("servers.toml", program(servers, "not_there.py"))
    code, told = verb(running, "reload", "--wait", "--timeout", "30s")
    shown = (running.server("x")["state"], rejected(running), metric(running, "mcpvisor_config_rejected_entries"))
    explained = verb(running, "explain", "x")[1]
    _, events = verb(running, "events", "--server", "x", "--kind", "version_rolled_back")
    running.end(signal.SIGKILL)
    running.start()
    running.until_serving()
    running.until_ready()
    after = rejected(running)
    running.order("x", "restart")
    running.until(lambda: [one for one in rejected(running) if one != after[0]], "the second rollback")
    running.until_ready()
    running.write("servers.toml", program(servers))
    running.until(lambda: not rejected(running), "the mended entry")

    where = f"{running.drop_ins}/servers.toml:1"
    assert (Exit.CONFIG, "ready", 1) == (code, shown[0], shown[2])
    assert len(shown[1]) == 1
    assert shown[1][0].startswith(f"{where}: servers.x: rolled back at ")
    assert "exited with code 2" in shown[1][0]
    assert "rolled back" in told
    assert shown[1][0] in told
    assert "rolled back at" in explained
    assert 1 == events.count("version_rolled_back")
    assert after == shown[1]


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[str]:
    """The URL of an HTTP server."""
    with http_puppet("http_counting.py", "0", str(tmp_path / "log")) as server:
        yield server.url


def test_over_http_the_session_that_serves_is_never_touched(daemon: Start, web_server: str) -> None:
    """The new address is dialled beside it, and given up; in the end it is the same generation."""

    def web(url: str) -> str:
        return entry("x", url=url, start_timeout="1s", restart={"delay": "100ms"})

    running = daemon(web(web_server))
    running.until_ready()
    running.write("servers.toml", web("http://127.0.0.1:9/mcp"))
    code, _ = verb(running, "reload", "--wait", "--timeout", "30s")
    server = running.server("x")

    assert Exit.CONFIG == code
    assert ("ready", 1, 0) == (server["state"], server["generation"], server["restarts"])
    assert "rolled back at " in rejected(running)[0]


@pytest.mark.parametrize("what", ["entry", "file", "main"])
def test_what_is_broken_at_a_start_runs_as_it_was_good(daemon: Start, servers: Path, what: str) -> None:
    """It says so with the place and the age; when it is mended all is well, and nothing was ever out of service for it."""
    running = daemon(program(servers))
    running.until_ready()
    main = running.folder / "config" / "mcpvisor.toml"
    good = main.read_text()
    running.end()
    match what:
        case "entry":
            running.write("servers.toml", program(servers) + "queue = true\n")
        case "file":
            running.write("servers.toml", program(servers) + "[[[\n")
        case _:
            main.write_text(good + "[[[\n")
    running.start()
    running.until_serving()
    running.until_ready()
    shown, ok = rejected(running), metric(running, "mcpvisor_config_last_reload_successful")
    running.write("servers.toml", program(servers))
    main.write_text(good)
    running.until(lambda: not rejected(running), "the mended file")

    assert (1, 0) == (len(shown), ok)
    assert shown[0].startswith(f"{main if what == 'main' else running.drop_ins / 'servers.toml'}:")
    assert ", as of 20" in shown[0]
    assert "which an earlier run has kept" in shown[0]
    assert shown[0] in running.log_text()


def test_what_was_removed_while_no_daemon_ran_stays_removed(daemon: Start, servers: Path) -> None:
    """Be it an entry or a file, also where something else is broken; and a broken main file without a past is 78."""
    running = daemon(program(servers))
    running.write("more.toml", puppet("y", servers / "stdio_moody.py"))
    running.until(lambda: len(running.status()["servers"]) == 2, "the second file")
    running.until_ready()
    running.end()
    (running.drop_ins / "more.toml").unlink()
    running.write("servers.toml", "[[[\n")
    running.start()
    running.until_serving()
    running.until_ready()
    names = [one["name"] for one in running.status()["servers"]]
    running.end()
    for one in (running.folder / "state").glob("state.db*"):
        one.unlink()
    (running.folder / "config" / "mcpvisor.toml").write_text("[[[\n")
    running.start()

    assert ["x"] == names
    assert Exit.CONFIG == running.process.wait(60)


def test_no_secret_is_in_the_state_folder(daemon: Start, servers: Path) -> None:
    """Neither one that is written in an entry, nor one that a variable brings in; both are there when it is needed."""
    written = program(servers, env={"A": CANARY, "B": "${env:MCPVISOR_TEST_CANARY}"})
    running = daemon(written, env={"MCPVISOR_TEST_CANARY": f"{CANARY}-more"})
    running.until_ready()
    running.until(lambda: running.rows("SELECT * FROM versions WHERE ready = 1"), "the version that is kept")
    running.end()
    found = [str(one) for one in (running.folder / "state").rglob("*") if one.is_file() and CANARY.encode() in one.read_bytes()]
    running.write("servers.toml", "[[[\n")
    running.start()
    running.until_serving()
    running.until_ready()
    pid = running.server("x")["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")

    assert [] == found
    assert is_alive(pid)
    assert {f"A={CANARY}".encode(), f"B={CANARY}-more".encode()} <= set(environment)
    assert CANARY not in json.dumps(running.status())
    assert 0o600 == (running.folder / "state" / "config-versions.keys").stat().st_mode & 0o7777

"""`status --watch`: in place on a terminal, a line for each change in a pipe, through an end of the daemon, to a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.daemon.cli.conftest import COMMAND, Daemon
from tests.daemon.cli.terminal import Terminal

from mcpvisor.daemon.cli.status_view import StatusView
from mcpvisor.daemon.cli.watching import changes, fitted
from mcpvisor.daemon.local_time import iso_time

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


def environ(daemon: Daemon) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**kept, "MCPVISOR_SOCKET": str(daemon.path), "TERM": "xterm"}


def watching(daemon: Daemon, *more: str) -> list[str]:
    return [str(COMMAND), "status", "--watch", "--interval", "30s", *more]


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A puppet daemon whose server `good` is moved, and is ready again after each test that does so."""
    running = Daemon(tmp_path_factory.mktemp("moving") / "control.sock")
    yield running
    running.end()


def piped(daemon: Daemon, *more: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(watching(daemon, *more), env=environ(daemon), stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -1)])
def test_a_terminal_is_kept_true_and_given_back(moving, number, code):
    """A change is shown at once, on the other screen; at the end the first screen is back, with the last status on it."""
    with Terminal(watching(moving), environ(moving)) as terminal:
        assert ENTER in terminal.until("1/3 ready")
        terminal.until("\x1b[J")
        moving.tell("move good degraded")
        assert LEAVE not in terminal.until("degraded")
        terminal.until("\x1b[J")
        terminal.process.send_signal(number)
        last = terminal.end()
    moving.tell("move good ready")

    assert code == terminal.process.returncode
    assert "Traceback" not in last
    before, _, after = last.partition(LEAVE)
    assert "\x1b[?7h\x1b[?25h" in before
    assert "0/3 ready" in after
    assert "degraded" in after


def test_it_follows_the_window_and_can_be_put_aside(moving):
    """A window that is resized is filled anew at once; Ctrl-Z gives the terminal back, until it goes on."""
    with Terminal(watching(moving), environ(moving)) as terminal:
        assert "off" in terminal.until("\x1b[J")
        terminal.resize(100, 6)
        smaller = terminal.until("... and 2 more")
        terminal.until("\x1b[J")
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.until(LEAVE)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED | os.WNOWAIT)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until(ENTER)

        assert "1/3 ready" in terminal.until("\x1b[J")
    assert "\nbad " in smaller.rpartition("\x1b[H")[2]
    assert "\noff " not in smaller.rpartition("\x1b[H")[2]


def test_it_outlives_the_daemon(start):
    """While the daemon is away a picture stays and says so; a pipe is told on stderr, once. Both go on afterwards."""
    daemon = start()
    with Terminal(watching(daemon), environ(daemon)) as terminal, piped(daemon) as pipe:
        terminal.until("\x1b[J")
        first = [pipe.stdout.readline() for _ in range(6)]
        daemon.tell("move good degraded")
        change = pipe.stdout.readline()
        terminal.until("0/3 ready")
        terminal.until("\x1b[J")
        daemon.end()
        gone, away = pipe.stderr.readline(), terminal.until("the daemon is not running") + terminal.until("\x1b[J")
        second = Daemon(daemon.path, "--many", "1")
        try:
            back, told = terminal.until("1/1 ready"), pipe.stderr.readline()
            changed = [pipe.stdout.readline() for _ in range(4)]
        finally:
            second.end()
        pipe.terminate()
        pipe.communicate(timeout=20)

    assert "0/3 ready" in away
    assert LEAVE not in away + back
    assert "1/3 ready, 1 disabled\n" == first[0]
    assert change.endswith(" good degraded\n")
    assert "the daemon is not running" in gone
    assert "mcpvisor: the daemon answers again\n" == told
    told_of = {line.rstrip().partition(" ")[2] for line in changed}
    assert {"server-000 ready", "bad is gone", "good is gone", "off is gone"} == told_of
    assert -signal.SIGTERM == pipe.returncode


def test_a_program_gets_the_whole_status_at_each_change(moving):
    """One JSON value a line, and none while nothing changes."""
    with piped(moving, "--json", "--interval", "50ms") as process:
        states = []
        for state in ("", "degraded", "failed", "ready"):
            if state:
                moving.tell(f"move good {state}")
            status = json.loads(process.stdout.readline())
            states.append(next(one["state"] for one in status["servers"] if one["name"] == "good"))
        process.kill()

    assert ["ready", "degraded", "failed", "ready"] == states


def test_a_reader_that_leaves_ends_it(moving):
    """Whoever has read enough is not waited for beyond the next change."""
    with piped(moving) as process:
        process.stdout.readline()
        process.stdout.close()
        moving.tell("move good degraded")
        said = process.stderr.read()
    moving.tell("move good ready")

    assert (141, "") == (process.returncode, said)


def test_a_name_that_is_unknown_at_first_is_an_error(daemon):
    """Nothing is waited for that was never there."""
    done = subprocess.run(
        [*watching(daemon), "nosuch"], env=environ(daemon), capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL
    )

    assert (1, "") == (done.returncode, done.stdout)
    assert "no server is named 'nosuch'" in done.stderr


def test_changes_are_of_states_reasons_and_what_is_rejected():
    """A server that is new, gone, in another state or in it for another reason has a line, and so has what is rejected now."""

    def status(rejected: list[str], **servers: tuple[str, str]) -> dict[str, object]:
        told = [{"name": name, "state": state, "reason": reason} for name, (state, reason) in servers.items()]
        return {"servers": told, "config": {"rejected": [{"where": "f:1", "error": one} for one in rejected]}}

    before = status(["old"], a=("ready", ""), b=("backoff", "one"), c=("ready", ""))
    after = status(["old", "n\new"], a=("ready", ""), b=("backoff", "t\x1bwo"), d=("starting", ""))

    assert [
        "b backoff: t\\x1bwo",
        "d starting",
        "c is gone",
        "rejected from the configuration: f:1: n\\new",
    ] == list(changes(before, after))


def test_changes_are_of_what_is_not_in_force():
    """What waits and what is about to go has a line when that begins, and so has the end of all that was wrong."""
    wrong = {"where": "f:1", "error": "bad", "since": 5.0}
    edit = {"server": "a", "handler": "", "what": "", "where": "f:9", "change": "update", "fields": ["queue"]}
    waits = {**edit, "waits_for": "f:1", "since": 5.0}
    going = {"server": "b", "file": "g", "since": 6.0, "at": 11.0}
    well = {"servers": [], "config": {"rejected": []}}
    ill = {"servers": [], "config": {"rejected": [wrong], "waiting": [waits], "removals": [going]}}
    later = {"servers": [], "config": {**ill["config"], "removals": [{**going, "since": 6.01}]}}

    assert [
        "rejected from the configuration: f:1: bad",
        f"waits: a: edited (queue) at f:9, and waits for f:1 since {iso_time(5.0)} (daemon.strict)",
        f"b: its file g is gone since {iso_time(6.0)}, and it is removed at {iso_time(11.0)} unless that comes back",
    ] == list(changes(well, ill))
    assert [] == list(changes(ill, later))
    assert ["all of the configuration is in force"] == list(changes(ill, well))


def test_a_picture_leaves_out_the_last_servers_and_never_what_is_wrong():
    """A picture is as high as the screen at the most; where there is no room for all, servers go first."""
    view = StatusView(["head"], ["NAME", *map(str, range(9))], ["tail"])

    assert ["title", "head", *view.rows, "tail"] == fitted("title", view, 13)
    assert ["title", "head", "NAME", "0", "1", "... and 7 more", "tail"] == fitted("title", view, 7)
    assert ["title", "head", "NAME"] == fitted("title", view, 3)

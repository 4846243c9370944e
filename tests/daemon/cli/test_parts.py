from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from mcpvisor.daemon.cli.output import clean, clean_line
from mcpvisor.daemon.cli.screen import Screen, has_colour
from mcpvisor.daemon.cli.sockets import candidates, is_safe
from mcpvisor.daemon.cli.status_view import status_lines
from mcpvisor.daemon.cli.table import columns_of, shortened, table
from mcpvisor.daemon.cli.verb import duration
from mcpvisor.daemon.cli.watching import _as_json
from mcpvisor.daemon.control.explain_text import clock_time
from mcpvisor.daemon.control.tally import tally


@pytest.mark.parametrize(
    ("text", "expected"), [("30s", 30), ("1.5m", 90), ("500ms", 0.5), ("2h", 7200), ("1d", 86400), ("7", 7)]
)
def test_durations_are_written_as_in_the_configuration(text, expected):
    """A duration has a unit, or is in seconds."""
    assert expected == duration(text)


@pytest.mark.parametrize("text", ["", "s", "0", "-1s", "nan", "inf", "5 parsecs", "1e99d"])
def test_what_is_no_duration_is_refused(text):
    """What is no length of time more than nothing is refused."""
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration"):
        duration(text)


def test_a_servers_text_cannot_steer_a_terminal():
    """Control codes of both sets are written out; line ends and tabs stay where text is shown, and go where a line is."""
    assert "\\x1b[2J\\x9b1mhi\n\tü" == clean("\x1b[2J\x9b1mhi\n\tü")
    assert "a\\nb c" == clean_line("a\nb\tc")


def test_a_table_is_as_wide_as_its_cells():
    """Columns are as wide as their widest cell, and nothing trails."""
    assert ["A    B", "1    x", "333"] == table(("A", "B"), [("1", "x"), ("333", "")], None)


def test_the_last_column_is_cut_to_what_is_left():
    """The last column is cut where the limit is, and keeps 20 characters however small the limit is."""
    row = ("name", "x" * 50)

    assert "name  " + "x" * 33 + "…" == table(("A", "B"), [row], 40)[1]
    assert "name  " + "x" * 19 + "…" == table(("A", "B"), [row], 10)[1]


def test_a_named_socket_is_the_only_one():
    """A socket that is named by option or environment is the only one tried, the option first."""
    assert [Path("/a")] == candidates("unix:/a", {"MCPVISOR_SOCKET": "/b"}, 1)
    assert [Path("/b")] == candidates(None, {"MCPVISOR_SOCKET": "/b"}, 1)


def test_the_sockets_are_tried_in_their_order():
    """The system's comes first, then the user's runtime folder, then the temporary one."""
    assert [
        "/run/mcpvisor/control.sock",
        "/x/mcpvisor/control.sock",
        "/tmp/mcpvisor-7/control.sock",
    ] == [str(path) for path in candidates(None, {"XDG_RUNTIME_DIR": "/x"}, 7)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_that_another_user_made_first_is_not_trusted(tmp_path):
    """In a folder that is open to everybody only one's own folder, or root's, is trusted."""
    tmp_path.chmod(0o1777)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir(mode=0o700)
    os.chown(theirs, 12345, 12345)

    assert not is_safe(theirs / "control.sock", os.getuid())
    assert is_safe(ours / "control.sock", os.getuid())
    assert is_safe(tmp_path / "none" / "control.sock", os.getuid())


def status_with(**server):
    """A status as the daemon answers it, of one server."""
    plain = {
        "name": "s",
        "state": "backoff",
        "since": 90.0,
        "next_attempt": None,
        "transport": "http",
        "era": None,
        "pid": None,
        "healthy": False,
        "deadline": None,
    }
    servers = [{**plain, "restarts": 0, "reason": "", **server}]
    return {"ready": 0, "total": 1, "now": 100.0, "servers": servers, "config": {"ok": True, "rejected": []}}


def test_a_reason_is_cut_only_where_a_width_is_known():
    """Where the output is piped a reason is whole, however long; on a screen it has what is left of the line."""
    status = status_with(reason="x" * 300)

    assert status_lines(status)[-1].endswith(" " + "x" * 300)
    assert 90 == len(status_lines(status, Screen(width=90))[-1])


def test_columns_that_one_can_do_without_go_first():
    """On a narrow screen era, transport, process and restarts give way to the reason; name, state, since and next never do."""
    lines = status_lines(status_with(reason="x" * 300), Screen(width=60))

    assert ["NAME", "STATE", "SINCE", "NEXT", "REASON"] == lines[-2].split()
    assert lines[-1].startswith("s     backoff  10 s   -     xxx")
    assert 60 == len(lines[-1])


@pytest.mark.parametrize(("due", "shown"), [(130.0, "in 30 s"), (99.5, "now"), (40.0, "overdue")])
def test_a_try_that_was_due_long_ago_is_not_due_now(due, shown):
    """The next try has its time, is due now, or is overdue."""
    assert f"  {shown}  " in status_lines(status_with(next_attempt=due))[-1]


def test_the_time_that_passes_is_no_change(capsys):
    """Whoever watches as a program gets no further status while nothing changes but how long that has been so."""
    looks = [status_with(state_seconds=seconds) | {"now": 100.0 + seconds} for seconds in (1.0, 2.0, 3.0)]
    _as_json(iter([*looks, status_with(state="ready", state_seconds=0.0)]))

    assert 2 == len(capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("told", "shown"), [({"state_seconds": 42.0}, "42 s"), ({}, "unknown")], ids=["monotonic", "of an older daemon"]
)
def test_a_clock_that_was_set_back_shortens_no_length_of_time(told, shown):
    """How long a server is in its state is what the daemon has measured; where it tells only a moment to come, nobody knows."""
    assert f"  {shown}  " in status_lines(status_with(since=3700.0, **told))[-1]


def test_instances_for_one_client_are_counted_below_the_servers():
    """How many there are, and one that fails; a server without any has no such line."""
    two = status_lines(status_with(instances=2, instance_failing="s@3 of uid:7 is failed: no such program"))

    assert "s: 2 instances for one client each; s@3 of uid:7 is failed: no such program" == two[-1]
    assert "s: 1 instance for one client each" == status_lines(status_with(instances=1, instance_failing=""))[-1]
    assert "instance" not in status_lines(status_with(instances=0, instance_failing=""))[-1]


def test_what_is_wrong_comes_first_with_what_comes_next():
    """What is not as wanted is counted by state, the worst first, with what the daemon does next; so begins the table."""
    status = status_with()
    plain = status["servers"][0]
    due = {"a": 130.0, "b": 112.0}
    status["servers"] = [
        *({**plain, "name": name, "next_attempt": at} for name, at in due.items()),
        {**plain, "name": "c", "state": "ready", "healthy": True},
        {**plain, "name": "d", "state": "failed"},
        {**plain, "name": "e", "state": "starting", "deadline": 160.0},
    ]
    lines = status_lines(status)

    assert [
        "0/1 ready",
        "  1 failed: d: nothing until its entry is edited, or an order",
        "  2 backoff: a, b: tried again the first in 12 s",
        "  1 starting: e: given up in 60 s",
    ] == lines[:4]
    assert ["NAME", "d", "a", "b", "e", "c"] == [line.split()[0] for line in lines[4:]]


def test_a_degraded_server_is_said_to_serve_only_where_it_does():
    """What keeps a session from answering calls decides what is said of it, and such a server comes before one that serves."""
    status = status_with(state="degraded")
    plain = status["servers"][0]
    hindered = {"a": None, "b": "silence", "c": "refusal", "d": "credentials", "e": None, "f": "refusal"}
    status["servers"] = [{**plain, "name": name, "hindrance": what} for name, what in hindered.items()]
    status["servers"][2]["probe_next"] = 120.0
    lines = status_lines(status)

    assert [
        "  1 degraded: b: it does not answer probes, and is asked again",
        "  2 degraded: c, f: it refuses what it is asked, asked again in 20 s",
        "  1 degraded: d: no call can be made until it takes what credentials there are",
        "  2 degraded: a, e: it serves, what is missing is tried again",
    ] == lines[1:5]
    assert ["b", "c", "d", "f", "a", "e"] == [line.split()[0] for line in lines[6:]]
    assert "  in 20 s  " in lines[7]


def test_what_is_not_in_force_is_below_the_servers():
    """What is wrong since when, what waits for it, settings that wait for a start, and what goes by itself; each in a line."""
    status = status_with(name="new", state="failed")
    edit = {"handler": "", "what": "", "where": "/b:1", "fields": [], "waits_for": "/a:1", "since": 50.0}
    status["config"] = {
        "ok": False,
        "rejected": [{"where": "/a:1", "error": "bad", "since": 50.0}],
        "waiting": [
            {**edit, "server": "new", "change": "start"},
            {**edit, "server": "", "what": "settings", "where": "", "change": "update", "fields": ["log.level"]},
        ],
        "trials": [{"server": "x", "within": 60.0, "until": 150.0}, {"server": "y", "within": 60.0, "until": None}],
        "needs_restart": ["gateway.auth"],
        "removals": [{"server": "old", "file": "/c", "since": 99.0, "at": 104.0}],
    }
    lines, at = status_lines(status), clock_time

    assert "  1 failed: new: once what their edits wait for is corrected" == lines[1]
    assert [
        "",
        "rejected from the configuration (what was accepted before keeps running):",
        f"  /a:1: bad (since {at(50.0)})",
        "",
        "right, and not applied before that is corrected:",
        f"  new: new at /b:1, and waits for /a:1 since {at(50.0)} (daemon.strict)",
        f"  settings: edited (log.level), and waits for /a:1 since {at(50.0)} (daemon.strict)",
        "",
        f"x: its edit is on trial; unless it is ready, it will be rolled back at {at(150.0)}",
        "y: its edit is on trial; unless it is ready, it will be rolled back 60 s after its start",
        "",
        "edited, and read when the daemon starts: gateway.auth",
        "",
        f"old: its file /c is gone since {at(99.0)}, and it is removed at {at(104.0)} unless that comes back",
    ] == lines[4:]


def test_servers_at_rest_are_counted_by_their_order():
    """They count among all servers, and are named, so that nobody looks for what is wrong with them."""
    wanted = ["running", "stopped", "disabled", "disabled", "running"]

    assert "2/5 ready, 1 stopped, 2 disabled" == tally(2, 5, wanted)
    assert "2/2 servers ready" == tally(2, 2, ["running", "running"], "servers")


def test_what_is_wrong_is_said_again_below_a_table_that_is_higher_than_the_screen():
    """So that whoever looks at the end of a long list sees it too; where all is well, or all is seen, nothing is said twice."""
    status = status_with()
    few, many = status_lines(status, Screen(width=80, height=20)), status_lines(status, Screen(width=80, height=4))

    assert 1 == sum("1 backoff: s" in line for line in few)
    assert ["", *many[:2]] == many[-3:]


COLOURS = [
    ({}, {}),
    ({"TERM": "xterm"}, {"terminal"}),
    ({"TERM": "dumb"}, {}),
    ({"TERM": "xterm", "NO_COLOR": "1"}, {}),
    ({"TERM": "xterm", "NO_COLOR": ""}, {"terminal"}),
    ({"TERM": "xterm", "CLICOLOR": "0"}, {}),
    ({"TERM": "dumb", "FORCE_COLOR": "1"}, {"terminal", "pipe"}),
    ({"CLICOLOR_FORCE": "1"}, {"terminal", "pipe"}),
    ({"TERM": "xterm", "FORCE_COLOR": "0"}, {"terminal"}),
    ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, {}),
]


@pytest.mark.parametrize(("environ", "coloured"), COLOURS, ids=lambda value: " ".join(sorted(value)) or "none")
def test_when_colour_is_welcome(environ, coloured):
    """By `--color`, else by the variables that people know, `NO_COLOR` before all, else on a terminal that knows colour."""
    places = {"terminal": True, "pipe": False}

    assert set(coloured) == {name for name, is_it in places.items() if has_colour(environ, is_terminal=is_it)}
    assert has_colour(environ, is_terminal=False, when="always")
    assert not has_colour(environ, is_terminal=True, when="never")


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("Übung", 5), ("文字", 4), ("e\u0301", 1), ("ｱ", 1), ("🚀", 2), ("", 0)]
)
def test_wide_characters_and_accents_are_counted_as_a_terminal_counts_them(text, columns):
    """Wide characters take two columns, and an accent on another letter none."""
    assert columns == columns_of(text)


def test_a_table_is_in_line_whatever_the_script():
    """A wide name moves nothing out of line, and is cut between two characters at the most."""
    assert ["NAME  B", "文字  x", "ab    y"] == table(("NAME", "B"), [("文字", "x"), ("ab", "y")], None)
    assert ["文文…", "文文文"] == [shortened("文文文文", 6), shortened("文文文", 6)]
    assert "a文…" == shortened("a文文文", 5)


def test_no_cell_but_the_last_is_ever_cut():
    """A name that is wider than the screen is shown whole."""
    assert ["n" * 50, "x" * 19 + "…"] == table(("A", "B"), [("n" * 50, "x" * 50)], 30)[1].split()


def test_a_cell_cannot_move_the_cursor():
    """Control codes, line ends and marks that turn the direction of text are written out in every cell."""
    (line,) = table(("A", "B"), [("a\x1b[2Jb\n", "c\u202ed\r")], 80)[1:]

    assert "a\\x1b[2Jb\\n  c\\u202ed\\r" == line

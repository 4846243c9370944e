from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from mcpvisor.daemon.cli.looking import status_lines
from mcpvisor.daemon.cli.output import clean, clean_line, table
from mcpvisor.daemon.cli.sockets import candidates, is_safe
from mcpvisor.daemon.cli.verb import duration


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
    }
    servers = [{**plain, "restarts": 0, "reason": "", **server}]
    return {"ready": 0, "total": 1, "now": 100.0, "servers": servers, "config": {"ok": True, "rejected": []}}


def test_a_long_reason_is_cut_where_nothing_says_how_wide_lines_are():
    """A reason is cut to 100 characters where the output is piped, and to what is left of the line where a width is known."""
    status = status_with(reason="x" * 300)

    assert status_lines(status, None)[2].endswith(" " + "x" * 99 + "…")
    assert 90 == len(status_lines(status, 90)[2])


@pytest.mark.parametrize(("due", "shown"), [(130.0, "in 30 s"), (99.5, "now"), (40.0, "overdue")])
def test_a_try_that_was_due_long_ago_is_not_due_now(due, shown):
    """The next try has its time, is due now, or is overdue."""
    assert f"  {shown}  " in status_lines(status_with(next_attempt=due), None)[2]


def test_instances_for_one_client_are_counted_below_the_servers():
    """How many there are, and one that fails; a server without any has no such line."""
    two = status_lines(status_with(instances=2, instance_failing="s@3 of uid:7 is failed: no such program"), None)

    assert "s: 2 instances for one client each; s@3 of uid:7 is failed: no such program" == two[-1]
    assert "s: 1 instance for one client each" == status_lines(status_with(instances=1, instance_failing=""), None)[-1]
    assert 3 == len(status_lines(status_with(instances=0, instance_failing=""), None))

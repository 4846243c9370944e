"""What a daemon knows is known to the next one, however the first one ended; and a bad disk stops nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, entry, puppet
from tests.e2e.siege import Besieged, Client, besieged
from tests.stopwatch import Stopwatch
from tests.supervisor.transports.http_rig import puppet as http_puppet

SERVERS = Path(__file__).parents[1] / "servers"
QUIET = puppet("quiet", SERVERS / "lite.py")

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="needs to mount in a namespace of its own",
)


def again(daemon: RunningDaemon, number: int) -> None:
    """End the daemon by a signal and start it once more."""
    daemon.end(number)
    daemon.start()
    daemon.until_serving()


def mcpvisor(daemon: RunningDaemon, *words: object) -> subprocess.CompletedProcess[str]:
    return nursery.run(["--socket", daemon.socket, *map(str, words)], timeout=30)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_disabled_server_is_disabled_in_the_next_run(daemon, end):
    """An operator's `disable` outlives the daemon, with who gave it and when; a `stop` does not."""
    running = daemon(QUIET + puppet("other", SERVERS / "lite.py"))
    running.until_ready()
    running.order("other", "stop")
    ordered = running.order("quiet", "disable")
    running.until(lambda: running.server("quiet")["state"] == "disabled", "the order to be followed")
    time_to_write(running)
    again(running, end)
    running.until_ready()
    quiet, other = running.server("quiet"), running.server("other")
    told = mcpvisor(running, "explain", "quiet").stdout

    assert ("disabled", "disabled", f"uid:{os.geteuid()} (disable)") == (quiet["state"], quiet["wanted"], quiet["wanted_by"])
    assert quiet["wanted_at"] == pytest.approx(ordered["wanted_at"], abs=1)
    assert ("ready", "config") == (other["state"], other["wanted_by"])
    assert re.search(rf"wanted +disabled \(by uid:{os.geteuid()} \(disable\), [^)]*\d\d:\d\d:\d\d\)", told)


def time_to_write(daemon: RunningDaemon) -> None:
    """Return once everything that has happened so far is in the journal."""
    known = daemon.control.get("/v1/events", {"follow": "false", "backlog": 1000})["events"]
    newest = max(event["at"] for event in known)
    # Something may have happened since: what is looked for need not stay the newest.
    daemon.until(lambda: rows(daemon, f"SELECT 1 FROM journal WHERE at >= {newest!r}"), "the journal")


def rows(daemon: RunningDaemon, query: str) -> list[tuple]:
    with closing(sqlite3.connect(daemon.folder / "state" / "state.db")) as connection:
        return connection.execute(query).fetchall()


def test_the_last_known_catalog_is_served_at_once(tmp_path):
    """After a crash a client lists within a second what a server offered last, marked, although the server is not up yet."""
    flag = tmp_path / "slow"
    script = f"test -e {flag} && exec sleep 60; exec {sys.executable} {SERVERS / 'lite.py'}"
    slow = entry("slow", "/bin/sh", "-c", script, stop={"stdin": "300ms", "term": "300ms"})
    with besieged(tmp_path / "d", slow, ready=("slow",)) as running:
        running.until(lambda: rows(running, "SELECT name FROM servers WHERE offer IS NOT NULL"), "the catalog on disk")
        flag.touch()
        again(running, signal.SIGKILL)
        watch = Stopwatch(running.pid, threading.get_native_id())
        watch.start()
        client = Client(running).open()
        listed = client.request("tools/list")["result"]["tools"]
        took = watch.seconds()
        client.close()
        state, stale = running.server("slow")["state"], running.server("slow")["stale"]
        flag.unlink()
        mcpvisor(running, "restart", "slow")
        running.until(lambda: not running.server("slow")["stale"], "the server's own catalog")

    assert {"slow__echo", "slow__pid", "slow__big"} == {tool["name"] for tool in listed}
    assert {True} == {tool["_meta"]["mcpvisor/stale"] for tool in listed}
    assert (True, True) == (state in ("starting", "negotiating"), stale)
    assert took < 1


MANY = 200


def test_the_last_known_catalog_of_many_servers_is_served_at_once(tmp_path):
    """After a crash a client has the tools of 200 servers, none of which can be reached, a second after it may connect."""
    with ExitStack() as life:
        puppet = life.enter_context(http_puppet("http_narrow.py", "--room", "none", "--no-push"))
        text = "".join(entry(f"s{number}", url=puppet.url) for number in range(MANY))
        running = life.enter_context(besieged(tmp_path / "d", text))
        running.until_ready(60)
        kept = "SELECT count(*) FROM servers WHERE offer IS NOT NULL"
        running.until(lambda: rows(running, kept) == [(MANY,)], "the catalogs on disk")
        puppet.process.kill()
        running.end(signal.SIGKILL)
        Path(running.unix).unlink()
        began = time.perf_counter()
        running.start()
        watch = Stopwatch(running.pid, threading.get_native_id())
        until_listening(running)
        watch.start()
        client = Client(running).open()
        listed = all_tools(client)
        took = watch.seconds()
        since_start = time.perf_counter() - began - running.queued_for_a_cpu()
        client.close()
        running.until_serving()

    assert 2 * MANY == len({tool["name"] for tool in listed})
    assert {True} == {tool["_meta"]["mcpvisor/stale"] for tool in listed}
    print(
        f"{len(listed)} tools of {MANY} servers: {took:.3f} s after the listener, {since_start:.3f} s after the process began"
    )
    assert took < 1


def until_listening(daemon: Besieged) -> None:
    """Return once the daemon takes connections of clients."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.connect(daemon.unix)
            return
        time.sleep(0.002)
    raise AssertionError(f"the gateway does not listen: {daemon.log_text()}")


def all_tools(client: Client) -> list[dict[str, Any]]:
    """What a client lists, all pages."""
    page = client.request("tools/list")["result"]
    tools = page["tools"]
    while cursor := page.get("nextCursor"):
        page = client.request("tools/list", {"cursor": cursor})["result"]
        tools += page["tools"]
    return tools


def test_events_and_explain_tell_what_was_before_a_crash(daemon):
    """After SIGKILL of the daemon it is still known why a server kept ending."""
    running = daemon(QUIET + puppet("ending", SERVERS / "stdio_exit_after_init.py", "before", restart={"delay": "100ms"}))
    running.until(lambda: running.server("ending")["restarts"] >= 2, "some ends")
    running.order("ending", "disable")
    running.until(lambda: running.server("ending")["state"] == "disabled", "the order to be followed")
    time_to_write(running)
    again(running, signal.SIGKILL)
    events = json.loads(mcpvisor(running, "events", "--json", "-n", "1000").stdout)["events"]
    explained = running.control.get("/v1/servers/ending")["events"]
    shown = mcpvisor(running, "events", "--server", "ending", "--kind", "process_ended").stdout

    earlier = [event for event in events if event.get("earlier")]
    assert 2 in {event["exit_code"] for event in earlier if event["kind"] == "process_ended"}
    assert {"ending", "quiet"} <= {event.get("server") for event in earlier}
    assert events == sorted(events, key=lambda event: event["at"])
    assert {"process_ended", "operator_ordered"} <= {event["kind"] for event in explained if event.get("earlier")}
    assert "exit_code=2" in shown


# Backup


def test_a_backup_is_whole_while_the_daemon_writes(daemon, tmp_path):
    """It is a database of its own, for its owner only, with all that had happened; a file that exists is never touched."""
    ending = puppet("ending", SERVERS / "stdio_exit_after_init.py", "before", restart={"delay": "10ms", "intensity": "off"})
    running = daemon(QUIET + ending)
    running.until(lambda: running.server("ending")["restarts"] >= 2, "some ends")
    running.order("quiet", "disable")
    done = [mcpvisor(running, "backup", tmp_path / f"{number}.db") for number in range(3)]
    again_ = mcpvisor(running, "backup", tmp_path / "0.db")
    elsewhere = mcpvisor(running, "backup", "/no/such/folder/0.db")
    running.end()
    nobody = mcpvisor(running, "backup", tmp_path / "late.db")

    assert [0, 0, 0] == [one.returncode for one in done], done
    for number in range(3):
        with closing(sqlite3.connect(tmp_path / f"{number}.db")) as copy:
            assert [("ok",)] == copy.execute("PRAGMA integrity_check").fetchall()
            assert [("quiet", "disabled")] == copy.execute("SELECT server, wanted FROM orders").fetchall()
            assert copy.execute("SELECT count(*) FROM journal").fetchone()[0] > 10
        assert 0o600 == stat.S_IMODE((tmp_path / f"{number}.db").stat().st_mode)
    assert (1, True) == (again_.returncode, "File exists" in again_.stderr)
    assert (1, True) == (elsewhere.returncode, "No such file" in elsewhere.stderr)
    assert (3, False) == (nobody.returncode, (tmp_path / "late.db").exists())
    assert [] == list((running.folder / "state").glob("state.copy-*"))


def test_a_backup_can_be_restored(daemon, tmp_path):
    """A copy in place of the state file is what the next run knows."""
    running = daemon(QUIET)
    running.until_ready()
    running.order("quiet", "disable")
    assert 0 == mcpvisor(running, "backup", tmp_path / "copy.db").returncode
    running.order("quiet", "enable")
    running.until_ready()
    running.end()
    for left in ("state.db-wal", "state.db-shm"):
        (running.folder / "state" / left).unlink(missing_ok=True)
    (tmp_path / "copy.db").rename(running.folder / "state" / "state.db")
    running.start()
    running.until_serving()

    assert "disabled" == running.server("quiet")["state"]


# Bad disks


def up(daemon: Besieged) -> list[str]:
    """What the metric says."""
    with closing(HTTPConnection(daemon.addresses("metrics")[0], timeout=20)) as connection:
        connection.request("GET", "/metrics")
        return re.findall(r"^mcpvisor_state_store_up (\S+)", connection.getresponse().read().decode(), re.MULTILINE)


@needs_namespaces
def test_a_full_disk_stops_nothing(tmp_path):
    """Calls go on, the status, the metric, the log and the events say what is wrong, it mends, and a daemon starts."""
    state = tmp_path / "d" / "state"
    with small_disk(state) as prefix, besieged(tmp_path / "d", QUIET, prefix=prefix, ready=("quiet",)) as running:
        before = (running.status()["state_store"]["up"], up(running))
        filler = Path(f"/proc/{running.pid}/root{state}/filler")

        def down() -> bool:
            fill(filler)
            running.order("quiet", "restart")
            return not running.status()["state_store"]["up"]

        running.until(down, "a full disk to be noticed")
        running.until(lambda: running.server("quiet")["state"] == "ready", "the server")
        store, metric, shown = running.status()["state_store"], up(running), mcpvisor(running, "status")
        answer = running.call("quiet", "echo", text="still here")
        refused = mcpvisor(running, "backup", tmp_path / "copy.db")
        filler.unlink()
        running.until(lambda: running.status()["state_store"]["up"], "the disk to be used again", 30)
        running.until(lambda: up(running) == ["1.0"], "the metric")
        kinds = [event["kind"] for event in running.control.get("/v1/events", {"follow": "false"})["events"]]
        log = running.log_text()
        fill(filler)
        again(running, signal.SIGKILL)
        running.until(lambda: running.server("quiet")["state"] == "ready", "the server under the next daemon")

    assert (True, ["1.0"]) == before
    assert "there is no room left for it" in store["reason"]
    assert ["0.0"] == metric
    assert "the state store is degraded, what is new is kept in memory only: " in shown.stdout
    assert "still here" in json.dumps(answer)
    assert (1, True) == (refused.returncode, "the state store is degraded" in refused.stderr)
    assert not (tmp_path / "copy.db").exists()
    assert {"state_store_degraded", "state_store_recovered"} <= set(kinds)
    assert "the state store is degraded" in log
    assert "the state store is written again" in log


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[tuple[str, ...]]:
    """A disk of a few MB at a folder, for those who begin their command with what this gives."""
    mount = f"mkdir -p {folder} && mount -t tmpfs -o size=8m,mode=700 tmpfs {folder} && echo && exec sleep 600"
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", mount], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert b"\n" == holder.stdout.readline()
        yield ("nsenter", "--target", str(holder.pid), "--mount", "--")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def fill(path: Path) -> None:
    with path.open("ab", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            return


def test_a_disk_that_hangs_stops_nothing(tmp_path):
    """While a write hangs calls are answered, the status says so within seconds, and the daemon ends in time."""
    path = tmp_path / "d" / "state" / "state.db"
    with (
        besieged(tmp_path / "d", QUIET, ready=("quiet",)) as running,
        closing(sqlite3.connect(path, isolation_level=None)) as db,
    ):
        db.execute("BEGIN IMMEDIATE")
        running.order("quiet", "restart")
        running.until(lambda: not running.status()["state_store"]["up"], "the hanging write to be noticed")
        running.until(lambda: running.server("quiet")["state"] == "ready", "the server")
        reason, metric = running.status()["state_store"]["reason"], up(running)
        watch = Stopwatch(running.pid, running.server("quiet")["pid"], threading.get_native_id())
        watch.start()
        running.call("quiet", "echo", text="still here")
        called = watch.seconds()
        began = time.monotonic()
        assert 0 == running.end()
        ended = time.monotonic() - began

    assert "a write has taken over 5 s" in reason
    assert ["0.0"] == metric
    assert called < 1
    assert ended < 15


def test_a_damaged_file_does_not_hinder_the_start(daemon):
    """The daemon starts, says what it found and where it has put it, and begins a new file."""
    running = daemon(QUIET)
    running.until_ready()
    running.end()
    (running.folder / "state" / "state.db").write_bytes(b"not a database" * 1000)
    running.start()
    running.until_serving()
    running.until_ready()
    events = running.control.get("/v1/events", {"follow": "false", "kind": "state_store_replaced"})["events"]

    (aside,) = (running.folder / "state").glob("state.db.damaged-*")
    assert [str(aside)] == [event["aside"] for event in events]
    assert running.status()["state_store"]["up"]
    assert str(aside) == running.status()["state_store"]["damaged"]
    shown = f"the state file was damaged at the start, its orders do not stand any more; it is {aside}"
    assert shown in mcpvisor(running, "status").stdout
    assert "a new state file is begun" in running.log_text()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_file_that_is_cut_under_a_daemon_stops_nothing(daemon, share):
    """One error says it, calls go on, what was ordered before is in the new file, and the next run has nothing more to tell."""
    running = daemon(QUIET)
    running.until_ready()
    running.order("quiet", "disable")
    running.until(lambda: running.rows("SELECT server FROM orders"), "the order on disk")
    path = running.folder / "state" / "state.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    os.truncate(path, int(path.stat().st_size * share))
    running.order("quiet", "enable")
    running.order("quiet", "disable")
    begun = "a new state file is begun"
    running.until(lambda: begun in running.log_text(), "the error in the log")
    running.until(lambda: running.rows("SELECT server FROM orders"), "the order in the new file")
    told, up = running.log_text().count(begun), running.status()["state_store"]["up"]
    running.end()
    running.start()
    running.until_serving()

    assert (1, True) == (told, up)
    # Whichever comes first, the look at its size or a page that is missing.
    assert re.search(
        "it is damaged: (it was truncated while it was in use|database disk image is malformed)", running.log_text()
    )
    assert "all that is known is written anew" in running.log_text()
    assert ("disabled", 1) == (running.server("quiet")["state"], running.log_text().count(begun))


def test_an_empty_file_at_the_start_is_told_with_what_is_lost(daemon):
    """A daemon whose state was emptied starts, and says that orders and sessions of before are gone."""
    running = daemon(QUIET)
    running.until_ready()
    running.order("quiet", "disable")
    running.until(lambda: running.rows("SELECT server FROM orders"), "the order on disk")
    running.end()
    path = running.folder / "state" / "state.db"
    os.truncate(path, 0)
    running.start()
    running.until_serving()
    running.until_ready()

    assert f"a new state file is begun: {path} was empty (0 bytes); what it held is lost: servers that were disabled run" in (
        running.log_text()
    )

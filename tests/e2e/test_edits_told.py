"""What a real daemon tells of edits that are not in force, or not yet: every verb says the same, and it is what happens."""

from __future__ import annotations

import shutil
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, entry, puppet
from tests.supervisor.transports.http_rig import launch

from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.config.absences import ABSENCE

Start = Callable[..., RunningDaemon]


def verb(daemon: RunningDaemon, *words: str) -> tuple[int, str]:
    """What a verb of the command line prints, and its exit code."""
    done = nursery.run([*words, "--socket", daemon.socket], timeout=60)
    return done.returncode, done.stdout + done.stderr


def lite(servers: Path, name: str, *args: str, **keys: object) -> str:
    """An entry that is ready at once, unless `args` say otherwise."""
    return puppet(name, servers / "lite.py", *args, **keys)


def metric(daemon: RunningDaemon, name: str) -> float:
    """One number of the metrics."""
    with urllib.request.urlopen(f"http://{daemon.addresses('metrics')[0]}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def make_strict(daemon: RunningDaemon) -> None:
    """Set `daemon.strict`, and have it read."""
    main = daemon.folder / "config" / "mcpvisor.toml"
    main.write_text(main.read_text().replace("[daemon]\n", "[daemon]\nstrict = true\n"))
    assert Exit.DONE == verb(daemon, "reload")[0]


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Stands for systemd: gives the newest status line that the daemon has sent."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)) as told:
        told.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        newest = [""]

        def status() -> str:
            try:
                while True:
                    lines = told.recv(65536).decode().splitlines()
                    newest.extend(line.removeprefix("STATUS=") for line in lines if line.startswith("STATUS="))
            except BlockingIOError:
                return newest[-1]

        yield status


def test_an_edit_that_waits_for_a_fault_elsewhere(daemon: Start, servers: Path, notified: Callable[[], str]) -> None:
    """With `strict` what is right waits for what is wrong: every verb says for what, since when and what runs, until it is."""
    running = daemon(lite(servers, "bad"))
    for name in ("edited", "gone"):
        running.write(f"{name}.toml", lite(servers, name))
    make_strict(running)
    running.until_ready()
    generation = running.server("edited")["generation"]
    running.write("servers.toml", lite(servers, "bad", comand="x"))
    running.write("edited.toml", lite(servers, "edited", "--name", "another"))
    running.write("new.toml", lite(servers, "new"))
    (running.drop_ins / "gone.toml").unlink()
    running.until(lambda: len(running.status()["config"]["waiting"]) == 3, "three edits that wait")
    status, fault = running.status(), f"{running.drop_ins}/servers.toml"
    explained = {name: verb(running, "explain", name)[1] for name in ("edited", "new", "gone")}
    shown, plan, reload = verb(running, "status"), verb(running, "plan"), verb(running, "reload")
    line = running.until(lambda: "wait" in notified() and notified(), "the line of systemd")
    counted = (metric(running, "mcpvisor_config_rejected_entries"), running.server("edited")["generation"])
    running.write("servers.toml", lite(servers, "bad"))
    running.until(lambda: not running.status()["config"]["waiting"], "what was right")
    running.until(lambda: {one["name"] for one in running.status()["servers"]} == {"bad", "edited", "new"}, "the new goal")
    running.until_ready()

    (rejected,) = status["config"]["rejected"]
    where = rejected["where"]
    assert where.startswith(f"{fault}:")
    assert [("edited", "restart"), ("gone", "stop"), ("new", "start")] == [
        (one["server"], one["change"]) for one in status["config"]["waiting"]
    ]
    assert {where} == {one["waits_for"] for one in status["config"]["waiting"]}
    assert all(abs(one["since"] - status["now"]) < 30 for one in (rejected, *status["config"]["waiting"]))
    assert (
        f"an edit of its entry waits: {running.drop_ins}/edited.toml:1: the edit of it (args) is not applied"
        in explained["edited"]
    )
    assert "what was in force before runs (since 20" in explained["edited"]
    assert "it is written no more, and is not stopped until" in explained["gone"]
    assert explained["new"].startswith("new does not run yet: ")
    for text in explained.values():
        assert f"until {where} is corrected, because daemon.strict is set: servers.bad.comand: unknown key" in text
        assert f"as soon as {where} is corrected" in text
        assert f"You: correct {where}, then `mcpvisor reload`" in text
    for code, text in (plan, reload):
        assert Exit.CONFIG == code
        assert f"waits    edited: edited (args) at {running.drop_ins}/edited.toml:1, and waits for {where} since " in text
        assert "waits    new: new at " in text
        assert "waits    gone: written no more at " in text
    assert "nothing is applied\n" in reload[1]
    assert f"edited: edited (args) at {running.drop_ins}/edited.toml:1, and waits for {where} since " in shown[1]
    assert "1 failed: new: once what their edits wait for is corrected" in shown[1]
    assert f"1 configuration error at {where.rpartition(':')[0]} since 20" in line
    assert line.endswith(", for which 3 more edits wait")
    assert (4, generation) == counted
    assert running.server("edited")["generation"] > generation


def test_a_file_that_is_gone(daemon: Start, servers: Path) -> None:
    """Until its time is over all say which server goes, when and for which file, also whoever orders a reload meanwhile."""
    running = daemon(lite(servers, "stays"))
    for name in ("first", "second"):
        running.write(f"{name}.toml", lite(servers, name))
    running.until(lambda: len(running.status()["servers"]) == 3, "three servers")
    running.until_ready()
    file = running.drop_ins / "first.toml"
    file.unlink()
    planned, began = verb(running, "plan", "--exit-code"), time.monotonic()
    (removal,) = running.until(lambda: running.status()["config"]["removals"], "the removal that is to come")
    shown, explained = verb(running, "status")[1], verb(running, "explain", "first")[1]
    ordered = verb(running, "reload")
    took = time.monotonic() - began
    left = {one["name"] for one in running.status()["servers"]}
    running.until(lambda: "first" not in {one["name"] for one in running.status()["servers"]}, "its removal by itself")
    ended = time.time()
    nothing, asked = verb(running, "reload")[1], verb(running, "explain", "first")

    assert (Exit.NO, True) == (
        planned[0],
        planned[1].startswith(f"stop     first (its file {file} is gone); at "),
    )
    assert ("first", str(file), ABSENCE) == (removal["server"], removal["file"], round(removal["at"] - removal["since"], 3))
    assert f"first: its file {file} is gone since " in shown
    assert f"its file {file} is gone since " in explained
    assert "Next: the daemon removes it, unless the file of its entry comes back before; " in explained
    assert (Exit.DONE, True) == (
        ordered[0],
        ordered[1].startswith(f"nothing has changed yet\ngoes     first: its file {file} is gone since "),
    )
    assert took < ABSENCE, "the order was waited for"
    assert {"stays", "first", "second"} == left
    assert ended >= removal["at"] - 0.5
    assert "when an edit was seen and applied by itself (first)" in nothing
    assert (Exit.NO, True) == (asked[0], "no server is named 'first' any more: it was removed at " in asked[1])
    assert f"{file} is gone, and with it first" in running.log_text()


def test_a_reload_after_an_edit_that_was_seen_already(daemon: Start, servers: Path) -> None:
    """It tells of the trial that is under way, and with `--wait` what came of it; nobody is told that nothing happened."""
    running = daemon(lite(servers, "x") + lite(servers, "y"))
    running.until_ready()
    running.write("servers.toml", lite(servers, "x", "--hang-init", start_timeout="5s") + lite(servers, "y"))
    running.until(lambda: running.server("x")["state"] in ("starting", "negotiating"), "the trial")
    told, plan, shown = verb(running, "reload"), verb(running, "plan"), verb(running, "status")[1]
    waited = verb(running, "reload", "--wait", "--timeout", "30s")

    assert Exit.DONE == told[0]
    assert "when an edit was seen and applied by itself (x)\n" in told[1]
    for text in (told[1], plan[1]):
        assert "trial    x: now " in text
        assert "; unless it is ready, it will be rolled back at 20" in text
    assert " y: " not in told[1]
    assert "x: its edit is on trial; unless it is ready, it will be rolled back at " in shown
    assert Exit.CONFIG == waited[0]
    assert "settled  x: rolled back, now ready\n" in waited[1]


def test_a_handler_whose_edit_is_not_in_force(daemon: Start, servers: Path) -> None:
    """`handlers` shows what runs, and says beside it what is written and refused, or has to wait."""
    running = daemon(lite(servers, "x"))
    running.write("handlers.toml", '[handlers.one]\ntype = "log"\n[handlers.two]\ntype = "log"\n')
    make_strict(running)
    running.until(lambda: len(running.control.get("/v1/handlers")["handlers"]) == 2, "the handlers")
    before = verb(running, "handlers")
    running.write("handlers.toml", '[handlers.one]\ntype = "lug"\n[handlers.two]\ntype = "log"\nqueue = 7\n')
    running.until(lambda: running.control.get("/v1/handlers")["waiting"], "the edit that waits")
    code, told = verb(running, "handlers")
    where = f"{running.drop_ins}/handlers.toml"

    assert (Exit.DONE, 3) == (before[0], len(before[1].splitlines()))
    assert Exit.DONE == code
    assert f"mcpvisor: {where}:2:1: handlers.one.type: " in told
    assert f"mcpvisor: handler two: edited (queue) at {where}:3, and waits for {where}:2:1 since " in told


def test_servers_are_counted_in_one_way(daemon: Start, servers: Path, notified: Callable[[], str]) -> None:
    """`status` and the line of systemd count the same servers, and name those that are at rest by order."""
    running = daemon(lite(servers, "x") + lite(servers, "y") + lite(servers, "z", enabled=False))
    running.until_ready()
    running.order("y", "stop")
    running.until(lambda: running.server("y")["state"] == "stopped", "the stop")
    line = running.until(lambda: "stopped" in notified() and notified(), "the line of systemd")
    status = running.status()

    assert "1/3 ready, 1 stopped, 1 disabled" == verb(running, "status")[1].splitlines()[0]
    assert "1/3 servers ready, 1 stopped, 1 disabled" == line
    assert (1, 3) == (status["ready"], status["total"])


def test_settings_that_wait_for_a_start_are_told(daemon: Start, servers: Path) -> None:
    """An edit of a setting that is read at the start is in the log and in `status`, whoever has applied it."""
    running = daemon(lite(servers, "x"))
    running.until_ready()
    main = running.folder / "config" / "mcpvisor.toml"
    main.write_text(main.read_text().replace('level = "warning"', 'level = "error"'))
    running.until(lambda: running.status()["config"]["needs_restart"], "the edit")
    code, shown = verb(running, "status")

    assert (Exit.DONE, True) == (code, "edited, and read when the daemon starts: log.level\n" in shown)
    assert "read when the daemon starts, and another by now: log.level" in running.log_text()


def test_a_folder_of_loose_files(daemon: Start, servers: Path, tmp_path: Path) -> None:
    """Files of servers beside the places that are read are an error with its remedy, until they are moved."""
    loose = tmp_path / "loose"
    loose.mkdir(mode=0o755)
    (loose / "mine.toml").write_text(lite(servers, "mine"))
    running = daemon(lite(servers, "x"), more=[loose])
    running.until_ready()
    checked, shown = verb_without_socket("check", str(loose)), verb(running, "status")[1]
    (loose / "servers.d").mkdir(mode=0o755)
    (loose / "mine.toml").rename(loose / "servers.d" / "mine.toml")
    running.until(lambda: {one["name"] for one in running.status()["servers"]} == {"x", "mine"}, "what was moved")

    told = f"{loose}: nothing of this folder is read: it holds neither mcpvisor.toml nor servers.d, and mine.toml lies beside"
    assert Exit.CONFIG == checked[0]
    assert f"error: {told}; expected files of servers in {loose}/servers.d, or " in checked[1]
    assert told in shown
    assert told in running.log_text()
    assert [] == running.status()["config"]["rejected"]


def verb_without_socket(*words: str) -> tuple[int, str]:
    """The same of a verb that asks no daemon."""
    done = nursery.run([*words], timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a server with a certificate of its own, and a copy of that as the file to trust."""
    running = launch("http_redirect_slash.py", "tls")
    try:
        ca = tmp_path / "ca.pem"
        shutil.copy(running.line(), ca)
        ca.chmod(0o644)
        yield running.url, ca
    finally:
        running.end()


@pytest.mark.parametrize("rollback", [True, False])
def test_a_certificate_that_is_away_for_a_moment(daemon: Start, web: tuple[str, Path], rollback: bool) -> None:
    """It costs no session and no try: what was read of it last goes on, also for a new session, and the file is named."""
    url, ca = web
    running = daemon(entry("w", url=url, tls={"ca": ca}, rollback=rollback))
    running.until_ready()
    ca.rename(ca.with_name("away"))
    (rejected,) = running.until(lambda: running.status()["config"]["rejected"], "the absence")
    explained, before = verb(running, "explain", "w")[1], running.server("w")
    running.order("w", "restart")
    running.until(lambda: running.server("w")["generation"] > before["generation"], "a session without the file")
    restarted = running.until_ready()["servers"][0]
    ca.with_name("away").rename(ca)
    running.until(lambda: not running.status()["config"]["rejected"], "the file")
    after = running.server("w")
    _, events = verb(running, "events", "--server", "w", "-n", "100")

    assert ("ready", 1) == (before["state"], before["generation"])
    assert (str(ca), True) == (rejected["needs"], rejected["keeps_running"])
    assert f"servers.w.tls.ca: {ca} cannot be read: no such file or directory" in rejected["error"]
    assert f"what its entry names cannot be used as it is now ({ca})" in explained
    assert f"You: correct {ca}, which is seen by itself." in explained
    assert (restarted["generation"], "ready") == (after["generation"], after["state"])
    assert [] == [line for line in events.splitlines() if "version_rolled_back" in line or "outcome=tls" in line]

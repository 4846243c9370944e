"""Handlers of a real daemon: updates of a real server reach a program, through kills, edits, outages and bad neighbours."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, puppet, serving, toml

SERVERS = Path(__file__).parents[1] / "servers"
URIS = [f"memo://{number}" for number in range(8)]

PROGRAM = """
import json, os, sys, time
event = json.load(sys.stdin)
folder = os.path.dirname(os.path.abspath(__file__))
while os.path.exists(os.path.join(folder, "closed")):
    time.sleep(0.02)
if os.path.exists(os.path.join(folder, "failing")):
    sys.exit("a bad day")
with open(os.path.join(folder, "out"), "a") as out:
    out.write(json.dumps(event) + "\\n")
"""


def handler(name: str, **keys: Any) -> str:
    """The table of a handler, and a route of all updates to it."""
    lines = [f"[handlers.{name}]", *(f"{key} = {toml(value)}" for key, value in keys.items())]
    return "\n".join([*lines, f'[[routes]]\nevent = "resource_updated"\nhandler = "{name}"\n'])


class Hooked(RunningDaemon):
    """A daemon with one server, whose updates a program writes down."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        super().__init__(
            folder,
            puppet("notes", SERVERS / "resource_streams.py", subscriptions=URIS),
            settings='[routing]\nmatch = "all"\n',
        )
        self.write("handlers.toml", self.hook())

    def hook(self, name: str = "hook", **keys: Any) -> str:
        return handler(name, **{"type": "exec", "command": [sys.executable, self.program], **keys})

    def flag(self, name: str, *, up: bool) -> None:
        """Whether the program is `closed`, so that it hangs, or `failing`."""
        path = self.folder / name
        if up:
            path.touch()
        else:
            path.unlink()

    def touch(self, uri: str) -> None:
        self.call("notes", "touch", uri=uri)

    def told(self, reason: str = "notified") -> list[dict[str, Any]]:
        """What the program has written down, of one reason."""
        out = self.folder / "out"
        events = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        return [event for event in events if event["data"].get("reason") == reason]

    def uris(self) -> list[str]:
        return [event["data"]["uri"] for event in self.told()]

    def handlers(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in self.control.get("/v1/handlers")["handlers"]}

    def counted(self, handler: str, outcome: str) -> float:
        """`mcpvisor_handler_events_total` of updates."""
        with urllib.request.urlopen(f"http://{self.addresses('metrics')[0].removeprefix('http://')}/metrics") as page:
            text = page.read().decode()
        labels = f'{{handler="{handler}",kind="resource_updated",outcome="{outcome}"}}'
        found = re.findall(rf"^mcpvisor_handler_events_total{re.escape(labels)} (\S+)", text, re.MULTILINE)
        return float(found[0]) if found else 0.0

    def until_calm(self) -> None:
        """Return once the server is ready and the handler has had the updates of its start."""
        self.until_ready()
        self.until(lambda: "hook" in self.handlers() and not self.handlers()["hook"]["waiting"], "calm")
        self.until(lambda: len(self.told("resync")) >= len(URIS), "the first updates")
        self.until(lambda: not self.handlers()["hook"]["in_flight"], "calm")

    def kept(self) -> list[tuple[str, bool]]:
        """Events in the state file: their ids, and whether they are dead letters."""
        with closing(sqlite3.connect(self.folder / "state" / "state.db")) as file:
            rows = file.execute("SELECT event, dead_at FROM handler_events").fetchall()
        return [(json.loads(event)["id"], dead_at is not None) for event, dead_at in rows]

    def mcpvisor(self, *words: object) -> subprocess.CompletedProcess[str]:
        return nursery.run(["--socket", self.socket, *map(str, words)], timeout=30)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Hooked]:
    """See `Hooked`."""
    tmp_path.chmod(0o755)
    running = Hooked(tmp_path)
    try:
        running.until_serving()
        running.until_calm()
        yield running
    finally:
        left = running.clear()
        print(running.log_text())
    assert [] == left


def test_an_update_reaches_a_program(daemon: Hooked) -> None:
    """A program is told of a change of a resource, with the server, the URI and why, and it is counted."""
    daemon.touch(URIS[3])
    daemon.until(lambda: daemon.uris() == [URIS[3]], "the update")
    (event,) = daemon.told()
    daemon.until(lambda: daemon.counted("hook", "handled") == len(URIS) + 1, "the count")
    daemon.until(lambda: not daemon.kept(), "its end in the state file")

    assert ("resource_updated", "notes", {"uri": URIS[3], "reason": "notified"}) == (
        event["kind"],
        event["server"],
        event["data"],
    )


def test_what_was_accepted_survives_kill_9(daemon: Hooked) -> None:
    """What was accepted before a SIGKILL is delivered by the next run, under the same id; what was done is not done again."""
    daemon.touch(URIS[0])
    daemon.until(lambda: daemon.uris() == [URIS[0]], "the first update")
    daemon.until(lambda: not daemon.kept(), "its end")
    daemon.flag("closed", up=True)
    for uri in URIS:
        daemon.touch(uri)
    # Counted is what is on disk.
    daemon.until(lambda: daemon.counted("hook", "accepted") == 2 * len(URIS) + 1, "all of them accepted")
    daemon.process.kill()
    daemon.process.wait()
    accepted = {event_id for event_id, _ in daemon.kept()}
    daemon.flag("closed", up=False)
    daemon.start()
    daemon.until_serving()
    daemon.until(lambda: not daemon.kept(), "everything handled")
    ids = [event["id"] for event in daemon.told() if event["id"] in accepted]

    assert len(URIS) == len(accepted)
    assert accepted == set(ids)
    assert sorted(URIS) == sorted(event["data"]["uri"] for event in daemon.told() if event["id"] in accepted)
    assert 1 == daemon.uris().count(URIS[0]) - ids.count(next(e["id"] for e in daemon.told() if e["id"] in accepted))


def test_a_resource_that_a_route_names_is_watched(daemon: Hooked) -> None:
    """A route that names a server and a URI whole needs no subscription beside it, and holds it for as long as it is there."""
    route = '[[routes]]\nserver = "notes"\nevent = "resource_updated"\nuri = "memo://route"\nhandler = "hook"\n'
    daemon.write("routes.toml", route)
    daemon.control.post("/v1/reload", {})
    wanted = {"wanted": len(URIS) + 1, "active": len(URIS) + 1}
    daemon.until(lambda: daemon.server("notes")["subscriptions"] == wanted, "the subscription")
    daemon.touch("memo://route")
    daemon.until(lambda: daemon.uris() == ["memo://route"], "the update")
    daemon.write("routes.toml", "# none\n")
    daemon.control.post("/v1/reload", {})

    assert len(URIS) == daemon.server("notes")["subscriptions"]["wanted"]


def test_bad_neighbours(daemon: Hooked) -> None:
    """Beside handlers that hang, crash and are not there, a good one gets its updates, and the server notices nothing."""
    hang = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
    crash = [sys.executable, "-c", "import os; os.abort()"]
    bad = {"hang": hang, "crash": crash, "absent": ["/nowhere/program"]}
    more = [handler(name, type="exec", command=command, deadline="500ms", queue=2) for name, command in bad.items()]
    daemon.write("more.toml", "".join(more))
    daemon.control.post("/v1/reload", {})
    pid = daemon.server("notes")["pid"]
    for uri in URIS * 2:
        daemon.touch(uri)
        daemon.until(lambda uri=uri: daemon.uris()[-1:] == [uri], "the update")
    daemon.until(lambda: all(daemon.handlers()[name]["failures"] for name in bad), "their failures")
    errors = {name: daemon.handlers()[name]["last_error"] for name in bad}
    server = daemon.server("notes")

    assert URIS * 2 == daemon.uris()
    assert ("ready", pid, 1) == (server["state"], server["pid"], server["generation"])
    assert "it was not done within 0.5 s" == errors["hang"]
    assert errors["crash"].startswith("the program was killed by SIGABRT")
    assert "/nowhere/program" in errors["absent"]
    assert daemon.counted("hang", "overflow")


def test_handlers_are_edited_in_place(daemon: Hooked) -> None:
    """An edit restarts its handler and touches no server; a broken one keeps the last good one; `plan` and `reload` say so."""
    pid = daemon.server("notes")["pid"]
    other = daemon.folder / "other.py"
    other.write_text(PROGRAM.replace('"out"', '"out2"'))
    edited = daemon.hook(command=[sys.executable, other]) + handler("note", type="log")
    would_be = shutil.copytree(daemon.folder / "config", daemon.folder / "would-be")
    (would_be / "servers.d" / "handlers.toml").write_text(edited)
    planned = daemon.mcpvisor("plan", would_be)
    daemon.write("handlers.toml", edited)
    daemon.control.post("/v1/reload", {})
    daemon.touch(URIS[0])
    daemon.until((daemon.folder / "out2").exists, "the update at the new program")
    daemon.write("handlers.toml", daemon.hook(command="not a list"))
    daemon.until(lambda: "note" not in daemon.handlers(), "the edit")
    broken = daemon.mcpvisor("reload")
    daemon.touch(URIS[1])
    daemon.until(lambda: len((daemon.folder / "out2").read_text().splitlines()) == 2, "the update after a bad edit")
    (daemon.drop_ins / "handlers.toml").unlink()
    daemon.until(lambda: not daemon.handlers(), "their end")

    told = "restart  handler hook (options)\nstart    handler note\nupdate   routes\n"
    assert (0, told) == (planned.returncode, planned.stdout)
    assert 78 == broken.returncode
    assert "handlers.hook.command: is a text; expected a list" in broken.stderr
    assert "(the last good version stays in use)" in broken.stderr
    assert [] == daemon.told()
    assert (pid, 1) == (daemon.server("notes")["pid"], daemon.server("notes")["generation"])


def test_dead_letters_at_the_terminal(daemon: Hooked) -> None:
    """What a handler did not take is shown by `status`, listed by `events dead`, and given again by `events retry`."""
    policy = {"retry": {"attempts": 1}, "circuit": {"failures": 2, "open_for": "300ms"}}
    daemon.write("handlers.toml", daemon.hook(**policy))
    daemon.control.post("/v1/reload", {})
    well = daemon.mcpvisor("handlers")
    daemon.flag("failing", up=True)
    daemon.touch(URIS[0])
    daemon.until(lambda: daemon.handlers()["hook"]["dead"] == 1, "a dead letter")
    listed, status, handlers = (daemon.mcpvisor(*words.split()) for words in ("events dead", "status", "handlers"))
    daemon.end(signal.SIGKILL)
    daemon.start()
    daemon.until_serving()
    letters = json.loads(daemon.mcpvisor("events", "dead", "--json").stdout)["dead"]
    daemon.flag("failing", up=False)
    (letter,) = [one for one in letters if one["event"]["data"]["reason"] == "notified"]
    unknown, both = daemon.mcpvisor("events", "retry", "nothing"), daemon.mcpvisor("events", "retry")
    retried = daemon.mcpvisor("events", "retry", letter["event"]["id"])
    daemon.until(lambda: letter["event"]["id"] in [event["id"] for event in daemon.told()], "the letter at the program")
    daemon.mcpvisor("events", "drop", "--all")
    nobody, vague = daemon.mcpvisor("events", "drop", "--handler", "hook"), daemon.mcpvisor("events", "drop", "x", "--all")
    again = daemon.mcpvisor("events", "drop", "--all")

    assert (0, 1, 0) == (well.returncode, handlers.returncode, listed.returncode)
    assert re.search(rf"hook: resource_updated of notes {URIS[0]}: the program exited with code 1 .*a bad day", listed.stdout)
    assert "handler hook: 1 dead letter, see `mcpvisor events dead`" in status.stdout
    assert (1, 64) == (unknown.returncode, both.returncode)
    assert (1, 64) == (nobody.returncode, vague.returncode)
    assert (0, "no dead letters\n") == (again.returncode, again.stdout)
    assert (0, f"{letter['event']['id']} waits for hook again\n") == (retried.returncode, retried.stdout)


def test_an_open_circuit_is_shown(daemon: Hooked) -> None:
    """A handler that is left alone is named by `status` with its last error; when it is back it gets everything."""
    daemon.write("handlers.toml", daemon.hook(circuit={"failures": 2, "open_for": "2s"}, retry={"delay": "10ms"}))
    daemon.control.post("/v1/reload", {})
    daemon.flag("failing", up=True)
    for uri in URIS:
        daemon.touch(uri)
    daemon.until(lambda: daemon.handlers()["hook"]["circuit"] == "open", "the circuit")
    status = daemon.mcpvisor("status")
    daemon.flag("failing", up=False)
    daemon.until(lambda: sorted(daemon.uris()) == sorted(URIS), "all updates")
    events = daemon.mcpvisor("events").stdout

    assert re.search(r"handler hook: left alone after 2 failures.*: the program exited with code 1 .*a bad day", status.stdout)
    assert "handler_circuit_opened" in events
    assert "handler_circuit_closed" in events


def test_a_test_event(daemon: Hooked) -> None:
    """`events emit` sends an event on its ways and says what became of it; `--dry-run` only where it would go."""
    words = ("events", "emit", "--kind", "resource_updated", "--server", "anything", "--uri", "x://y")
    dry = daemon.mcpvisor(*words, "--dry-run")
    nothing = daemon.told("none")
    real = daemon.mcpvisor(*words, "--data", '{"reason": "notified"}')
    strange = daemon.mcpvisor(*words, "--data", '{"new": "failed"}')
    nowhere = daemon.mcpvisor("events", "emit", "--kind", "log_message", "--server", "s", "--level", "error")
    wrong = daemon.mcpvisor("events", "emit", "--kind", "earthquake", "--server", "s")
    question = daemon.mcpvisor("events", "emit", "--kind", "elicitation", "--server", "s")
    origin = f"{daemon.drop_ins / 'handlers.toml'}:4"
    sent = [json.loads(line) for line in (daemon.folder / "out").read_text().splitlines()][-1]

    assert (0, f"hook by {origin}\n", []) == (dry.returncode, dry.stdout, nothing)
    assert (0, f"hook by {origin}: handled\n") == (real.returncode, real.stdout)
    assert ("anything", {"uri": "x://y", "reason": "notified", "test": True}) == (sent["server"], sent["data"])
    assert (1, "", "mcpvisor: no route leads this event anywhere\n") == (nowhere.returncode, nowhere.stdout, nowhere.stderr)
    assert (64, 64, 64) == (wrong.returncode, question.returncode, strange.returncode)
    assert "mcpvisor: an event of kind resource_updated has no 'new'; its data is: uri, reason\n" == strange.stderr


def test_programs_end_with_the_daemon(daemon: Hooked) -> None:
    """A program that is at work when the daemon is killed does not outlive it."""
    daemon.flag("closed", up=True)
    daemon.touch(URIS[0])
    daemon.until(lambda: daemon.handlers()["hook"]["in_flight"] == 1, "the program at work")
    marked = [pid for pid in daemon.living() if b"handler:hook" in Path(f"/proc/{pid}/environ").read_bytes()]
    daemon.end(signal.SIGKILL)
    daemon.flag("closed", up=False)

    assert 1 == len(marked)
    assert not set(marked) & set(daemon.clear())


def test_a_module_that_is_saved_is_followed(tmp_path: Path) -> None:
    """The next event goes to the code as it is now, though nobody asks for a reload; the servers are not touched."""
    module, out = tmp_path / "own.py", tmp_path / "out"
    code = "class Own:\n    async def deliver(self, event):\n        open({!r}, 'w').write({!r})\n"
    module.write_text(code.format(str(out), "first"))
    own = f'[handlers.own]\ntype = "python"\nobject = "own:Own"\npath = {toml(tmp_path)}\n'
    route = '[[routes]]\nevent = "state_changed"\nserver = "one"\nhandler = "own"\n'
    running = RunningDaemon(tmp_path / "d", puppet("one", SERVERS / "lite.py") + own + route)
    with serving(running):
        running.until_ready()
        running.until(lambda: out.exists() and out.read_text() == "first", "the first event")
        pid = running.server("one")["pid"]
        module.write_text(code.format(str(out), "second"))

        def told() -> bool:
            running.control.post("/v1/events:emit", {"kind": "state_changed", "server": "one", "timeout": 5})
            return out.read_text() == "second"

        running.until(told, "the code as it was saved")
        assert pid == running.server("one")["pid"]


def test_the_last_events_reach_handlers_too(tmp_path: Path) -> None:
    """That a server was stopped with the daemon is told as all else is: no handler is ended before its last event."""
    module, out = tmp_path / "last.py", tmp_path / "out"
    module.write_text(
        "class Last:\n    async def deliver(self, event):\n"
        f"        with open({str(out)!r}, 'a') as out:\n            print(event.data['new'], file=out)\n"
    )
    last = f'[handlers.last]\ntype = "python"\nobject = "last:Last"\npath = {toml(tmp_path)}\n'
    route = '[[routes]]\nevent = "state_changed"\nserver = "one"\nhandler = "last"\n'
    running = RunningDaemon(tmp_path / "d", puppet("one", SERVERS / "lite.py") + last + route)
    with serving(running):
        running.until_ready()
        running.until(lambda: out.exists() and "ready" in out.read_text(), "the first events")
        assert 0 == running.end()

    assert "stopped" == out.read_text().split()[-1]
    assert "SIGKILL" not in running.log_text()

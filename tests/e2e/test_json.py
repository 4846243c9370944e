"""Every verb that prints JSON prints what docs/json.md says of it, with a real daemon behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.docs import shapes
from tests.e2e.running import RunningDaemon, entry, puppet, serving

from mcpvisor.daemon.cli.main import build_parser, main
from mcpvisor.daemon.cli.tree import all_verbs, prints_json

SERVERS = Path(__file__).parents[1] / "servers"
PAGE = shapes.read(shapes.PAGE.read_text())
FORM = {"message": "Who are you?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
THEIRS = """{"mcpServers": {
"theirs": {"command": "npx", "args": ["-y", "notes", "--token", "sekret-one"], "oauth": {}}, "wrong": {"url": "//"}}}"""
HANDLERS = """
[handlers.refuses]
type = "exec"
command = ["/bin/false"]
retry = { attempts = 1 }
[[routes]]
event = "resource_updated"
handler = "refuses"
[[routes]]
server = "asks"
event = "elicitation"
handler = "operator"
"""

Printed = Callable[..., Any]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon with a server that asks, one with resources, one that cannot be started, and a handler that takes nothing."""
    folder = tmp_path_factory.mktemp("json")
    asks = puppet("asks", SERVERS / "stdio_elicits.py", era="legacy")
    notes = puppet("notes", SERVERS / "resource_streams.py", "--list", "memo://1", subscriptions=["memo://1"])
    options = ("--name", "reads", "--era", "legacy", "--log", str(folder / "log"), "--control", str(folder / "s"), "stdio")
    reads = puppet("reads", SERVERS / "faulty.py", *options)
    daemon = RunningDaemon(folder, asks + notes + reads + entry("broken", "/no/such/program"), settings=HANDLERS)
    with serving(daemon):
        daemon.until(lambda: daemon.status()["ready"] == 3, "three servers")
        yield daemon


@pytest.fixture
def printed(running: RunningDaemon, capsys: pytest.CaptureFixture[str]) -> Printed:
    """What a verb prints: its JSON, which is as the page says."""

    def run(*words: str, verb: str = "") -> Any:
        capsys.readouterr()
        main(["--socket", str(running.socket), *words, "--json"])
        value = json.loads(capsys.readouterr().out)
        verb = verb or words[0]
        told = [list(shapes.faults(PAGE, shape, value)) for shape in PAGE.verbs[verb]]
        assert [] == min(told, key=len), f"mcpvisor {' '.join(words)} --json is not as docs/json.md says"
        return value

    return run


def test_every_verb_that_prints_json_is_on_the_page() -> None:
    """A verb with `--json` has a line in the table of docs/json.md, a verb without has none, and every shape is told of."""
    printing = {" ".join(verb.words) for verb in all_verbs(build_parser()) if prints_json(verb)}

    assert [] == sorted(printing - PAGE.verbs.keys()), "add these verbs to the table of docs/json.md, with what they print"
    assert [] == sorted(PAGE.verbs.keys() - printing)
    assert [] == shapes.unknown(PAGE)
    tried = {verb for verb in PAGE.verbs for command in LOOKING if f"{command} ".startswith(f"{verb} ")} | CHANGING
    assert [] == sorted(printing - tried), "let a test here see what these verbs print, and name them in LOOKING or CHANGING"


LOOKING = [
    "status",
    "status asks",
    "explain asks",
    "explain broken",
    "explain notes",
    "logs",
    "logs asks",
    "events",
    "events --kind server_state_changed",
    "handlers",
    "elicitations",
    "tools",
    "resources notes",
    "prompts",
    'call notes touch {"uri":"memo://1"}',
    "read reads memo://reads",
    "check",
    "plan",
    "plan --event resource_updated --server notes --uri memo://1",
    "log-level",
    "config show",
    "config schema",
    "doctor",
    "connect",
    "connect cursor",
    "version",
]


CHANGING = {
    *("stop", "start", "disable", "enable", "restart", "reload", "backup", "import"),
    *("events emit", "events dead", "events retry", "events drop", "elicitations answer"),
}
"""What the tests below do."""


@pytest.mark.parametrize("command", LOOKING)
def test_what_a_verb_prints_is_as_the_page_says(running: RunningDaemon, printed: Printed, command: str) -> None:
    """Every key that is promised is there and of its type, and no key is there that is not told of."""
    words = [*command.split(), *([str(running.folder / "config")] if command in ("check", "config show") else [])]
    verb = next(verb for verb in sorted(PAGE.verbs, key=len, reverse=True) if f"{command} ".startswith(f"{verb} "))

    assert printed(*words, verb=verb)


def test_orders_and_changes_print_what_the_page_says(running: RunningDaemon, printed: Printed, tmp_path: Path) -> None:
    """So do the verbs that change something, and what the daemon refuses is an error of the page."""
    for order in ("stop", "start", "disable", "enable", "restart"):
        printed(order, "broken")
    more = running.drop_ins / "more.toml"
    with more.open("w") as stream:  # for the end of which the watch waits
        stream.write(entry("late", "/no/such/program") + "[servers.wrong]\ncomand = 1\n")
        stream.flush()
        plan, reload = printed("plan"), printed("reload", "--wait", "--timeout", "100ms")
    more.unlink()
    backup = printed("backup", str(tmp_path / "copy.db"))
    (tmp_path / "mcp.json").write_text(THEIRS)
    (tmp_path / "etc/servers.d").mkdir(parents=True)
    imported = printed("import", str(tmp_path / "mcp.json"), "--to", str(tmp_path / "etc"), "--yes")

    assert ["late"] == [one["server"] for one in plan["changes"] if one["change"] == "start"]
    assert ["late"] == [one["server"] for one in reload["changes"]]
    assert plan["config"]["rejected"]
    assert backup["bytes"] == (tmp_path / "copy.db").stat().st_size
    assert ["theirs"] == [one["name"] for one in imported["files"][0]["servers"]]
    assert ["wrong"] == [one["server"] for one in imported["files"][0]["failed"]]


def test_what_is_refused_is_an_error_of_the_page(running: RunningDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """Both an order that cannot be followed and a request that a server refuses."""
    for words in (["explain", "nosuch"], ["read", "asks", "memo://1"]):
        main(["--socket", str(running.socket), *words, "--json"])
        value = json.loads(capsys.readouterr().out)

        assert [] == list(shapes.faults(PAGE, "error", value))


def test_events_of_handlers_print_what_the_page_says(running: RunningDaemon, printed: Printed) -> None:
    """From a test event over a dead letter to one that is dropped."""
    emit = ["events", "emit", "--kind", "resource_updated", "--server", "notes", "--uri", "memo://1"]
    dry, sent = printed(*emit, "--dry-run", verb="events emit"), printed(*emit, verb="events emit")
    dead = running.until(lambda: printed("events", "dead", verb="events dead")["dead"], "a dead letter")
    handlers = printed("handlers")["handlers"]
    retried = printed("events", "retry", dead[0]["event"]["id"], verb="events retry")["retried"]
    running.until(lambda: printed("events", "dead", verb="events dead")["dead"], "the dead letter again")
    dropped = printed("events", "drop", "--all", verb="events drop")["dropped"]

    assert [("refuses", False), ("refuses", True)] == [(one["ways"][0]["handler"], one["sent"]) for one in (dry, sent)]
    assert [len(dead)] == [one["dead"] for one in handlers]
    assert retried
    assert dropped


def test_questions_print_what_the_page_says(running: RunningDaemon, printed: Printed) -> None:
    """A question that waits for the operator, and its answer."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(running.call, "asks", "ask", params=FORM)
        (question,) = running.until(lambda: printed("elicitations")["elicitations"], "the question")
        answered = printed("elicitations", "answer", question["id"], "--decline", verb="elicitations answer")
        call.result(20)

    assert "decline" == answered["action"]


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["status", "--watch"], "status"),
        (["logs", "-f", "asks"], "new lines"),
        (["events", "-f", "-n", "1"], "event"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_streams_print_what_the_page_says(running: RunningDaemon, words: list[str], shape: str) -> None:
    """With `-f` and `--watch` each line is a value of the page."""
    command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "--socket", str(running.socket), *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        line = process.stdout.readline()
        process.kill()

    assert [] == list(shapes.faults(PAGE, shape, json.loads(line)))

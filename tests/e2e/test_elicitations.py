"""Questions of a real server through a real daemon: declined, answered by a policy, by an operator, or by nobody in time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon, puppet

from mcpvisor.daemon.cli.exits import Refused

ELICITS = Path(__file__).parents[1] / "servers" / "stdio_elicits.py"

FORM = {
    "message": "[github] Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your na\u202eme", "minLength": 2},
            "size": {"type": "string", "enum": ["S", "M"], "default": "M"},
        },
        "required": ["name"],
    },
}
ROUTES = """
[handlers.rules]
type = "policy"
rules = [
  { server = "git", tool = "ask", requires = ["name"], action = "accept", content = { name = "octocat" }, defaults = true },
  { mode = "url", action = "cancel" },
]
[[routes]]
server = "git"
event = "elicitation"
handler = "rules"
[[routes]]
server = "desk"
event = "elicitation"
handler = "operator"
"""


@pytest.fixture
def daemon(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningDaemon]:
    """Three servers that ask: `git` has a policy, `desk` an operator, `files` nobody. Questions last the parameter."""
    deadline = getattr(request, "param", "1m")
    servers = "".join(puppet(name, ELICITS, era="legacy") for name in ("git", "desk", "files"))
    running = RunningDaemon(tmp_path, servers, settings=f'[questions]\ndeadline = "{deadline}"\n' + ROUTES)
    try:
        running.until_serving()
        running.until_ready()
        yield running
    finally:
        left = running.clear()
        print(running.log_text())
    assert [] == left


def asked(daemon: RunningDaemon, server: str, **arguments: Any) -> Any:
    """What a server gets for a question that it asks during a call."""
    return json.loads(daemon.call(server, "ask", **{"params": FORM, **arguments})["content"][0]["text"])


def verb(daemon: RunningDaemon, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return nursery.run(["--socket", daemon.socket, *words], typed=typed)


def counted(daemon: RunningDaemon) -> dict[str, float]:
    """`mcpvisor_elicitations_total` by action, mode and server."""
    with urllib.request.urlopen(f"http://{daemon.addresses('metrics')[0].removeprefix('http://')}/metrics") as page:
        text = page.read().decode()
    found = re.findall(r"^mcpvisor_elicitations_total{([^}]*)} (\S+)", text, re.MULTILINE)
    return {" ".join(re.findall(r'"(\w+)"', labels)): float(value) for labels, value in found}


def in_the_background(daemon: RunningDaemon, **arguments: Any) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(asked, daemon, "desk", **arguments)
    pool.shutdown(wait=False)
    return future


def waiting(daemon: RunningDaemon) -> dict[str, Any]:
    """The one question that waits for the operator."""
    found: list[dict[str, Any]] = daemon.until(
        lambda: daemon.control.get("/v1/elicitations")["elicitations"], "the question of the server"
    )
    assert ["operator"] == [one["waiting_for"] for one in found]
    return found[0]


def test_a_question_that_nobody_is_there_for_is_declined(daemon: RunningDaemon) -> None:
    """A call of the command line has no client behind it that could be asked; the session goes on, and all of it is told."""
    answer = asked(daemon, "files")
    after = json.loads(daemon.call("files", "echo", text="still there")["content"][0]["text"])
    events = daemon.control.get("/v1/events", {"server": "files", "follow": "false", "kind": "question_settled"})["events"]

    assert {"result": {"action": "decline"}} == answer
    assert {"text": "still there"} == after
    assert [("nobody", "decline", "ask", [])] == [(e["by"], e["action"], e["tool"], list(e["properties"])) for e in events]
    assert "no route names a handler" in events[0]["why"]
    assert {"decline form files": 1.0} == counted(daemon)
    assert daemon.server("files")["generation"] == 1


def test_a_policy_accepts_with_what_is_fixed_and_what_the_form_has_as_defaults(daemon: RunningDaemon) -> None:
    """The first rule that fits answers; the journal names the properties and never their values."""
    form, url = asked(daemon, "git"), asked(daemon, "git", params={"mode": "url", "message": "x", "url": "https://a.example/"})
    events = daemon.control.get("/v1/events", {"server": "git", "follow": "false", "kind": "question_settled"})["events"]

    assert {"result": {"action": "accept", "content": {"size": "M", "name": "octocat"}}} == form
    assert {"result": {"action": "cancel"}} == url
    assert ["accept", "cancel"] == [event["action"] for event in events]
    assert ["name", "size"] == sorted(events[0]["properties"])
    assert "octocat" not in json.dumps(events)
    assert {"accept form git": 1.0, "cancel url git": 1.0} == counted(daemon)


def test_what_must_not_be_asked_is_asked_of_nobody(daemon: RunningDaemon) -> None:
    """An address without https, and a form that cannot be checked, are declined before the operator sees them."""
    plain = asked(daemon, "desk", params={"mode": "url", "message": "x", "url": "http://evil.example/"})
    strange = asked(
        daemon, "desk", params={"message": "x", "requestedSchema": {"type": "object", "properties": {"a": {"$ref": "#"}}}}
    )
    events = daemon.control.get("/v1/events", {"server": "desk", "follow": "false", "kind": "question_settled"})["events"]

    assert [{"result": {"action": "decline"}}] * 2 == [plain, strange]
    assert ["nobody", "nobody"] == [event["by"] for event in events]
    assert ["its URL is not https, and does not lead to this machine"] == [e["why"] for e in events if e["mode"] == "url"]


def test_an_operator_answers_at_the_command_line(daemon: RunningDaemon) -> None:
    """The question is listed under its server's name, a wrong answer is refused and leaves it open, a right one goes out."""
    future = in_the_background(daemon)
    question = waiting(daemon)
    listed = verb(daemon, "elicitations")
    status = verb(daemon, "status")
    wrong = verb(daemon, "elicitations", "answer", question["id"], "--accept", '{"name": "x", "size": "XL"}')
    mute = verb(daemon, "elicitations", "answer", question["id"])
    right = verb(daemon, "elicitations", "answer", question["id"], "--accept", '{"name": "octocat"}')
    again = verb(daemon, "elicitations", "answer", question["id"], "--decline")

    assert "[desk] (github) Who are you?" == question["message"]
    assert "Your name" == question["schema"]["properties"]["name"]["title"]
    assert (0, True, True) == (listed.returncode, question["id"] in listed.stdout, "[desk] (github) Who" in listed.stdout)
    assert "1 question waiting for an operator" in status.stdout
    assert (64, True) == (
        wrong.returncode,
        "name: must have 2 to 65536 characters; size: must be one of its options" in wrong.stderr,
    )
    assert (64, True) == (mute.returncode, "--accept JSON" in mute.stderr)
    assert (0, "desk is answered: accept\n") == (right.returncode, right.stdout)
    assert (1, True) == (again.returncode, "no open question" in again.stderr)
    assert {"result": {"action": "accept", "content": {"name": "octocat"}}} == future.result(10)
    assert {"accept form desk": 1.0} == counted(daemon)
    assert "octocat" not in daemon.log_text()


def test_an_operator_is_asked_field_by_field_at_a_terminal(daemon: RunningDaemon) -> None:
    """Without a flag and at a terminal, `answer` asks for each field."""
    future = in_the_background(daemon)
    question = waiting(daemon)
    command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "--socket", str(daemon.socket), "elicitations", "answer"]
    person, terminal = os.openpty()
    try:
        os.write(person, b"octocat\n\naccept\n")
        done = subprocess.run([*command, question["id"], "--json"], stdin=terminal, capture_output=True, text=True, timeout=20)
    finally:
        os.close(person)
        os.close(terminal)

    assert (0, {"id": question["id"], "server": "desk", "action": "accept"}) == (done.returncode, json.loads(done.stdout))
    assert {"result": {"action": "accept", "content": {"name": "octocat", "size": "M"}}} == future.result(10)


@pytest.mark.parametrize("daemon", ["2s"], indirect=True)
def test_a_question_that_nobody_answers_in_time_is_declined(daemon: RunningDaemon) -> None:
    """The deadline of questions ends it, and nothing is left open; the call goes on as if its time had stood still."""
    future = in_the_background(daemon)
    question = waiting(daemon)
    answer = future.result(15)
    events = daemon.control.get("/v1/events", {"server": "desk", "follow": "false", "kind": "question_settled"})["events"]

    assert 2.0 == pytest.approx(question["deadline"] - question["since"], abs=0.01)
    assert {"result": {"action": "decline"}} == answer
    assert ["no answer of the operator within 2 s"] == [event["why"] for event in events]
    assert [] == daemon.control.get("/v1/elicitations")["elicitations"]


def test_what_is_for_programs_is_refused_unless_it_is_allowed(daemon: RunningDaemon) -> None:
    """Sampling and roots are methods that are not there, for a server whose entry does not allow them."""
    sampling = asked(daemon, "git", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})

    assert -32601 == sampling["error"]["code"]


def test_only_what_waits_for_the_operator_can_be_answered(daemon: RunningDaemon) -> None:
    """An id that is not known is an error that says where to look."""
    with pytest.raises(Refused, match="no open question has the id 'nope'"):
        daemon.control.post("/v1/elicitations/nope:answer", {"action": "decline"})

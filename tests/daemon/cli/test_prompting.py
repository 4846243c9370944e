"""What a person is asked at the terminal, and what becomes of what is typed."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.prompting import ask

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As on GitHub", "minLength": 2},
        "age": {"type": "integer", "minimum": 18},
        "part": {"type": "number"},
        "sure": {"type": "boolean", "default": True},
        "size": {"type": "string", "enum": ["S", "M"], "enumNames": ["small", "medium"]},
        "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "green"]}},
    },
    "required": ["name", "size"],
}


def question(**changed: Any) -> dict[str, Any]:
    return {"mode": "form", "message": "[git] Who?", "schema": SCHEMA, "url": None, **changed}


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_a_form_is_asked_field_by_field(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each answer is checked at once and asked for again; defaults and what may be left out need no more than a line end."""
    typed(monkeypatch, "x", "octocat", "17", "old", "18", "", "", "XL", "2", "red, 2", "accept")
    answer = ask(question())
    shown = capsys.readouterr()

    content = {"name": "octocat", "age": 18, "sure": True, "size": "M", "colours": ["red", "green"]}
    assert {"action": "accept", "content": content} == answer
    assert "" == shown.out
    for words in (
        "[git] Who?",
        "  Your name\n  As on GitHub\n  (a text)",
        "name must have 2 to 65536 characters",
        "age must be at least 18",
        "age must be a number",
        "  sure [yes]: ",
        "  2  M  medium",
        "size must be one of its options",
        "  colours: red, green",
    ):
        assert words in shown.err


def test_no_line_of_a_server_passes_for_one_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a server puts into its question is set in, line by line."""
    typed(monkeypatch, "x", "a")
    forged = "x\nmcpvisor: the daemon is not running"
    field = {"type": "string", "title": forged, "description": f"{forged}\n{forged}"}
    ask(question(message=forged, schema={"type": "object", "properties": {"mcpvisor": field}}))

    assert [] == [line for line in capsys.readouterr().err.splitlines() if line.startswith("mcpvisor: the daemon")]


def test_what_was_typed_can_be_seen_and_changed_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """`edit` asks again, and offers what was there before."""
    typed(monkeypatch, "octocat", "", "", "", "S", "", "edit", "hubot", "", "", "no", "", "", "a")

    assert {"action": "accept", "content": {"name": "hubot", "sure": False, "size": "S"}} == ask(question())


@pytest.mark.parametrize(("word", "action"), [("d", "decline"), ("cancel", "cancel")])
def test_a_person_can_say_no(monkeypatch: pytest.MonkeyPatch, word: str, action: str) -> None:
    """Declining and dismissing send none of what was typed."""
    typed(monkeypatch, "octocat", "", "", "", "S", "", "what?", word)

    assert {"action": action} == ask(question())


def test_an_address_is_shown_whole_and_never_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Consent is asked for; to open it is left to the person."""
    typed(monkeypatch, "a")
    answer = ask(question(mode="url", schema=None, url="https://mcp.example.com/connect?id=1"))

    assert {"action": "accept"} == answer
    assert "\n  https://mcp.example.com/connect?id=1\n" in capsys.readouterr().err


def test_an_end_of_the_input_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D is no answer: the question stays open."""
    typed(monkeypatch, "octocat")

    with pytest.raises(CliError, match="nothing was sent") as ended:
        ask(question())
    assert Exit.NO == ended.value.exit


def test_a_form_without_fields_is_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to type but yes or no."""
    typed(monkeypatch, "a")

    assert {"action": "accept"} == ask(question(schema={"type": "object", "properties": {}}))

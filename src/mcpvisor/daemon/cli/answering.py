"""Owns the verb `elicitations`: what servers ask people now, and the operator's answers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json
from mcpvisor.daemon.cli.screen import screen_of
from mcpvisor.daemon.cli.table import table
from mcpvisor.daemon.cli.using import json_object
from mcpvisor.daemon.cli.verb import Parser, Verbs, add_verb
from mcpvisor.daemon.control.spans import seconds

_HEADER: Final = ("ID", "SERVER", "MODE", "WAITS FOR", "SINCE", "LEFT", "QUESTION")
_ANSWERS: Final = (
    "mcpvisor elicitations answer q7",
    """mcpvisor elicitations answer q7 --accept '{"name": "main"}'""",
    "mcpvisor elicitations answer q7 --decline",
)
_SPARE: Final = ("MODE", "SINCE")


def register(verbs: Verbs) -> None:
    """Add the verb of this family."""
    listing = add_verb(
        verbs, "elicitations", show_open, "list what servers ask people now, or answer it", examples=("mcpvisor elicitations",)
    )
    actions = listing.add_subparsers(metavar="answer", parser_class=Parser)
    answer = add_verb(actions, "answer", give_answer, "answer a question that waits for the operator", examples=_ANSWERS)
    answer.add_argument("id", metavar="ID")
    how = answer.add_mutually_exclusive_group()
    how.add_argument("--accept", metavar="JSON|@FILE", nargs="?", const="{}", help="accept, with this content; @- reads stdin")
    how.add_argument("--decline", action="store_true", help="say no to the server")
    how.add_argument("--cancel", action="store_true", help="dismiss the question without a choice")


def show_open(arguments: argparse.Namespace) -> int:
    """`elicitations`: one line for each open question, the oldest first."""
    answer = ControlClient(arguments.socket).get("/v1/elicitations")
    if arguments.json:
        say_json(answer)
        return int(Exit.DONE)
    rows = [_row(one, answer["now"]) for one in answer["elicitations"]]
    if not rows:
        say("nothing is asked now")
        return int(Exit.DONE)
    for line in table(_HEADER, rows, screen_of(arguments).width, spare=_SPARE):
        say(line)
    return int(Exit.DONE)


def give_answer(arguments: argparse.Namespace) -> int:
    """`elicitations answer`: 0 once the server has the answer; 1 when the question waits for nobody here any more."""
    client = ControlClient(arguments.socket)
    if arguments.accept is not None:
        answer: dict[str, Any] = {"action": "accept", "content": json_object(arguments.accept, "the content")}
    elif arguments.decline or arguments.cancel:
        answer = {"action": "decline" if arguments.decline else "cancel"}
    elif sys.stdin.isatty():
        from mcpvisor.daemon.cli.prompting import ask

        answer = ask(_question(client, arguments.id))
    else:
        raise CliError(Exit.USAGE, "stdin is no terminal to ask at: say --accept JSON, --decline or --cancel")
    result = client.post(f"/v1/elicitations/{quote(arguments.id, safe='')}:answer", answer)
    if arguments.json:
        say_json(result)
    else:
        say(f"{result['server']} is answered: {result['action']}")
    return int(Exit.DONE)


def _question(client: ControlClient, identity: str) -> Mapping[str, Any]:
    """The open question of that id, which waits for the operator. Raises CliError."""
    found = [one for one in client.get("/v1/elicitations")["elicitations"] if one["id"] == identity]
    if not found:
        raise CliError(Exit.NO, f"no open question has the id {identity!r}; `mcpvisor elicitations` lists them")
    if found[0]["waiting_for"] != "operator":
        raise CliError(Exit.NO, f"question {identity} waits for the {found[0]['waiting_for']}, who alone can answer it")
    question: Mapping[str, Any] = found[0]
    return question


def _row(one: Mapping[str, Any], now: float) -> tuple[str, ...]:
    return (
        one["id"],
        one["server"],
        one["mode"] or one["method"],
        clean_line(one["waiting_for"]),
        seconds(one.get("open_seconds", now - one["since"])),  # a daemon of an older version tells none
        seconds(one["deadline"] - now),
        clean_line(one["message"]),
    )

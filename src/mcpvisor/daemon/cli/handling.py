"""Owns the verbs that deal with handlers: `handlers`, and `events emit`, `events dead` and `events retry`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.cli.client import ANSWER_SECONDS, ControlClient
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json, tell
from mcpvisor.daemon.cli.screen import screen_of
from mcpvisor.daemon.cli.table import table
from mcpvisor.daemon.cli.using import json_object
from mcpvisor.daemon.cli.verb import Parser, Verbs, add_verb, duration
from mcpvisor.daemon.control import not_in_force
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.explain_text import clock_time
from mcpvisor.daemon.control.spans import seconds

EMIT_SECONDS: Final = 10.0
EVENT_KINDS: Final = ("resource_updated", "list_changed", "elicitation", "state_changed", "log_message", "progress")
_EMIT_EXAMPLES: Final = (
    "mcpvisor events emit --kind resource_updated --server docs --uri https://docs.example.com/a --dry-run",
    """mcpvisor events emit --kind state_changed --server docs --data '{"new": "failed"}'""",
)
_HEADER: Final = ("NAME", "TYPE", "STATE", "WAITING", "IN FLIGHT", "DEAD", "CIRCUIT", "NEXT", "LAST ERROR")
_PAINTED: Final = (_HEADER.index("STATE"), _HEADER.index("CIRCUIT"))
_SPARE: Final = ("TYPE", "IN FLIGHT")
_GOOD: Final = frozenset({"accepted", "coalesced", "handled"})


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    add_verb(verbs, "handlers", show_handlers, "show how each handler is", examples=("mcpvisor handlers",))


def register_events(events: Parser) -> None:
    """Add the verbs beneath `events`."""
    beneath: Verbs = events.add_subparsers(metavar="VERB", required=False)
    emit = add_verb(
        beneath, "emit", emit_event, "send a test event, and say which handlers it reaches", examples=_EMIT_EXAMPLES
    )
    emit.add_argument("--kind", required=True, metavar="K", choices=EVENT_KINDS, help=", ".join(EVENT_KINDS))
    emit.add_argument("--server", required=True, metavar="S", help="the server that it is said to be of")
    emit.add_argument("--uri", metavar="U", help="of a resource_updated")
    emit.add_argument("--tool", metavar="T", help="of progress; of an elicitation, with --dry-run")
    emit.add_argument("--level", metavar="L", help="of a log_message")
    emit.add_argument("--data", metavar="JSON", help="""what else is in its data, as '{"new": "failed"}'""")
    emit.add_argument("--dry-run", action="store_true", help="only say where it would go")
    emit.add_argument("--timeout", type=duration, default=EMIT_SECONDS, metavar="T", help="how long to wait for it (10s)")
    dead = add_verb(beneath, "dead", show_dead, "list events that were given up", examples=("mcpvisor events dead -n 10",))
    dead.add_argument("-n", "--newest", type=int, default=50, metavar="N", help="how many of them (50)")
    retry = add_verb(
        beneath,
        "retry",
        retry_dead,
        "give dead letters to their handlers once more",
        examples=("mcpvisor events retry --handler reindex",),
    )
    drop = add_verb(
        beneath,
        "drop",
        drop_dead,
        "forget dead letters that nobody wants any more",
        examples=("mcpvisor events drop --handler reindex", "mcpvisor events drop --all"),
    )
    for verb in (retry, drop):
        verb.add_argument("ids", nargs="*", metavar="ID", help="ids of dead letters")
        verb.add_argument("--handler", metavar="NAME", help="all of one handler")
        verb.add_argument("--all", action="store_true", help="all of them")


def show_handlers(arguments: argparse.Namespace) -> int:
    """`handlers`: 0 when every handler takes events and nothing was given up, else 1."""
    answer = ControlClient(arguments.socket).get("/v1/handlers")
    handlers = answer["handlers"]
    if arguments.json:
        say_json(answer)
    elif not handlers:
        say("no handlers")
    else:
        screen, rows = screen_of(arguments), [_row(handler, answer["now"]) for handler in handlers]
        for line in table(
            _HEADER,
            rows,
            screen.width,
            lambda column, cell, text: screen.painted(text, cell) if column in _PAINTED else text,
            spare=_SPARE,
        ):
            say(line)
    if not arguments.json:
        for one in answer.get("rejected", ()):
            tell(not_in_force.rejected(one, clock_time))
        for one in answer.get("waiting", ()):
            tell(not_in_force.waiting_briefly(one, clock_time))
    return int(Exit.DONE if all(_is_well(handler) for handler in handlers) else Exit.NO)


def emit_event(arguments: argparse.Namespace) -> int:
    """`events emit`: 0 when it was handled everywhere it went; 1 when it goes nowhere, or was not handled in time."""
    body = {key: getattr(arguments, key) for key in ("kind", "server", "uri", "tool", "level", "dry_run", "timeout")}
    body = {key: value for key, value in body.items() if value is not None}
    if arguments.data is not None:
        body["data"] = json_object(arguments.data, "the data")
    answer = ControlClient(arguments.socket).post("/v1/events:emit", body, timeout=arguments.timeout + ANSWER_SECONDS)
    if arguments.json:
        say_json(answer)
    else:
        for way in answer["ways"]:
            became = "" if not answer["sent"] else f": {way['outcome']}" + (f": {way['why']}" if way["why"] else "")
            say(clean_line(f"{way['handler']} by {way['route']}{became}"))
        if not answer["ways"]:
            tell("no route leads this event anywhere")
    handled = all(way.get("outcome", "handled") in _GOOD for way in answer["ways"])
    return int(Exit.DONE if answer["ways"] and handled else Exit.NO)


def show_dead(arguments: argparse.Namespace) -> int:
    """`events dead`: one line for each dead letter, the oldest first."""
    answer = ControlClient(arguments.socket).get("/v1/handlers/dead", {"newest": max(arguments.newest, 0)})
    if arguments.json:
        say_json(answer)
        return int(Exit.DONE)
    for letter in answer["dead"]:
        event = letter["event"]
        about = event["data"].get("uri") or event["data"].get("list") or ""
        tries = counted(letter["tries"], "try") if letter["tries"] == 1 else f"{letter['tries']} tries"
        line = f"{clock_time(letter['at'])} {event['id']} {letter['handler']}: {event['kind']} of {event['server']} {about}"
        say(clean_line(f"{line.rstrip()}: {letter['why']} ({tries})"))
    if (more := answer["total"] - len(answer["dead"])) > 0:
        tell(f"{more} older; -n shows more")
    if answer["lost"]:
        tell(f"{counted(answer['lost'], 'dead letter')} had to go for want of room or for their age, since the daemon started")
    return int(Exit.DONE)


def retry_dead(arguments: argparse.Namespace) -> int:
    """`events retry`: 1 where a handler of one of them is not there."""
    answer = ControlClient(arguments.socket).post("/v1/handlers/dead:retry", _which(arguments))
    if arguments.json:
        say_json(answer)
    else:
        for one in answer["retried"]:
            where = "" if one["handler_is_there"] else ", which is not there: it waits until it is"
            say(clean_line(f"{one['id']} waits for {one['handler']} again{where}"))
        if not answer["retried"]:
            say("no dead letters")
    return int(Exit.DONE if all(one["handler_is_there"] for one in answer["retried"]) else Exit.NO)


def drop_dead(arguments: argparse.Namespace) -> int:
    """`events drop`: forgets dead letters, and says of whom."""
    answer = ControlClient(arguments.socket).post("/v1/handlers/dead:drop", _which(arguments))
    if arguments.json:
        say_json(answer)
    else:
        for one in answer["dropped"]:
            say(clean_line(f"{one['id']} of {one['handler']} is dropped"))
        if not answer["dropped"]:
            say("no dead letters")
    return int(Exit.DONE)


def _which(arguments: argparse.Namespace) -> dict[str, Any]:
    """The dead letters that are meant, as the control API takes them. Raises CliError."""
    asked = {"ids": arguments.ids, "handler": arguments.handler, "all": arguments.all}
    named = {key: value for key, value in asked.items() if value}
    if len(named) != 1:
        raise CliError(Exit.USAGE, "name the ids of dead letters, --handler NAME, or --all")
    return named


def _is_well(handler: Mapping[str, Any]) -> bool:
    return handler.get("circuit", "closed") == "closed" and not handler["dead"] and not handler.get("trouble")


def _row(handler: Mapping[str, Any], now: float) -> tuple[str, ...]:
    due = handler.get("next_try")
    return (
        handler["name"],
        handler.get("type", "-"),
        handler["state"],
        str(handler["waiting"]),
        str(handler.get("in_flight", 0)),
        str(handler["dead"]),
        handler.get("circuit", "-"),
        "-" if due is None else f"in {seconds(due - now)}" if due > now else "now",
        handler.get("last_error", "") or "-",
    )

"""Owns the verbs that read what was said and done: `logs` and `events`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcpvisor.daemon.cli.client import ControlClient, server_path
from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.handling import register_events
from mcpvisor.daemon.cli.output import clean_line, say, say_json, say_json_line, tell
from mcpvisor.daemon.cli.verb import Verbs, add_verb
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.explain_text import event_line, stderr_line

_LINES: Final = 50
_EVENTS: Final = ("mcpvisor events --server github -n 20", "mcpvisor events -f --kind server_state_changed --json")


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    logs = add_verb(verbs, "logs", show_logs, "show what servers wrote to stderr", examples=("mcpvisor logs github -f",))
    logs.add_argument("server", nargs="?", help="one server only")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as lines are written, until Ctrl-C")
    logs.add_argument("-n", "--lines", type=_count, default=_LINES, metavar="N", help="how many lines of the past (50)")
    events = add_verb(verbs, "events", show_events, "show what happened", examples=_EVENTS)
    events.add_argument("-f", "--follow", action="store_true", help="go on as it happens, until Ctrl-C")
    events.add_argument("-n", "--lines", type=_count, default=_LINES, metavar="N", help="how many events of the past (50)")
    events.add_argument("--server", metavar="S", help="of one server only")
    events.add_argument(
        "--kind",
        metavar="K",
        help="of one kind only, such as server_state_changed; some, such as resource_updated, are shown with -f alone",
    )
    register_events(events)


def show_logs(arguments: argparse.Namespace) -> int:
    """`logs`: the captured stderr of one server, or of all, each line with its time, and with its server before it."""
    client = ControlClient(arguments.socket)
    if arguments.follow and arguments.server is not None:
        query = {"lines": arguments.lines, "follow": "true"}
        stream = client.follow(server_path(arguments.server, "/logs"), query)
        named = ((name, {"server": arguments.server, **value}) for name, value in stream)
        return _follow_lines(named, arguments, prefix="")
    if arguments.follow:
        query = {"kind": "stderr_written", "backlog": arguments.lines}
        stream = client.follow("/v1/events", query)
        lines = ((name, _lines_of(value) if name == "event" else value) for name, value in stream)
        return _follow_lines(lines, arguments, prefix="{server}: ")
    names = [arguments.server] if arguments.server else [one["name"] for one in client.get("/v1/status")["servers"]]
    answers = [client.get(server_path(name, "/logs"), {"lines": arguments.lines}) for name in names]
    if arguments.json:
        say_json(answers[0] if arguments.server else {"servers": answers})
        return int(Exit.DONE)
    for answer in answers:
        before = "" if arguments.server else f"{answer['server']}: "
        for line in answer["lines"]:
            say(_written(line, before))
    return int(Exit.DONE)


def show_events(arguments: argparse.Namespace) -> int:
    """`events`: what the daemon still knows of the past and, with `-f`, what happens from now on."""
    client = ControlClient(arguments.socket)
    query = {"server": arguments.server, "kind": arguments.kind, "backlog": arguments.lines}
    if not arguments.follow:
        known = client.get("/v1/events", {**query, "follow": "false"})
        if arguments.json:
            say_json(known)
        else:
            for event in known["events"]:
                say(_line(event))
        if known.get("live_only"):
            tell(f"{arguments.kind} is told as it happens and not kept: `mcpvisor events -f --kind {arguments.kind}` shows it")
        return int(Exit.DONE)
    for name, value in client.follow("/v1/events", query):
        if name == "lost":
            _tell_lost(value)
        elif arguments.json:
            say_json_line(value)
        else:
            say(_line(value))
            sys.stdout.flush()
    return int(Exit.DONE)


def _line(event: Mapping[str, Any]) -> str:
    return clean_line(event_line({**event, "kind": f"{event.get('server') or 'daemon'} {event['kind']}"}))


def _tell_lost(value: Mapping[str, Any]) -> None:
    tell(f"{counted(value['count'], 'event')} came faster than could be shown")


def _lines_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of stderr in the shape that followed logs have."""
    lines = [{"at": event["at"], "line": line} for line in event["lines"]]
    return {"server": event["server"], "lines": lines, "dropped": event["dropped"]}


def _written(line: Mapping[str, Any], before: str) -> str:
    return before + clean_line(stderr_line(line))


def _follow_lines(stream: Iterable[tuple[str, Mapping[str, Any]]], arguments: argparse.Namespace, *, prefix: str) -> int:
    for name, value in stream:
        if name == "lost":
            _tell_lost(value)
            continue
        if arguments.json:
            say_json_line(value)
            continue
        before = prefix.format(server=value.get("server"))
        if value["dropped"]:
            was = "was" if value["dropped"] == 1 else "were"
            say(f"{before}[{counted(value['dropped'], 'line')} over the rate {was} dropped]")
        for line in value["lines"]:
            say(_written(line, before))
        sys.stdout.flush()
    return int(Exit.DONE)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines")
    return int(text)

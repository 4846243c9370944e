"""Owns the verbs that look at servers: `status` and `explain`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcpvisor.daemon.cli.client import ANSWER_SECONDS, ControlClient, server_path
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import (
    UNSEEN_WIDTH,
    clean,
    clean_line,
    painted,
    say,
    say_json,
    say_json_line,
    shortened,
    table,
    tell,
    width,
)
from mcpvisor.daemon.cli.verb import Verbs, add_verb, duration
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.explain_text import as_text, clock_time
from mcpvisor.daemon.control.spans import seconds

WAIT_SECONDS: Final = 60.0
_WATCH_SECONDS: Final = 1.0
_HEADER: Final = ("NAME", "STATE", "SINCE", "NEXT", "TRANSPORT", "ERA", "PID", "RESTARTS", "REASON")
_STATE_COLUMN: Final = 1

_JUST_NOW: Final = 2.0
"""Seconds for which a try that is due may be called due now."""


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    status = add_verb(verbs, "status", show_status, "show the state of every server, or of one")
    status.add_argument("server", nargs="?", help="one server only")
    status.add_argument("--watch", action="store_true", help="show it again and again, until Ctrl-C")
    status.add_argument("--wait", action="store_true", help="wait until every server that is wanted running is ready")
    status.add_argument("--timeout", type=duration, default=WAIT_SECONDS, metavar="T", help="how long to wait (60s)")
    explain = add_verb(verbs, "explain", show_explanation, "say why a server is as it is, and what happens next")
    explain.add_argument("server")


def show_status(arguments: argparse.Namespace) -> int:
    """`status`: 0 when every server that is wanted running is ready, else 1."""
    client = ControlClient(arguments.socket)
    wait = max(int(arguments.timeout), 1) if arguments.wait else 0
    query = {"server": arguments.server, "wait": wait or None}
    status = client.get("/v1/status", query, timeout=wait + ANSWER_SECONDS)
    while arguments.watch:
        _show_again(status, arguments)
        time.sleep(_WATCH_SECONDS)
        status = client.get("/v1/status", {"server": arguments.server})
    return _show(status, arguments)


def show_explanation(arguments: argparse.Namespace) -> int:
    """`explain`: 0 when the server is as it is wanted, else 1."""
    explanation = ControlClient(arguments.socket).get(server_path(arguments.server))
    if arguments.json:
        say_json(explanation)
    else:
        say(clean(as_text(explanation)))
    return int(Exit.DONE if explanation["server"]["healthy"] else Exit.NO)


def status_lines(status: Mapping[str, Any], limit: int | None) -> list[str]:
    """The status for a person: a summary, the servers, and what was rejected of the configuration.

    Reasons are cut to what `limit` leaves of a line; where it is None, to `UNSEEN_WIDTH`.
    """
    lines = [f"{status['ready']}/{status['total']} ready"]
    if stopping := status.get("stopping"):
        lines.insert(0, f"stopping: {clean_line(stopping)}")
    now = status["now"]
    if status["servers"]:
        rows = [_row(server, now, limit) for server in status["servers"]]
        lines += table(
            _HEADER, rows, limit, lambda column, cell, text: painted(text, cell) if column == _STATE_COLUMN else text
        )
    lines += [_instances(server) for server in status["servers"] if server.get("instances")]
    store = status.get("state_store")
    if store is not None and not store["up"]:
        lines += ["", f"the state store is degraded, what is new is kept in memory only: {clean_line(store['reason'])}"]
    if store is not None and store.get("damaged"):
        lines += [
            "",
            f"the state file was damaged at the start, its orders do not stand any more; it is {clean_line(store['damaged'])}",
        ]
    if waiting := status.get("waiting_questions"):
        lines += ["", f"{counted(waiting, 'question')} waiting for an operator: `mcpvisor elicitations` shows and answers them"]
    lines += _handler_troubles(status.get("handlers", ()), now)
    rejected = status["config"]["rejected"]
    if rejected:
        lines += ["", "rejected from the configuration (what was accepted before keeps running):"]
        lines += [f"  {clean(one['where'])}: {clean(one['error'])}" for one in rejected]
    return lines


def _instances(server: Mapping[str, Any]) -> str:
    """What runs of a server beside the instance that its row is about."""
    failing = f"; {clean_line(server['instance_failing'])}" if server["instance_failing"] else ""
    return f"{server['name']}: {counted(server['instances'], 'instance')} for one client each{failing}"


def _handler_troubles(handlers: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """A line for each handler that takes nothing, or has given something up."""
    lines: list[str] = []
    for handler in handlers:
        name, parts = handler["name"], list[str]()
        if handler.get("circuit", "closed") != "closed":
            due = handler.get("next_try")
            again = f", tried again in {seconds(due - now)}" if due is not None and due > now else ""
            parts.append(f"left alone after {counted(handler['failures'], 'failure')}{again}: {handler['last_error']}")
        elif handler.get("trouble"):
            parts.append(f"takes nothing now: {handler['trouble']}")
        if handler["state"] == "absent" and handler["waiting"]:
            parts.append(f"is not configured, and {counted(handler['waiting'], 'event')} wait until it is again")
        if handler["dead"]:
            parts.append(f"{counted(handler['dead'], 'dead letter')}, see `mcpvisor events dead`")
        lines += [clean_line(f"handler {name}: {part}") for part in parts]
    return ["", *lines] if lines else []


def _row(server: Mapping[str, Any], now: float, limit: int | None) -> tuple[str, ...]:
    due = server["next_attempt"]
    return (
        server["name"],
        server["state"],
        seconds(now - server["since"]),
        "-" if due is None else f"in {seconds(due - now)}" if due > now else "now" if due > now - _JUST_NOW else "overdue",
        server["transport"],
        server["era"] or "-",
        "-" if server["pid"] is None else str(server["pid"]),
        str(server["restarts"]),
        shortened(server["reason"], UNSEEN_WIDTH) if limit is None else server["reason"],
    )


def _one(status: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The status cut down to one server, where one is asked for."""
    if name is None:
        return status
    servers = [server for server in status["servers"] if server["name"] == name]
    if not servers:
        raise CliError(Exit.NO, f"no server is named {name!r}; `mcpvisor status` lists them all")
    ready = sum(server["state"] == "ready" for server in servers)
    return {**status, "ready": ready, "total": len(servers), "servers": servers, "healthy": servers[0]["healthy"]}


def _show(status: dict[str, Any], arguments: argparse.Namespace) -> int:
    status = _one(status, arguments.server)
    if arguments.json:
        say_json(status)
    else:
        for line in status_lines(status, width()):
            say(line)
    if not status["config"]["ok"] and not status["config"]["rejected"]:
        tell("the last configuration was rejected")
    return int(Exit.DONE if status["healthy"] else Exit.NO)


def _show_again(status: dict[str, Any], arguments: argparse.Namespace) -> None:
    status = _one(status, arguments.server)
    if arguments.json:
        say_json_line(status)
        return
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    say("\n".join([clock_time(status["now"]), *status_lines(status, width()), ""]))
    sys.stdout.flush()

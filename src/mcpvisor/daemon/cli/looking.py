"""Owns the verbs that look at servers: `status` and `explain`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.cli.client import ANSWER_SECONDS, ControlClient, server_path
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean, say, say_json, tell
from mcpvisor.daemon.cli.screen import screen_of
from mcpvisor.daemon.cli.status_view import status_lines
from mcpvisor.daemon.cli.verb import Verbs, add_verb, duration
from mcpvisor.daemon.control.explain_text import as_text

WAIT_SECONDS: Final = 60.0
INTERVAL_SECONDS: Final = 2.0


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    status = add_verb(
        verbs,
        "status",
        show_status,
        "show the state of every server, or of one",
        examples=("mcpvisor status", "mcpvisor status github --wait --timeout 30s", "mcpvisor status --watch"),
    )
    status.add_argument("server", nargs="?", help="one server only")
    status.add_argument("--watch", action="store_true", help="show what changes as it changes, until Ctrl-C")
    interval = "how often --watch looks by itself, beside the changes it is told of (2s)"
    status.add_argument("--interval", type=duration, default=INTERVAL_SECONDS, metavar="T", help=interval)
    status.add_argument("--wait", action="store_true", help="wait until every server that is wanted running is ready")
    status.add_argument("--timeout", type=duration, default=WAIT_SECONDS, metavar="T", help="how long to wait (60s)")
    explain = add_verb(
        verbs,
        "explain",
        show_explanation,
        "say why a server is as it is, what happens next, and what to do",
        examples=("mcpvisor explain github",),
    )
    explain.add_argument("server")


def show_status(arguments: argparse.Namespace) -> int:
    """`status`: 0 when every server that is wanted running is ready, else 1."""
    client = ControlClient(arguments.socket)
    wait = max(int(arguments.timeout), 1) if arguments.wait else 0
    query = {"server": arguments.server, "wait": wait or None}
    status = one_of(client.get("/v1/status", query, timeout=wait + ANSWER_SECONDS), arguments.server)
    if arguments.watch:
        from mcpvisor.daemon.cli.watching import watch

        return watch(client, status, arguments)
    if arguments.json:
        say_json(status)
    else:
        for line in status_lines(status, screen_of(arguments)):
            say(line)
        if arguments.server is not None and not status["healthy"]:
            tell(f"`mcpvisor explain {arguments.server}` says why, and what to do")
    if not status["config"]["ok"] and not status["config"]["rejected"]:
        tell("the last configuration was rejected")
    return int(Exit.DONE if status["healthy"] else Exit.NO)


def show_explanation(arguments: argparse.Namespace) -> int:
    """`explain`: 0 when the server is as it is wanted, else 1."""
    explanation = ControlClient(arguments.socket).get(server_path(arguments.server))
    if arguments.json:
        say_json(explanation)
    else:
        screen, text = screen_of(arguments), clean(as_text(explanation))
        first, *others = text.split("\n")
        say("\n".join([screen.painted(first, explanation["state"]), *others]))
    return int(Exit.DONE if explanation["server"]["healthy"] else Exit.NO)


def one_of(status: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The status cut down to one server, where one is asked for. Raises CliError where there is none of that name."""
    if name is None:
        return status
    servers: list[Mapping[str, Any]] = [server for server in status["servers"] if server["name"] == name]
    if not servers:
        raise CliError(Exit.NO, f"no server is named {name!r}; `mcpvisor status` lists them all")
    ready = sum(server["state"] == "ready" for server in servers)
    return {**status, "ready": ready, "total": len(servers), "servers": servers, "healthy": servers[0]["healthy"]}

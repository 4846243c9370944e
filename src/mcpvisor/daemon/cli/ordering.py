"""Owns the verbs that give orders to one server."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.cli.client import ControlClient, server_path
from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json
from mcpvisor.daemon.cli.verb import Verbs, add_verb
from mcpvisor.daemon.control.explain_text import clock_time

ORDERS: Final = {
    "start": "start a server that was stopped; refused while it is disabled",
    "stop": "stop a server until `start`, or until the daemon's next start",
    "restart": "give a server a fresh process or session, now; refused while it is disabled",
    "enable": "let a server run that was disabled",
    "disable": "keep a server from running until `enable`",
}


LEVELS: Final = ("debug", "info", "warning", "error")
CONFIGURED: Final = "configured"


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    for order, summary in ORDERS.items():
        verb = add_verb(verbs, order, give_order, summary, examples=(f"mcpvisor {order} github",))
        verb.set_defaults(order=order)
        verb.add_argument("server")
    summary = "show the level of the daemon's log, or change it until the daemon ends"
    examples = ("mcpvisor log-level", "mcpvisor log-level debug", "mcpvisor log-level configured")
    level = add_verb(verbs, "log-level", order_level, summary, examples=examples)
    level.add_argument("level", nargs="?", choices=(*LEVELS, CONFIGURED), help="configured: what the configuration says")


def give_order(arguments: argparse.Namespace) -> int:
    """Give the order; 0 once the daemon has taken it up, which is before the server has followed it; 1 when it was refused."""
    server = ControlClient(arguments.socket).post(server_path(arguments.server, f":{arguments.order}"))
    if arguments.json:
        say_json(server)
    else:
        reason = f": {clean_line(server['reason'])}" if server["reason"] else ""
        say(f"{server['name']} is {server['state']}, wanted {server['wanted']}{reason}")
    return int(Exit.DONE)


def order_level(arguments: argparse.Namespace) -> int:
    """`log-level`: what it is, or is from now on, and whose order that is."""
    client = ControlClient(arguments.socket)
    if arguments.level is None:
        answer = client.get("/v1/log")
    else:
        answer = client.post("/v1/log", {"level": None if arguments.level == CONFIGURED else arguments.level})
    if arguments.json:
        say_json(answer)
    else:
        say(clean_line(f"{answer['level']}, as configured" if answer["by"] is None else _by_order(answer)))
    return int(Exit.DONE)


def _by_order(answer: Mapping[str, Any]) -> str:
    since = clock_time(answer["at"])
    return f"{answer['level']} by order of {answer['by']} since {since}, configured is {answer['configured']}"

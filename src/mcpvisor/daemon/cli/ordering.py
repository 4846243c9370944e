"""Owns the verbs that give orders to one server."""

from __future__ import annotations

import argparse
from typing import Final

from mcpvisor.daemon.cli.client import ControlClient, server_path
from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json
from mcpvisor.daemon.cli.verb import Verbs, add_verb

ORDERS: Final = {
    "start": "start a server that was stopped; refused while it is disabled",
    "stop": "stop a server until `start`, or until the daemon's next start",
    "restart": "give a server a fresh process or session, now; refused while it is disabled",
    "enable": "let a server run that was disabled",
    "disable": "keep a server from running until `enable`",
}


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    for order, summary in ORDERS.items():
        verb = add_verb(verbs, order, give_order, summary, examples=(f"mcpvisor {order} github",))
        verb.set_defaults(order=order)
        verb.add_argument("server")


def give_order(arguments: argparse.Namespace) -> int:
    """Give the order; 0 once the daemon has taken it up, which is before the server has followed it; 1 when it was refused."""
    server = ControlClient(arguments.socket).post(server_path(arguments.server, f":{arguments.order}"))
    if arguments.json:
        say_json(server)
    else:
        reason = f": {clean_line(server['reason'])}" if server["reason"] else ""
        say(f"{server['name']} is {server['state']}, wanted {server['wanted']}{reason}")
    return int(Exit.DONE)

"""Owns the verb by which a client that only speaks stdio reaches the gateway: `stdio`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from mcpvisor.daemon.cli.verb import Verbs, add_verb

_EXAMPLES = ("mcpvisor stdio", "mcpvisor stdio github --gateway http://127.0.0.1:7433 --token-file token")


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    summary = "be a stdio MCP server that is a door to the gateway, for clients that only speak stdio"
    stdio = add_verb(verbs, "stdio", serve_stdio, summary, prints=False, examples=_EXAMPLES)
    stdio.add_argument("server", nargs="?", metavar="NAME", help="one server, under its own names (default: all of them)")
    stdio.add_argument(
        "--gateway", metavar="URL", help="the gateway's URL, or unix:/path (default: as the daemon's control socket says)"
    )
    stdio.add_argument(
        "--token-file", type=Path, metavar="FILE", help="holds the bearer token (default: as the control socket says)"
    )


def serve_stdio(arguments: argparse.Namespace) -> int:
    """`stdio`: until stdin ends; 1 where there is no server NAME."""
    from mcpvisor.daemon.shim.door import found_door, named_door
    from mcpvisor.daemon.shim.run import main

    if arguments.gateway is not None:
        find = partial(named_door, arguments.gateway, arguments.server, arguments.token_file)
    else:
        find = partial(found_door, arguments.socket, arguments.server, arguments.token_file)
    return main(find, arguments.server)

"""Owns the verbs that need no daemon, because they are one: `run`, `demo`, and `version`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from mcpvisor import __version__
from mcpvisor.daemon.cli.output import say, say_json
from mcpvisor.daemon.cli.verb import Verbs, add_verb
from mcpvisor.daemon.config.places import config_paths


def register(verbs: Verbs) -> None:
    """Add the verbs of this family."""
    examples = ("mcpvisor run", "mcpvisor run --config /etc/mcpvisor")
    run = add_verb(verbs, "run", run_daemon, "run the daemon in the foreground", prints=False, asks=False, examples=examples)
    run.add_argument(
        "--config",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="a file or a folder; may be given more than once (default $MCPVISOR_CONFIG, else /etc/mcpvisor)",
    )
    summary = "run the daemon with bundled servers, to have a look at it"
    add_verb(verbs, "demo", run_demo, summary, prints=False, asks=False, examples=("mcpvisor demo",))
    summary = "print versions, and the protocol revisions that are spoken"
    add_verb(verbs, "version", show_version, summary, asks=False, examples=("mcpvisor version --json",))


def run_daemon(arguments: argparse.Namespace) -> int:
    """`run`: the daemon, until it is told to end."""
    from mcpvisor.daemon.loading import sparing

    with sparing():
        from mcpvisor.daemon.run import main

    return main(arguments.config or config_paths(os.environ, os.geteuid()))


def run_demo(_: argparse.Namespace) -> int:
    """`demo`: the daemon with the servers of the package."""
    from mcpvisor.daemon.loading import sparing

    with sparing():
        from mcpvisor.daemon.demo.run import main

    return main()


def show_version(arguments: argparse.Namespace) -> int:
    """`version`: this program, its SDK and the protocol, without asking a daemon."""
    facts: dict[str, Any] = {
        "mcpvisor": __version__,
        "mcp": _installed("mcp"),
        "python": sys.version.split()[0],
        "protocol_revisions": _protocol_revisions(),
    }
    if arguments.json:
        say_json(facts)
    else:
        say(f"mcpvisor {facts['mcpvisor']} (mcp {facts['mcp']}, Python {facts['python']})")
        say(f"MCP revisions {', '.join(facts['protocol_revisions'])}")
    return 0


def _installed(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _protocol_revisions() -> list[str]:
    """The revisions that the SDK knows, from its one plain module: importing it all takes a quarter of a second."""
    import runpy
    from importlib.util import find_spec

    found = find_spec("mcp_types")
    if found is None or not found.submodule_search_locations:
        return []
    constants = runpy.run_path(str(Path(next(iter(found.submodule_search_locations)), "version.py")))
    return list(constants["KNOWN_PROTOCOL_VERSIONS"])

"""Owns the command `mcpvisor`: which verbs there are, and how each of its ends becomes an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from mcpvisor import __version__
from mcpvisor.daemon.cli import (
    answering,
    backing,
    bridging,
    completing,
    configuring,
    connecting,
    examining,
    following,
    handling,
    importing,
    looking,
    ordering,
    serving,
    showing,
    using,
)
from mcpvisor.daemon.cli.exits import CliError, Exit, Refused, fault
from mcpvisor.daemon.cli.output import say_json, tell
from mcpvisor.daemon.cli.overview import Overview
from mcpvisor.daemon.cli.verb import Parser, add_color

_FAMILIES = (
    serving,
    looking,
    ordering,
    following,
    handling,
    using,
    answering,
    configuring,
    importing,
    showing,
    examining,
    backing,
    bridging,
    connecting,
)


def build_parser() -> Parser:
    """The parser of all verbs."""
    parser = Overview(prog="mcpvisor", description="The init system for MCP servers.")
    parser.add_argument("--socket", metavar="PATH", default=None, help="the daemon's control socket")
    add_color(parser, default="auto")
    parser.add_argument("--version", action="version", version=f"mcpvisor {__version__}", help="print the version")
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for family in _FAMILIES:
        family.register(verbs)
    completing.register(verbs, build_parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if sys.stdout is None:  # type: ignore[redundant-expr, unused-ignore] # how Python shows a stdout that was closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # type: ignore[unreachable, unused-ignore] # noqa: SIM115, PTH123
    with contextlib.suppress(AttributeError):  # a stdout that somebody has put in its place may know no errors
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # it is a text file otherwise
    try:
        arguments = build_parser().parse_args(argv)
        try:
            code = int(arguments.run(arguments))
        except CliError as error:
            if isinstance(error, Refused) and arguments.json:
                say_json({"error": error.body})
            tell(str(error))
            code = int(error.exit)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has had enough. Python would complain once more when it closes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.BROKEN_PIPE)
    except OSError as error:
        # Verbs turn every error of theirs into a CliError: what is left is a stdout that cannot be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        tell(f"cannot write the answer: {error.strerror or error}")
        return int(Exit.NO)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - a fault of ours; Python itself would print whatever secret it tells of
        tell(fault(error))
        return int(Exit.NO)
    return code


if __name__ == "__main__":
    sys.exit(main())

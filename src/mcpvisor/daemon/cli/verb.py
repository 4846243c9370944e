"""Owns what every verb is made of: its arguments, and a function from them to an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from mcpvisor.daemon.cli.exits import Exit

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it

    Verbs = _SubParsersAction["Parser"]
else:
    Verbs = Any

Run = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors have the exit code of usage errors."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def add_verb(verbs: Verbs, name: str, run: Run, summary: str, *, prints: bool = True, asks: bool = True) -> Parser:
    """A new verb. `prints`: it knows `--json`; `asks`: it asks the daemon, and knows `--socket`."""
    parser = verbs.add_parser(name, help=summary, description=summary[:1].upper() + summary[1:] + ".")
    parser.set_defaults(run=run, json=False)
    if prints:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    if asks:
        parser.add_argument("--socket", metavar="PATH", default=argparse.SUPPRESS, help="the daemon's control socket")
    return parser


def duration(text: str) -> float:
    """A duration as the configuration writes it, in seconds: `30s`, `1.5m`, or a bare number."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    number = text.rstrip("msdh")
    unit = text[len(number) :] or "s"
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 500ms, 30s, 5m, 2h, 1d or seconds") from None
    if not 0 < value < 1e9:  # some thirty years; also refuses nan and inf
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: it must be more than nothing")
    return value

"""Owns what every verb is made of: its arguments, its help, and a function from them to an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.screen import WHEN

if TYPE_CHECKING:
    from argparse import _SubParsersAction  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it

    Verbs = _SubParsersAction["Parser"]
else:
    Verbs = Any

Run = Callable[[argparse.Namespace], int]

_COLOR: Final = "colour: auto (on a terminal that knows it), always or never"
_HELP_WIDTH: Final = 110
_LEAST_HELP_WIDTH: Final = 40
_USUAL_WIDTH: Final = 80

INDENT: Final = "  "
"""A line of a description or an epilog that begins with this is shown as it is."""


class HelpFormatter(argparse.HelpFormatter):
    """Help whose paragraphs are filled, and whose examples stay as they are."""

    def __init__(self, prog: str, **given: Any) -> None:
        super().__init__(prog, **given, width=fitting_width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(part if f"\n{INDENT}" in part else fill(part, width, indent) for part in text.split("\n\n"))


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors have the exit code of usage errors. `examples` are commands that show its use."""

    examples: Sequence[str] = ()

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.formatter_class = HelpFormatter

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, f"{value!r} is none of {', '.join(action.choices)}{_nearest(value, action.choices)}"
            )

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.USAGE, f"{self.prog}: {message}\n")


def add_verb(
    verbs: Verbs,
    name: str,
    run: Run,
    summary: str,
    *,
    prints: bool = True,
    asks: bool = True,
    examples: Sequence[str] = (),
) -> Parser:
    """A new verb. `prints`: it knows `--json`; `asks`: it asks the daemon, and knows `--socket`.

    `examples` are whole commands, for its help, for the manual, and for a test that each of them is understood.
    """
    parser = verbs.add_parser(name, help=summary, description=f"{_capital(summary)}.", epilog=as_epilog(examples))
    parser.examples = examples
    parser.set_defaults(run=run, json=False)
    if prints:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        add_color(parser, default=argparse.SUPPRESS)
    if asks:
        parser.add_argument("--socket", metavar="PATH", default=argparse.SUPPRESS, help="the daemon's control socket")
    return parser


def fitting_width() -> int:
    """How wide help is: as the screen where that is known, and in any case as people like to read."""
    named = os.environ.get("COLUMNS", "")
    try:
        columns = int(named) if named.isdecimal() else os.get_terminal_size().columns
    except OSError:
        columns = 0
    return max(min((columns or _USUAL_WIDTH) - 2, _HELP_WIDTH), _LEAST_HELP_WIDTH)


def _nearest(word: Any, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(str(word), known, 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def add_color(parser: Parser, default: str) -> None:
    """The option `--color`, which may stand before and after the verb."""
    parser.add_argument("--color", choices=WHEN, default=default, metavar="WHEN", help=_COLOR)


def as_epilog(examples: Iterable[str]) -> str | None:
    """Examples as the end of a help; None where there are none."""
    lines = [f"{INDENT}{one}" for one in examples]
    return "\n".join(["examples:", *lines]) if lines else None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


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

"""Owns what `mcpvisor --help` shows: the verbs in groups, those first that a newcomer needs first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final, NamedTuple

from mcpvisor.daemon.cli.tree import Option, Verb, options_of, verbs_of
from mcpvisor.daemon.cli.verb import INDENT, Parser, fitting_width

GROUPS: Final = {
    "to begin": ("demo", "import", "check", "run", "connect"),
    "to look": ("status", "explain", "logs", "events", "handlers", "elicitations", "doctor"),
    "to give orders": ("restart", "stop", "start", "disable", "enable", "log-level"),
    "to change the configuration": ("plan", "reload", "config"),
    "to use servers": ("tools", "resources", "prompts", "call", "read", "stdio"),
    "besides": ("backup", "version", "completion"),
}
"""Which verb stands where. A verb that is in no group is shown below all others."""

SOCKETS: Final = (
    "The daemon is found by --socket, $MCPVISOR_SOCKET, /run/mcpvisor/control.sock, $XDG_RUNTIME_DIR/mcpvisor/control.sock or "
    "/tmp/mcpvisor-$UID/control.sock."
)

EXITS: Final = (
    "Exit codes: 0 done, 1 the answer is no or the order was refused, 3 the daemon is not running, 64 usage, "
    "69 the daemon does not answer, 75 temporary, 77 permission, 78 configuration."
)

_NAME_WIDTH: Final = 15


class Group(NamedTuple):
    """Verbs that belong together, under a title."""

    title: str
    verbs: list[Verb]


class Overview(Parser):
    """The parser of the program itself, with a help of its own."""

    def format_help(self) -> str:
        """The program, its verbs in groups, its options."""
        return "\n".join(_lines(self, fitting_width()))


def grouped(parser: Parser) -> list[Group]:
    """The verbs of the program, by group."""
    left = {verb.words[0]: verb for verb in verbs_of(parser)}
    groups = [Group(title, [left.pop(name) for name in names if name in left]) for title, names in GROUPS.items()]
    return [group for group in [*groups, Group("more", list(left.values()))] if group.verbs]


def _lines(parser: Parser, width: int) -> Iterator[str]:
    yield f"usage: {parser.prog} [OPTION]... VERB ..."
    yield ""
    yield str(parser.description)
    yield ""
    for title, verbs in grouped(parser):
        yield f"{title}:"
        for verb in verbs:
            yield from _entry(verb.words[0], verb.summary, width)
        yield ""
    yield "options:"
    for option in options_of(parser):
        yield from _entry(_spelled(option), option.help, width)
    yield ""
    yield from textwrap.wrap(f"`{parser.prog} VERB --help` has the options of a verb, and examples. {SOCKETS} {EXITS}", width)
    yield ""


def _spelled(option: Option) -> str:
    return ", ".join(option.names) + (f" {option.value}" if option.value else "")


def _entry(name: str, text: str, width: int) -> list[str]:
    first = f"{INDENT}{name:<{_NAME_WIDTH}}"
    if len(first) > len(INDENT) + _NAME_WIDTH:
        return [first.rstrip(), *_entry("", text, width)]
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first))

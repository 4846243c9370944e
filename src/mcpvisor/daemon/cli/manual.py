"""Owns the manual page: the same verbs, options and examples as the help, in roff; and the files that are installed beside us.

`python -m mcpvisor.daemon.cli.manual FOLDER` writes them below that folder, as `make manual` does.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS, Action
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mcpvisor.daemon.cli.main import build_parser
from mcpvisor.daemon.cli.overview import SOCKETS, grouped
from mcpvisor.daemon.cli.shells import SCRIPTS
from mcpvisor.daemon.cli.tree import Verb, all_verbs, options_of, places_of
from mcpvisor.daemon.cli.verb import Parser

_EXIT_STATUS: Final = (
    ("0", "done; of status and explain: all that is wanted running is ready"),
    ("1", "the command ran, and the answer is no, or the order was refused"),
    ("3", "the daemon is not running"),
    ("64", "the command was not understood"),
    ("69", "the daemon is there and does not answer"),
    ("75", "temporary: another daemon runs already"),
    ("77", "no permission"),
    ("78", "something in the configuration is wrong"),
    ("130", "interrupted by Ctrl-C"),
    ("141", "the reader of the output has gone"),
)

_ENVIRONMENT: Final = (
    ("MCPVISOR_SOCKET", "the daemon's control socket, where --socket does not name one"),
    ("MCPVISOR_CONFIG", "what run, check and plan read, where no path is given: paths between colons"),
    ("NO_COLOR", "no colour; --color wins over it"),
    ("FORCE_COLOR, CLICOLOR_FORCE", "colour also where no terminal is"),
    ("COLUMNS", "how wide lines may be, also where no terminal is"),
)

_FILES: Final = (
    ("/etc/mcpvisor", "the configuration of a system service: mcpvisor.toml, and servers.d"),
    ("~/.config/mcpvisor", "the configuration of a user's own daemon"),
    ("/var/lib/mcpvisor", "the state of a system service"),
    ("/run/mcpvisor/control.sock", "the control socket of a system service"),
)

_DESCRIPTION: Final = (
    "mcpvisor keeps MCP (Model Context Protocol) servers running, and every connection to them at the goal that its entry "
    "declares. One daemon (mcpvisor run) reads the configuration, starts the servers, heals them, and offers all of them at "
    "one endpoint. The other verbs ask that daemon, or give it orders."
)

_JSON: Final = (
    "What is printed is data, and messages go to the standard error. With --json the data is JSON, whose keys are documented "
    "in docs/json.md: keys are added, and never changed."
)


def man_page(parser: Parser) -> str:
    """The manual page of the whole program."""
    return "\n".join([*_page(parser), ""])


def installed_files(parser: Parser) -> dict[str, str]:
    """What is installed below a prefix, such as /usr: the text of each file by its path."""
    return {
        "share/man/man1/mcpvisor.1": man_page(parser),
        "share/bash-completion/completions/mcpvisor": SCRIPTS["bash"],
        "share/zsh/site-functions/_mcpvisor": SCRIPTS["zsh"],
        "share/fish/vendor_completions.d/mcpvisor.fish": SCRIPTS["fish"],
    }


def _page(parser: Parser) -> Iterator[str]:
    yield '.\\" Written by `make manual`, from the same source as the help.'
    yield '.TH MCPVISOR 1 "" mcpvisor "User Commands"'
    yield ".SH NAME"
    yield r"mcpvisor \- the init system for MCP servers"
    yield ".SH SYNOPSIS"
    yield r".B mcpvisor"
    yield r"[\fIOPTION\fR]... \fIVERB\fR ..."
    yield ".SH DESCRIPTION"
    yield _text(_DESCRIPTION)
    yield ".PP"
    yield _text(SOCKETS)
    yield ".PP"
    yield _text(_JSON)
    yield ".SH OPTIONS"
    yield from _options(parser)
    for title, verbs in grouped(parser):
        yield f".SH VERBS {_text(title.upper())}"
        for verb in verbs:
            for one in (verb, *all_verbs(verb.parser, verb.words)):
                yield from _verb(one)
    yield from _section("EXIT STATUS", _EXIT_STATUS)
    yield from _section("ENVIRONMENT", _ENVIRONMENT)
    yield from _section("FILES", _FILES)


def _verb(verb: Verb) -> Iterator[str]:
    places = [one for one in places_of(verb.parser) if one.help != SUPPRESS]
    synopsis = ["[OPTION]...", *(_repeated(_name(one), one.nargs) for one in places)]
    yield f".SS {_bold('mcpvisor ' + ' '.join(verb.words))} {_text(' '.join(synopsis))}"
    yield _text(str(verb.parser.description))
    yield from _entries((_name(one), one.help) for one in places if one.help)
    yield from _options(verb.parser, among_all=False)
    if verb.parser.examples:
        yield ".PP"
        yield "Examples:"
        yield ".PP"
        yield ".nf"
        yield ".RS 4"
        yield from map(_text, verb.parser.examples)
        yield ".RE"
        yield ".fi"


def _options(parser: Parser, *, among_all: bool = True) -> Iterator[str]:
    """The options of a verb, without those that all verbs have; or with them."""
    common = () if among_all else ("--help", "--socket", "--color")
    told = [option for option in options_of(parser) if not set(option.names) & set(common)]
    yield from _entries((", ".join(one.names) + (f" {one.value}" if one.value else ""), one.help) for one in told)


def _section(title: str, entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f".SH {title}"
    yield from _entries(entries)


def _entries(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, text in entries:
        yield ".TP"
        yield _bold(name)
        yield _text(text)


def _name(place: Action) -> str:
    return str(place.metavar or place.dest.upper())


def _repeated(name: str, nargs: object) -> str:
    return {"?": f"[{name}]", "*": f"[{name}]...", "+": f"{name}..."}.get(str(nargs), name)


def _bold(text: str) -> str:
    return f"\\fB{_text(text)}\\fR"


def _text(text: str) -> str:
    r"""A text that roff shows as it is: what it would take for an order is written out. Its own backslash is `\e`."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").replace('"', "\\(dq")
    escaped = escaped.replace("^", "\\(ha").replace("~", "\\(ti")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


def main(folder: Path) -> None:
    """Write the files below a folder."""
    for name, text in installed_files(build_parser()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

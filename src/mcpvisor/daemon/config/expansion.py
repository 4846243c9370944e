"""Owns the variables in texts of the configuration: which forms there are, and what one text becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mcpvisor.supervisor.process.environment import is_inherited

FORMS: Final = "${VAR}, ${VAR:-default}, ${env:VAR}, ${file:PATH} or ${cred:NAME}; $${ for a plain ${"

MAX_TEXT: Final = 1024 * 1024
"""Characters that one text may become: more than the system passes on to a program, or a server takes in a header."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CREDENTIAL = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_WITH_DEFAULT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*) *\| *value:(.*)", re.ASCII | re.DOTALL)
"""`${VAR:-default}`, as the draft of a common file for clients writes it (SEP-2633)."""
_PIECE = re.compile(r"\$\$\{|\$\{")


class FileUnread(LookupError):
    """A value is not there since its file cannot be used: `file` has to be mended, and not what names it."""

    def __init__(self, message: str, file: Path) -> None:
        super().__init__(message)
        self.file = file


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text after expansion. `touched` is whether a variable, a file or a credential went into it."""

    text: str = field(repr=False)
    touched: bool
    values: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What came out of variables, files and credentials, but for the variables that every server inherits anyway."""


def believe_all(_: Path) -> str:
    """For those who have no files."""
    return ""


def nothing_of(_: Path) -> str:
    """Look at no file."""
    return ""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where values come from: the environment, and two readers that raise LookupError with a reason."""

    environ: Mapping[str, str] = field(repr=False)
    read_file: Callable[[str], str]
    read_credential: Callable[[str], str]
    distrust: Callable[[Path], str] = believe_all
    """Why a file that an entry names is not used, with the remedy; empty where it is, or is not there."""
    contents: Callable[[Path], str] = nothing_of
    """What tells the contents of a file that an entry names from others; whoever can watches it from then on."""


def expand(text: str, sources: Sources) -> Expanded:
    """Put values in place of the variables in `text`; what was put in is not looked at again.

    Raises ValueError for a form that does not exist, and LookupError for a value that does not, or is too long; neither
    error holds a value.
    """
    pieces: list[str] = []
    values: list[str] = []
    at = length = 0
    touched = False
    while (match := _PIECE.search(text, at)) is not None:
        pieces.append(text[at : match.start()])
        if match[0] == "$${":
            pieces.append("${")
            at = match.end()
            continue
        end = text.find("}", match.end())
        inner = text.find("${", match.end())
        if end < 0:
            raise ValueError('"${" has no "}"')
        if 0 <= inner < end:
            raise ValueError("a variable within a variable is not supported")
        value, is_secret = _value(text[match.end() : end], sources)
        length += len(value)
        if length > MAX_TEXT:
            raise LookupError(f"becomes longer than {MAX_TEXT} characters with its variables replaced")
        pieces.append(value)
        if is_secret and value:
            values.append(value)
        touched = True
        at = end + 1
    pieces.append(text[at:])
    return Expanded("".join(pieces), touched, tuple(values))


def _value(body: str, sources: Sources) -> tuple[str, bool]:
    """What a variable stands for, and whether that is a secret by itself."""
    name, has_default, default = body.partition(":-")
    if _NAME.fullmatch(name):
        return _with_default(name, default, sources) if has_default else _variable(name, sources)
    if (drafted := _WITH_DEFAULT.fullmatch(body)) is not None:
        return _with_default(drafted[1], drafted[2], sources)
    kind, _, argument = body.partition(":")
    if kind == "env":
        if not _NAME.fullmatch(argument):
            raise ValueError(f"${{{_shown(body)}}} is not a variable")
        return _variable(argument, sources)
    if kind == "file" and argument:
        return sources.read_file(argument), True
    if kind == "cred":
        if not _CREDENTIAL.fullmatch(argument) or argument in {".", ".."}:
            raise ValueError(f"${{{_shown(body)}}} does not name a credential")
        return sources.read_credential(argument), True
    if kind == "input":
        raise ValueError(f"${{{_shown(body)}}} is a value that an editor asks for; a daemon cannot ask")
    raise ValueError(f"${{{_shown(body)}}} is not a known form")


def _variable(name: str, sources: Sources) -> tuple[str, bool]:
    if name not in sources.environ:
        raise LookupError(f"the variable {name} is not set in the environment of the daemon")
    return sources.environ[name], not is_inherited(name)


def _with_default(name: str, default: str, sources: Sources) -> tuple[str, bool]:
    return _variable(name, sources) if sources.environ.get(name) else (default, False)


def _shown(body: str) -> str:
    """The name in a variable without the default behind it, which may be a secret."""
    return re.split(r":[^\w/.~]|[^\w:/.~-]", body, maxsplit=1)[0][:60]

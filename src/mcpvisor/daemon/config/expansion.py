"""Owns the variables in texts of the configuration: which forms there are, and what one text becomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

FORMS: Final = "${VAR}, ${VAR:-default}, ${env:VAR}, ${file:PATH} or ${cred:NAME}; $${ for a plain ${"

MAX_TEXT: Final = 1024 * 1024
"""Characters that one text may become: more than the system passes on to a program, or a server takes in a header."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CREDENTIAL = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_PIECE = re.compile(r"\$\$\{|\$\{")


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text after expansion. `touched` is whether a variable, a file or a credential went into it."""

    text: str
    touched: bool


@dataclass(frozen=True, slots=True)
class Sources:
    """Where values come from: the environment, and two readers that raise LookupError with a reason."""

    environ: Mapping[str, str]
    read_file: Callable[[str], str]
    read_credential: Callable[[str], str]


def expand(text: str, sources: Sources) -> Expanded:
    """Put values in place of the variables in `text`; what was put in is not looked at again.

    Raises ValueError for a form that does not exist, and LookupError for a value that does not, or is too long; neither
    error holds a value.
    """
    pieces: list[str] = []
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
        value = _value(text[match.end() : end], sources)
        length += len(value)
        if length > MAX_TEXT:
            raise LookupError(f"becomes longer than {MAX_TEXT} characters with its variables replaced")
        pieces.append(value)
        touched = True
        at = end + 1
    pieces.append(text[at:])
    return Expanded("".join(pieces), touched)


def _value(body: str, sources: Sources) -> str:
    name, has_default, default = body.partition(":-")
    if _NAME.fullmatch(name):
        return sources.environ.get(name) or default if has_default else _variable(name, sources)
    kind, _, argument = body.partition(":")
    if kind == "env":
        if not _NAME.fullmatch(argument):
            raise ValueError(f"${{{_shown(body)}}} is not a variable")
        return _variable(argument, sources)
    if kind == "file" and argument:
        return sources.read_file(argument)
    if kind == "cred":
        if not _CREDENTIAL.fullmatch(argument) or argument in {".", ".."}:
            raise ValueError(f"${{{_shown(body)}}} does not name a credential")
        return sources.read_credential(argument)
    if kind == "input":
        raise ValueError(f"${{{_shown(body)}}} is a value that an editor asks for; a daemon cannot ask")
    raise ValueError(f"${{{_shown(body)}}} is not a known form")


def _variable(name: str, sources: Sources) -> str:
    if name not in sources.environ:
        raise LookupError(f"the variable {name} is not set in the environment of the daemon")
    return sources.environ[name]


def _shown(body: str) -> str:
    """The name in a variable without the default behind it, which may be a secret."""
    return re.split(r":-|\||\s", body, maxsplit=1)[0][:60]

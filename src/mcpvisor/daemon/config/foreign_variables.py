"""Owns the variables of other programs: what each of their forms becomes in ours, and which ones a daemon cannot have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.dialects import Dialect, Form, workspace_of
from mcpvisor.daemon.config.positions import Document

_PIECE = re.compile(r"\$\$\{|\$\{([^${}]*)\}")
_SINGLE = re.compile(r"(?<!\$)\{(env|file):([^{}]+)\}")
_ENV = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_FOLDER: Final = "/PATH/OF/THE/WORKSPACE"


class _NoValue(Exception):
    """A variable that means nothing to a daemon; `instead` is what a person may write there."""

    def __init__(self, message: str, instead: str) -> None:
        super().__init__(message)
        self.instead = instead


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text in our form. Of each variable in `faults`, which a daemon cannot have, it has what may be written instead."""

    text: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the variables of one file stand for, as far as the file and its place tell."""

    home: str = ""
    workspace: Path | None = None
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """The default of each input that an editor would ask for."""
    has_single_braces: bool = False
    """Whether `{env:NAME}` and `{file:PATH}` are variables, as OpenCode has them."""


def surroundings_of(document: Document, form: Form, environ: Mapping[str, str]) -> Surroundings:
    """What is known about the variables of a file."""
    home = environ.get("HOME", "")
    return Surroundings(
        home, workspace_of(document.file, home), _inputs(document), has_single_braces=form.dialect is Dialect.OPENCODE
    )


def _inputs(document: Document) -> dict[str, str]:
    """VS Code's `inputs` that have a default; a person would be asked for the others."""
    settings = document.data.get("mcp")
    listed: Any = document.data.get("inputs", settings.get("inputs") if isinstance(settings, dict) else None)
    known = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return {str(one["id"]): one["default"] for one in known if "id" in one and isinstance(one.get("default"), str)}


def in_our_form(text: str, around: Surroundings) -> Rewritten:
    """The text with the variables of other programs written as ours."""
    faults: list[str] = []

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        try:
            return _ours(match[1], around)
        except _NoValue as error:
            faults.append(str(error))
            return error.instead

    if around.has_single_braces:
        text = _SINGLE.sub(r"${\1:\2}", text)
    return Rewritten(_PIECE.sub(one, text), tuple(faults))


def _ours(body: str, around: Surroundings) -> str:
    if "|" in body:
        return _chain(body, around)
    if body.startswith("value:"):
        return _plain(body.removeprefix("value:"))
    if body in {"pathSeparator", "/"}:
        return "/"
    if body == "userHome" and around.home:
        return _plain(around.home)
    if body in {"workspaceFolder", "workspaceFolderBasename", "workspaceRoot"} or body.startswith("workspaceFolder:"):
        return _workspace(body, around)
    if body.startswith("input:"):
        return _input(body, around)
    if body.startswith("op:"):
        raise _NoValue(
            "${op:...} is a secret of 1Password, which a daemon cannot ask: write ${cred:NAME} or another variable",
            "${cred:NAME}",
        )
    name, has_default, default = body.removeprefix("env:").partition(":-")
    if has_default and _ENV.fullmatch(name):
        return f"${{{name}:-{default}}}"
    return f"${{{body}}}"


def _chain(body: str, around: Surroundings) -> str:
    """The first of several sources that has a value, of which we know a variable and then a plain text."""
    first, *others = [part.strip() for part in body.split("|")]
    match = _ENV.fullmatch(first)
    if match is not None and len(others) == 1 and others[0].startswith("value:"):
        return f"${{{match[1]}:-{others[0].removeprefix('value:')}}}"
    if not first.startswith("env:"):
        return _ours(first, around)
    message = 'a variable with "|" can have one plain text behind it, as in ${env:NAME | value:TEXT}, and no other source'
    raise _NoValue(message, f"${{{first}}}")


def _workspace(body: str, around: Surroundings) -> str:
    if around.workspace is None or ":" in body:
        raise _NoValue(f"${{{_shown(body)}}} is a folder that an editor has open; a daemon has none: write its path", _FOLDER)
    return _plain(around.workspace.name if body.endswith("Basename") else str(around.workspace))


def _input(body: str, around: Surroundings) -> str:
    name = body.removeprefix("input:")
    if name in around.inputs:
        return _plain(around.inputs[name])
    instead = f"${{cred:{_UNFIT.sub('-', name).strip('.-') or 'NAME'}}}"
    message = (
        f"${{{_shown(body)}}} is a value that an editor asks for; a daemon cannot ask: write {instead} or another variable"
    )
    raise _NoValue(message, instead)


def _plain(text: str) -> str:
    """A text in which nothing is a variable."""
    return text.replace("${", "$${")


def _shown(body: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in body)[:60]

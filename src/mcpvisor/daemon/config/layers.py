"""Owns which source of a setting wins: command line, environment, credentials, files, defaults; and which one erred.

Layers are merged here and not by pydantic-settings' sources, since those read the environment of the process by
themselves and cannot say which source a wrong value came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mcpvisor.daemon.config.advice import open_to_others
from mcpvisor.daemon.config.places import places
from mcpvisor.daemon.config.positions import Document, show_path
from mcpvisor.daemon.config.problems import Problem, nearest
from mcpvisor.daemon.config.settings import SECTIONS, Settings, default_values

PREFIX: Final = "MCPVISOR_"
_MAX_CREDENTIAL: Final = 64 * 1024

Values = Mapping[str, Mapping[str, Any]]
"""Settings as section -> key -> value."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings. `document` is set for a file, and gives its places."""

    name: str
    values: Values
    document: Document | None = None

    def has(self, path: Sequence[str | int]) -> bool:
        """Whether this source says something about `section.key`."""
        return len(path) >= 2 and str(path[1]) in self.values.get(str(path[0]), {})

    def problem(self, path: Sequence[str | int], message: str, near: str = "") -> Problem:
        """A problem of a setting that this source gives."""
        if self.document is not None:
            return self.document.problem(tuple(path), message, near=near)
        return Problem(file=None, source=self.name, key_path=show_path(path), message=message, nearest=near)


def environment_layer(environ: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    """`MCPVISOR_SECTION__KEY`; a section that does not exist is a problem, a name without `__` is no setting."""
    return _named_layer("environment", {k: v for k, v in environ.items() if k.startswith(PREFIX)})


def credentials_layer(folder: str) -> tuple[Layer, list[Problem]]:
    """Files of `$CREDENTIALS_DIRECTORY` named as the variables are, in either case; an empty `folder` gives none."""
    named: dict[str, str] = {}
    problems: list[Problem] = []
    if folder:
        for file in sorted(Path(folder).glob("*")):
            if not file.name.upper().startswith(PREFIX) or "__" not in file.name:
                continue
            try:
                with file.open(encoding="utf-8") as stream:
                    named[file.name.upper()] = stream.read(_MAX_CREDENTIAL).strip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
                problems.append(Problem(file=file, message=f"the credential cannot be read: {reason}"))
    layer, more = _named_layer("credential", named)
    return layer, [*problems, *more]


def _named_layer(name: str, named: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    values: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for variable, text in sorted(named.items()):
        section, joint, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not joint:
            continue
        if section not in SECTIONS:
            message = "there is no such section"
            near = nearest(section, SECTIONS)
            problems.append(Problem(file=None, source=name, key_path=variable, message=message, nearest=near))
            continue
        values.setdefault(section, {})[key] = text
    return Layer(name, values), problems


def file_layer(document: Document) -> tuple[Layer, list[Problem]]:
    """The settings that a file gives; a section that is no table is a problem."""
    values: dict[str, Mapping[str, Any]] = {}
    problems: list[Problem] = []
    for section in SECTIONS:
        table = document.data.get(section, {})
        if isinstance(table, dict):
            values[section] = table
        else:
            problems.append(document.problem((section,), "not a table", expected=f"[{section}]"))
    return Layer("file", values, document), problems


def all_layers(
    documents: Sequence[Document], environ: Mapping[str, str], uid: int, overrides: Values
) -> tuple[list[Layer], list[Problem]]:
    """Every source of settings, the strongest first: command line, environment, credentials, files, defaults."""
    environment, problems = environment_layer(environ)
    credentials, more = credentials_layer(environ.get("CREDENTIALS_DIRECTORY", ""))
    files = [file_layer(document) for document in documents]
    fallback = Layer("default", default_values(places(environ, uid)))
    layers = [Layer("command line", overrides), environment, credentials, *(layer for layer, _ in files), fallback]
    return layers, [problem for _, of_file in files for problem in of_file] + [*problems, *more]


def merge_layers(layers: Sequence[Layer]) -> tuple[Settings | None, list[Problem]]:
    """The settings that `layers` (the strongest first) add up to; None and the problems when one of them is wrong."""
    merged: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for layer in reversed(layers):
        for section, values in layer.values.items():
            merged.setdefault(section, {}).update(values)
    try:
        return Settings.model_validate(merged), []
    except ValidationError as error:
        return None, [_problem(details, layers) for details in error.errors(include_url=False, include_input=False)]


def exposures(settings: Settings, layers: Sequence[Layer]) -> list[Problem]:
    """What is advised against in settings although it works: a gateway that asks nobody, open to other machines."""
    path = ("gateway", "listen")
    source = next((layer for layer in layers if layer.has(path)), layers[-1])
    told = "everybody who reaches it may run every tool, for gateway.auth is open; listen on 127.0.0.1, or drop auth"
    return [source.problem(path, f"{one}: {told}") for one in open_to_others(settings.gateway.listen, settings.gateway.auth)]


def _problem(details: ErrorDetails, layers: Sequence[Layer]) -> Problem:
    path = details["loc"]
    source = next((layer for layer in layers if layer.has(path)), layers[-1])
    if details["type"] == "extra_forbidden":
        fields = Settings.model_fields[str(path[0])].annotation if str(path[0]) in SECTIONS else None
        known = list(getattr(fields, "model_fields", {}))
        return source.problem(path, "unknown key", nearest(str(path[-1]), known))
    message = details["msg"].removeprefix("Value error, ")
    return source.problem(path, message[:1].lower() + message[1:])

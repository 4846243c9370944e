"""Owns which source of a setting wins: command line, environment, credentials, files, defaults; and which one erred.

Layers are merged here and not by pydantic-settings' sources, since those read the environment of the process by
themselves and cannot say which source a wrong value came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mcpvisor.daemon.config.advice import open_to_others
from mcpvisor.daemon.config.config_file import decode, read_bytes
from mcpvisor.daemon.config.places import places
from mcpvisor.daemon.config.positions import Document, show_path
from mcpvisor.daemon.config.problems import ConfigError, Problem, cut, nearest
from mcpvisor.daemon.config.setting_faults import fault_of
from mcpvisor.daemon.config.settings import SECTIONS, Settings, default_values, from_text

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
    names: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])
    """What each setting is called in the source, where that has another word for it."""
    folder: Path | None = None
    """Where each of `names` is a file."""

    def has(self, path: Sequence[str | int]) -> bool:
        """Whether this source says something about `section.key`."""
        return len(path) >= 2 and str(path[1]) in self.values.get(str(path[0]), {})

    def value(self, path: Sequence[str | int]) -> Any:
        """What this source says at a path; None where it says nothing."""
        found: Any = self.values
        for part in path:
            if isinstance(found, Mapping):
                found = found.get(str(part))
            elif isinstance(found, list | tuple) and isinstance(part, int) and part < len(found):
                found = found[part]
            else:
                return None
        return found

    def problem(self, path: Sequence[str | int], message: str, near: str = "", expected: str = "") -> Problem:
        """A problem of a setting that this source gives."""
        if self.document is not None:
            return self.document.problem(tuple(path), message, near=near, expected=expected)
        name = self.names.get(tuple(map(str, path[:2])), "")
        # A variable is mended where it is set, so that it is named as it is there; a credential is a file.
        file = self.folder / name if self.folder is not None and name else None
        key_path = show_path(path) if file is not None or not name else name
        return Problem(file=file, source=self.name, key_path=key_path, message=message, nearest=near, expected=expected)


def environment_layer(environ: Mapping[str, str]) -> tuple[Layer, list[Problem]]:
    """`MCPVISOR_SECTION__KEY`; a section that does not exist is a problem, a name without `__` is no setting."""
    return _named_layer("environment", {k: v for k, v in environ.items() if k.startswith(PREFIX)})


def credentials_layer(folder: str, uid: int) -> tuple[Layer, list[Problem]]:
    """Files of `$CREDENTIALS_DIRECTORY` named as the variables are, in either case; an empty `folder` gives none.

    They are believed where only root or `uid` can change them.
    """
    named: dict[str, str] = {}
    problems: list[Problem] = []
    if not folder:
        return Layer("credential", {}), []
    try:
        names = sorted(file.name for file in Path(folder).iterdir())
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        told = Problem(file=Path(folder), message=f"the credentials cannot be listed: {reason}")
        return Layer("credential", {}), [told]
    for name in names:
        if not name.upper().startswith(PREFIX) or "__" not in name:
            continue
        file = Path(folder) / name
        try:
            named[name] = decode(read_bytes(file, uid, "a credential with one setting", _MAX_CREDENTIAL), file).strip("\r\n")
        except ConfigError as error:
            problems.append(replace(error.problem, message=f"the credential {error.problem.message}"))
    layer, more = _named_layer("credential", named, Path(folder))
    return layer, [*problems, *more]


def _named_layer(name: str, named: Mapping[str, str], folder: Path | None = None) -> tuple[Layer, list[Problem]]:
    values: dict[str, dict[str, Any]] = {}
    names: dict[tuple[str, ...], str] = {}
    problems: list[Problem] = []
    for variable, text in sorted(named.items()):
        section, joint, key = variable[len(PREFIX) :].lower().partition("__")
        if not joint:
            continue
        if section not in SECTIONS:
            message = "there is no such section"
            near = nearest(section, SECTIONS)
            file = folder / variable if folder is not None else None
            problems.append(Problem(file=file, source=name, key_path=cut(variable), message=message, nearest=near))
            continue
        values.setdefault(section, {})[key] = from_text(section, key, text)
        names[section, key] = variable
    return Layer(name, values, names=names, folder=folder), problems


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
    credentials, more = credentials_layer(environ.get("CREDENTIALS_DIRECTORY", ""), uid)
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
    fault = fault_of(details, source.value(path), is_shown=source.document is not None)
    return source.problem(path, fault.message, fault.near, fault.expected)

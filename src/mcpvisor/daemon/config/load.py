"""Owns the loading of a configuration: all its files in, settings, specs and problems out; nothing is applied here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcpvisor.daemon.config.config_file import decode, read_bytes, read_document
from mcpvisor.daemon.config.discovery import Discovery, Found, discover
from mcpvisor.daemon.config.entry_scope import Item, home_expanded
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_handlers import FileHandlers, check_ways, keep_first, read_handlers
from mcpvisor.daemon.config.file_servers import FileEntries, read_defaults, read_servers
from mcpvisor.daemon.config.layers import all_layers, exposures, merge_layers
from mcpvisor.daemon.config.positions import Document
from mcpvisor.daemon.config.problems import ConfigError, Findings, Problem
from mcpvisor.daemon.config.settings import Settings
from mcpvisor.daemon.handlers.specs import HandlerSpec, HandlerType
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(frozen=True, slots=True)
class Basis:
    """What all entries stand on: the settings, and the `[defaults]` beneath each entry."""

    settings: Settings
    defaults: Mapping[str, Item]
    mains: frozenset[Path]
    """The files that may say something about either; none of them may vanish unnoticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLoad:
    """One file: its entries, or the problem for which none of it can be used."""

    file: Found
    specs: Mapping[str, ServerSpec] = field(default_factory=dict[str, ServerSpec])
    rejected: Mapping[str, Problem] = field(default_factory=dict[str, Problem])
    """Names of entries that cannot be used, each with its first problem."""
    failure: Problem | None = None
    handlers: FileHandlers = field(default_factory=FileHandlers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What is written in the files now, good and bad. `basis` is None when no settings can be made of them."""

    basis: Basis | None
    loads: tuple[FileLoad, ...]
    listed: tuple[Path, ...]
    """Folders of drop-ins that were read: a file that is not there now is gone."""
    problems: tuple[Problem, ...]
    hints: tuple[Problem, ...]
    secret_files: tuple[Path, ...] = ()
    """Files and credentials that went into entries; to be watched like the files themselves."""

    @property
    def settings(self) -> Settings | None:
        return self.basis.settings if self.basis is not None else None

    @property
    def specs(self) -> dict[str, ServerSpec]:
        """The good entries by name, in the order of the files; no name is in two of them."""
        return {name: spec for load in self.loads for name, spec in load.specs.items()}

    @property
    def handlers(self) -> dict[str, HandlerSpec]:
        """The good handlers by name, in the order of the files; no name is in two of them."""
        return {name: spec for load in self.loads for name, spec in load.handlers.handlers.items()}

    @property
    def files(self) -> list[Path]:
        """The files of the configuration in order, readable or not."""
        return [load.file.path for load in self.loads]


def load(
    paths: Sequence[Path],
    environ: Mapping[str, str],
    *,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    uid: int | None = None,
    previous: Basis | None = None,
) -> Loaded:
    """Read everything that `paths` stand for. Never raises for what is written there: every fault is a problem.

    `overrides` are settings of the command line. `previous` is what to stand on when the main file cannot be used.
    """
    return _Loading(environ, os.geteuid() if uid is None else uid).run(discover(paths), overrides or {}, previous)


class _Loading:
    """One pass over the files."""

    def __init__(self, environ: Mapping[str, str], uid: int) -> None:
        self._environ = environ
        self._uid = uid
        self._findings = Findings()
        self._secret_files: dict[Path, None] = {}

    def run(self, found: Discovery, overrides: Mapping[str, Mapping[str, Any]], previous: Basis | None) -> Loaded:
        self._findings.problems += found.problems
        self._findings.hints += found.hints
        documents = {file.path: self._document(file.path) for file in found.files}
        mains = {f.path: documents[f.path] for f in found.files if f.is_main}
        basis = self._basis(mains, overrides, previous)
        loads: list[FileLoad] = []
        owners: dict[str, str] = {}
        handlers = self._handlers(found.files, documents)
        for file in found.files:
            document = documents[file.path]
            if isinstance(document, Problem):
                self._findings.problems.append(document)
                loads.append(FileLoad(file=file, failure=document))
                continue
            entries = self._entries(file, document, basis.defaults if basis is not None else {}, owners)
            loads.append(replace(entries, handlers=handlers.get(file.path, FileHandlers())))
        return Loaded(
            basis=basis,
            loads=tuple(loads),
            listed=tuple(found.listed),
            problems=tuple(self._findings.problems),
            hints=tuple(self._findings.hints),
            secret_files=tuple(self._secret_files),
        )

    def _document(self, path: Path) -> Document | Problem:
        try:
            return read_document(path, self._uid)
        except ConfigError as error:
            return error.problem

    def _entries(self, file: Found, document: Document, defaults: Mapping[str, Item], owners: dict[str, str]) -> FileLoad:
        entries: FileEntries = read_servers(file, document, defaults, self._sources(document))
        self._findings.problems += entries.findings.problems
        self._findings.hints += entries.findings.hints
        specs = dict(entries.specs)
        rejected = dict(entries.rejected)
        for name, path in entries.paths.items():
            position = document.at(path)
            here = f"{document.file}:{position.line}" if position is not None else str(document.file)
            # A bad entry owns its name as well: else mending it would move the server from one file to another.
            owner = owners.setdefault(name, here)
            if owner != here:
                message = f"a server of this name is written at {owner} already; the first one counts"
                problem = document.problem(path, message, server=name)
                self._findings.problems.append(problem)
                rejected[name] = problem
                specs.pop(name, None)
        return FileLoad(file=file, specs=specs, rejected=rejected, failure=entries.failure)

    def _handlers(self, files: Sequence[Found], documents: Mapping[Path, Document | Problem]) -> dict[Path, FileHandlers]:
        """The handlers and routes of each file of ours; what leads from one file to another is looked at when all are read."""
        found: list[tuple[Document, FileHandlers]] = []
        types: dict[str, HandlerType | None] = {}
        owners: dict[str, str] = {}
        has_unread = False
        for file in files:
            document = documents[file.path]
            if isinstance(document, Problem) or document.file.suffix != ".toml":
                has_unread = has_unread or isinstance(document, Problem)
                continue
            of_file = read_handlers(document, self._sources(document))
            keep_first(document, of_file, owners)
            found.append((document, of_file))
            for name in of_file.paths:
                spec = of_file.handlers.get(name)
                types.setdefault(name, spec.type if spec is not None else None)
        for document, of_file in found:
            # A file that cannot be read may hold any handler: its last good version decides then, see `applied`.
            if not has_unread:
                check_ways(document, of_file, types)
            self._findings.problems += [*of_file.findings.problems, *of_file.faults_of_routes]
            self._findings.hints += of_file.findings.hints
        return {document.file: of_file for document, of_file in found}

    def _basis(
        self,
        mains: Mapping[Path, Document | Problem],
        overrides: Mapping[str, Mapping[str, Any]],
        previous: Basis | None,
    ) -> Basis | None:
        documents = [document for document in mains.values() if isinstance(document, Document)]
        is_gone = previous is not None and not previous.mains <= mains.keys()
        if is_gone or len(documents) < len(mains):
            return previous
        layers, problems = all_layers(documents, self._environ, self._uid, overrides)
        settings, wrong = merge_layers(layers)
        self._findings.problems += [*problems, *wrong]
        if settings is not None:
            self._findings.hints += exposures(settings, layers)
        defaults: dict[str, Item] = {}
        wrong_defaults = Findings()
        for document in documents:
            defaults = {**read_defaults(document, self._sources(document), wrong_defaults), **defaults}
        self._findings.problems += wrong_defaults.problems
        if previous is not None and wrong_defaults.problems:
            defaults = dict(previous.defaults)
        settings = settings or (previous.settings if previous is not None else None)
        return Basis(settings, defaults, frozenset(mains)) if settings is not None else None

    def _sources(self, document: Document) -> Sources:
        folder = document.file.parent

        def read_file(written: str) -> str:
            return self._secret(folder / home_expanded(written, self._environ))

        def read_credential(name: str) -> str:
            where = self._environ.get("CREDENTIALS_DIRECTORY")
            if not where:
                raise LookupError(f"the credential {name} is not there: CREDENTIALS_DIRECTORY is not set")
            return self._secret(Path(where) / name)

        return Sources(self._environ, read_file, read_credential)

    def _secret(self, path: Path) -> str:
        """The text of a secret file without its last line end. Raises LookupError that names the file."""
        self._secret_files[path] = None
        try:
            return decode(read_bytes(path, self._uid, "a file with one secret"), path).removesuffix("\n").removesuffix("\r")
        except ConfigError as error:
            raise LookupError(f"{path} {error.problem.message}") from error

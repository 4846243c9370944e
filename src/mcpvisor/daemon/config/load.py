"""Owns the loading of a configuration: all its files in, settings, specs and problems out; nothing is applied here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcpvisor.daemon.config.config_file import read_document
from mcpvisor.daemon.config.crowds import without_crowds
from mcpvisor.daemon.config.dialects import is_ours
from mcpvisor.daemon.config.discovery import Discovery, Found, discover
from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.file_handlers import TABLES, FileHandlers, check_ways, keep_first, read_handlers
from mcpvisor.daemon.config.file_servers import FileEntries, read_defaults, read_servers
from mcpvisor.daemon.config.layers import all_layers, exposures, merge_layers
from mcpvisor.daemon.config.look import Digester, Fingerprint, contents_of
from mcpvisor.daemon.config.positions import Document
from mcpvisor.daemon.config.problems import ConfigError, Findings, Problem
from mcpvisor.daemon.config.secret_files import SecretFiles
from mcpvisor.daemon.config.settings import SECTIONS, Settings
from mcpvisor.daemon.config.telling import told
from mcpvisor.daemon.config.written import Written, written_entry, written_part
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
    written: Mapping[str, Written] = field(default_factory=dict[str, Written])
    """The good entries as they are written."""
    sections: Written | None = None
    """The settings of a main file as they are written, where all is right with those of all main files."""
    ways: Written | None = None
    """Handlers and routes as they are written, where all is right with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What an earlier run has kept, read again: for each file its entries and handlers; `basis` None where no main file was."""

    basis: Basis | None
    specs: Mapping[str, ServerSpec]
    """Of those that can still be read; what a variable of theirs needs may be gone."""
    handlers: Mapping[Path, FileHandlers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What is written in the files now, good and bad. `basis` is None when no settings can be made of them."""

    basis: Basis | None
    loads: tuple[FileLoad, ...]
    listed: tuple[Path, ...]
    """Folders of drop-ins that were read: a file that is not there now is gone."""
    problems: tuple[Problem, ...]
    hints: tuple[Problem, ...]
    contents: Fingerprint = field(default_factory=Fingerprint)
    """What was in the files, and in the secrets that went into entries, right before they were read."""

    @property
    def settings(self) -> Settings | None:
        return self.basis.settings if self.basis is not None else None

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Files and credentials that went into entries; to be watched like the files themselves."""
        return tuple(Path(path) for path, _ in self.contents.secrets)

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


def recall(
    entries: Iterable[Written],
    sections: Iterable[Written],
    ways: Iterable[Written],
    environ: Mapping[str, str],
    *,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    uid: int | None = None,
) -> Recalled:
    """Read what is kept of files again, with the secrets of now: entries, settings, and handlers with routes.

    Never raises for what they hold.
    """
    loading = _Loading(environ, os.geteuid() if uid is None else uid)
    return Recalled(
        basis=loading.recall_basis(sections, overrides or {}),
        specs={name: spec for one in entries for name, spec in loading.recall_entry(one).items()},
        handlers={one.file: loading.recall_handlers(one) for one in ways},
    )


class _Loading:
    """One pass over the files."""

    def __init__(self, environ: Mapping[str, str], uid: int) -> None:
        self._environ = environ
        self._uid = uid
        self._findings = Findings()
        self._digest = Digester(uid)
        self._secrets = SecretFiles(environ, uid, self._digest)
        self._sound: frozenset[Path] = frozenset()
        """The main files, where settings could be made of all of them and nothing was wrong."""

    def run(self, found: Discovery, overrides: Mapping[str, Mapping[str, Any]], previous: Basis | None) -> Loaded:
        self._findings.problems += found.problems
        self._findings.hints += found.hints
        contents = contents_of(found, self._digest)
        documents = without_crowds({file.path: self._document(file.path) for file in found.files})
        mains = {f.path: documents[f.path] for f in found.files if f.is_main}
        basis = self._basis(mains, overrides, previous) if not found.unreachable else previous
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
            of_file = handlers.get(file.path, FileHandlers())
            is_right = file.path in handlers and not of_file.rejected and not of_file.faults_of_routes
            loads.append(
                replace(
                    entries,
                    handlers=of_file,
                    sections=written_part(document, (*SECTIONS, "defaults"), is_main=True)
                    if file.path in self._sound
                    else None,
                    ways=written_part(document, TABLES, is_main=file.is_main) if is_right else None,
                )
            )
        return Loaded(
            basis=basis,
            loads=tuple(loads),
            listed=tuple(found.listed),
            problems=told(self._findings.problems, [file.path for file in found.files], "errors"),
            hints=told(self._findings.hints, [file.path for file in found.files], "hints"),
            contents=replace(contents, secrets=tuple(self._secrets.seen.items())),
        )

    def recall_basis(self, sections: Iterable[Written], overrides: Mapping[str, Mapping[str, Any]]) -> Basis | None:
        """The settings of main files that were kept; None where none were."""
        mains: dict[Path, Document | Problem] = {one.file: one.document() for one in sections}
        return self._basis(mains, overrides, None) if mains else None

    def recall_entry(self, kept: Written) -> Mapping[str, ServerSpec]:
        """The server of an entry that was kept; none where it is not good any more."""
        document = kept.document()
        file = Found(kept.file, is_main=kept.is_main, is_named=False)
        return read_servers(file, document, kept.items(), self._secrets.sources(document.file.parent)).specs

    def recall_handlers(self, kept: Written) -> FileHandlers:
        """Handlers and routes that were kept."""
        document = kept.document()
        return read_handlers(document, self._secrets.sources(document.file.parent))

    def _document(self, path: Path) -> Document | Problem:
        try:
            return read_document(path, self._uid)
        except ConfigError as error:
            self._findings.problems += error.more
            return error.problem

    def _entries(self, file: Found, document: Document, defaults: Mapping[str, Item], owners: dict[str, str]) -> FileLoad:
        entries: FileEntries = read_servers(file, document, defaults, self._secrets.sources(document.file.parent))
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
        written = {
            name: written_entry(document, entries.paths[name], defaults, is_main=file.is_main)
            for name in specs
            if name in entries.paths
        }
        return FileLoad(file=file, specs=specs, rejected=rejected, failure=entries.failure, written=written)

    def _handlers(self, files: Sequence[Found], documents: Mapping[Path, Document | Problem]) -> dict[Path, FileHandlers]:
        """The handlers and routes of each file of ours; what leads from one file to another is looked at when all are read."""
        found: list[tuple[Document, FileHandlers]] = []
        types: dict[str, HandlerType | None] = {}
        owners: dict[str, str] = {}
        has_unread = False
        for file in files:
            document = documents[file.path]
            if isinstance(document, Problem) or not is_ours(document):
                has_unread = has_unread or isinstance(document, Problem)
                continue
            of_file = read_handlers(document, self._secrets.sources(document.file.parent))
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
        is_gone = previous is not None and not previous.mains <= mains.keys()
        if is_gone or any(isinstance(document, Problem) for document in mains.values()):
            return previous
        documents = [document for document in mains.values() if isinstance(document, Document) and is_ours(document)]
        layers, problems = all_layers(documents, self._environ, self._uid, overrides)
        settings, wrong = merge_layers(layers)
        self._findings.problems += [*problems, *wrong]
        if settings is not None:
            self._findings.hints += exposures(settings, layers)
        defaults: dict[str, Item] = {}
        wrong_defaults = Findings()
        for document in documents:
            defaults = {**read_defaults(document, self._secrets.sources(document.file.parent), wrong_defaults), **defaults}
        self._findings.problems += wrong_defaults.problems
        if settings is not None and not wrong_defaults.problems:
            self._sound = frozenset(mains)
        if previous is not None and wrong_defaults.problems:
            defaults = dict(previous.defaults)
        settings = settings or (previous.settings if previous is not None else None)
        return Basis(settings, defaults, frozenset(mains)) if settings is not None else None

"""Owns what becomes of another program's file: an entry of ours for each server, and all that could not be carried over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcpvisor.daemon.config.config_file import decode, read_bytes
from mcpvisor.daemon.config.dialects import form_of, is_ours
from mcpvisor.daemon.config.discovery import Found
from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_servers import Reading, read_foreign, read_servers
from mcpvisor.daemon.config.importing.our_table import our_table, paths_without_value, secrets_in, variables_in
from mcpvisor.daemon.config.importing.toml_text import toml_table
from mcpvisor.daemon.config.json_source import parse_json
from mcpvisor.daemon.config.positions import Document
from mcpvisor.daemon.config.problems import ConfigError, Problem
from mcpvisor.daemon.config.toml_source import parse_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One server as it would be written: its table in our form, and everything that has to be said about it."""

    name: str
    written: str
    """The name that the other program has for it."""
    place: str
    """Where it stands there, as `file:line`."""
    table: Mapping[str, Any]
    faults: tuple[Problem, ...] = ()
    """Why it cannot be an entry; it is written as a comment then."""
    lost: tuple[Problem, ...] = ()
    """What is written there and has no meaning here."""
    hints: tuple[Problem, ...] = ()
    needs: tuple[str, ...] = ()
    """What the daemon has to have: variables, credentials and files."""
    secrets: tuple[Problem, ...] = ()
    """Where a secret seems to be written out."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """What becomes of one file."""

    file: Path
    form: str
    servers: tuple[Draft, ...]
    lost: tuple[Problem, ...] = ()
    """What is lost of the file beside its servers."""
    refused: tuple[Problem, ...] = ()
    """Servers of which there is not even a draft: what is no table, or cannot have a name."""

    @property
    def usable(self) -> list[Draft]:
        """The servers that can be entries."""
        return [draft for draft in self.servers if not draft.faults]

    @property
    def unusable(self) -> list[Draft]:
        return [draft for draft in self.servers if draft.faults]


def drafts_of(file: Path, environ: Mapping[str, str]) -> Drafts:
    """What becomes of a file, whoever it belongs to; nothing of it is run or written.

    Raises ConfigError for a file that cannot be read, is no other program's, or holds no servers.
    """
    file = file.absolute()
    document = _document(file)
    if is_ours(document):
        message = "is in our own form already"
        raise ConfigError(
            Problem(file=file, message=message, expected="a file of another program; this one goes into servers.d")
        )
    form = form_of(document)
    readings: list[Reading] = []
    found = read_foreign(document, {}, _sources(environ), readings.append)
    if found.failure is not None:
        raise ConfigError(found.failure)
    if form is None or not (readings or found.findings.problems):
        raise ConfigError(Problem(file=file, message="holds no servers"))
    of_drafts = {problem for reading in readings for problem in reading.scope.findings.problems}
    refused = tuple(problem for problem in found.findings.problems if problem not in of_drafts)
    drafts = tuple(_draft(reading, document, environ) for reading in readings)
    return Drafts(file, form.dialect.value, drafts, tuple(_lost_beside(document)), refused)


def _document(file: Path) -> Document:
    if file.suffix in {".yaml", ".yml"}:
        raise ConfigError(Problem(file=file, message="YAML is not read", expected="a JSON file, or the TOML file of Codex"))
    text = decode(read_bytes(file, None, "a file of another program"), file)
    if not text.strip():
        raise ConfigError(Problem(file=file, message="the file is empty", expected="a file of another program"))
    return parse_toml(text, file) if file.suffix == ".toml" else parse_json(text, file)


def _sources(environ: Mapping[str, str]) -> Sources:
    """The variables of this shell, of which the daemon has its own; secrets are not read for the sake of an import."""

    def unread(what: str) -> str:
        raise LookupError(f"{what} is for the daemon to read")

    return Sources(environ, unread, unread)


def _draft(reading: Reading, document: Document, environ: Mapping[str, str]) -> Draft:
    table = our_table(reading, document.file.absolute().parent, environ)
    missing = paths_without_value(reading.items.values(), _sources(environ))
    later = [problem for problem in reading.scope.findings.problems if problem not in reading.faults]
    faults = [*reading.faults, *(problem for problem in later if problem.key_path not in missing)] or _faults_as_ours(
        reading.name, table, environ
    )
    position = document.at(reading.path)
    line = position.line if position is not None else 1
    return Draft(
        name=reading.name,
        written=reading.written,
        place=f"{document.file}:{line}",
        table=table,
        faults=tuple(replace(problem, file=document.file, line=problem.line or line) for problem in faults),
        lost=tuple(reading.scope.repeats.all()),
        hints=tuple(reading.scope.findings.hints),
        needs=tuple(variables_in(table)),
        secrets=tuple(secrets_in(reading)),
    )


def _faults_as_ours(name: str, table: Mapping[str, Any], environ: Mapping[str, str]) -> list[Problem]:
    """What a daemon would find wrong with the table as it is written, but for variables that are not there yet."""
    file = Path("/import.toml")
    try:
        document = parse_toml("\n".join(toml_table(name, table)) + "\n", file)
    except ConfigError as error:  # a path with a character that no text can hold
        return [replace(error.problem, line=None, column=None)]
    sources = _sources(environ)
    missing = paths_without_value([Item(document.data["servers"], ("servers",), document)], sources)
    found = read_servers(Found(file, is_main=False, is_named=True), document, {}, sources).findings.problems
    return [replace(problem, line=None, column=None) for problem in found if problem.key_path not in missing]


def _lost_beside(document: Document) -> list[Problem]:
    """What belongs to the servers and stands beside their table: inputs that are asked for, and servers of single projects."""
    data = document.data
    lost: list[Problem] = []
    inputs = data.get("inputs")
    for number, one in enumerate(inputs if isinstance(inputs, list) else ()):
        if not (isinstance(one, dict) and isinstance(one.get("default"), str)):
            lost.append(document.problem(("inputs", number), "an editor asks for it; a daemon cannot"))
    projects = data.get("projects")
    for folder, project in projects.items() if isinstance(projects, dict) else ():
        if isinstance(project, dict) and project.get("mcpServers"):
            lost.append(document.problem(("projects", folder, "mcpServers"), "servers of one project are not read from here"))
    return lost

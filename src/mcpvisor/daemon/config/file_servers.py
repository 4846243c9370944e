"""Owns which servers a file holds: our tables in TOML, and the shapes of other programs in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcpvisor.daemon.config.discovery import Found
from mcpvisor.daemon.config.entry_scope import Item, Scope, items_of, kind_of
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_handlers import TABLES as TABLES_OF_HANDLERS
from mcpvisor.daemon.config.foreign_entry import translated
from mcpvisor.daemon.config.names import EXPECTED, carried_over, is_name
from mcpvisor.daemon.config.positions import Document, KeyPath, show_path
from mcpvisor.daemon.config.problems import Findings, Problem, nearest
from mcpvisor.daemon.config.server_entry import MISFITS, read_entry, with_defaults
from mcpvisor.daemon.config.settings import SECTIONS
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.spec import ServerSpec

ROOTS: Final = {"mcpServers": "Claude, Cursor, Windsurf, Kiro and others", "servers": "VS Code"}
"""Where a JSON file holds its servers, and whose form that is."""

IN_DROP_INS: Final = ("servers", "handlers", "routes")
"""The tables of ours that may stand in a file of `servers.d`."""

SCHEMA: Final = "$schema"
"""What editors look for; of no meaning here."""

_LATER_ROOTS: Final = {"mcp": "OpenCode"}
_COMMENT = re.compile(r"//.*|#.*|[$_].*", re.DOTALL)


@dataclass(slots=True)
class FileEntries:
    """The entries of one file, good and bad. `failure` is set when the file as a whole says nothing usable."""

    specs: dict[str, ServerSpec] = field(default_factory=dict[str, ServerSpec])
    rejected: dict[str, Problem] = field(default_factory=dict[str, Problem])
    paths: dict[str, KeyPath] = field(default_factory=dict[str, KeyPath])
    findings: Findings = field(default_factory=Findings)
    failure: Problem | None = None


def read_servers(file: Found, document: Document, defaults: Mapping[str, Item], sources: Sources) -> FileEntries:
    """All entries of a document. A bad one is rejected by itself; what is no table of entries fails the file."""
    entries = FileEntries()
    foreign = document.file.suffix != ".toml"
    if foreign:
        root = _foreign_root(document, entries)
    else:
        _check_tables(file, document, entries.findings)
        root = "servers"
    if root is None or entries.failure is not None:
        return entries
    table = document.data.get(root, {})
    if not isinstance(table, dict):
        _fail(entries, document.problem((root,), f"is {kind_of(table)}", expected=f"{root} as one object of servers"))
        return entries
    reader = _EntryReader(document, defaults, sources, entries)
    for written, value in table.items():
        if foreign and _COMMENT.fullmatch(written) and not isinstance(value, dict):
            continue
        reader.read(written, value, (root, written))
    return entries


def read_defaults(document: Document, sources: Sources, findings: Findings) -> dict[str, Item]:
    """The usable keys of `[defaults]`; each other one is a problem, and left out."""
    table = document.data.get("defaults", {})
    if not isinstance(table, dict):
        findings.problems.append(document.problem(("defaults",), f"is {kind_of(table)}", expected="[defaults]"))
        return {}
    usable: dict[str, Item] = {}
    for key, item in items_of(table, ("defaults",), document).items():
        faults = _faults_of_default(key, item, sources)
        if faults:
            findings.problems += faults
        else:
            usable[key] = item
    return usable


def _faults_of_default(key: str, item: Item, sources: Sources) -> list[Problem]:
    """What is wrong with a default, tried on an entry of either kind; empty when it fits one of them."""
    found: list[list[Problem]] = []
    for kind, value in (("command", "true"), ("url", "http://127.0.0.1/")):
        scope = Scope("", sources, Findings(), foreign=False)
        items = {key: item} if key in {"command", "url"} else {kind: Item(value, item.path, item.document), key: item}
        read_entry(TableReader(items, scope), item.document, item.path)
        if not scope.findings.problems:
            return []
        found.append(scope.findings.problems)
    of_its_kind = [problems for problems in found if not any(p.message in MISFITS for p in problems)]
    return (of_its_kind or found)[0]


class _EntryReader:
    """Reads the entries of one document into `entries`."""

    def __init__(self, document: Document, defaults: Mapping[str, Item], sources: Sources, entries: FileEntries) -> None:
        self._document = document
        self._defaults = defaults
        self._sources = sources
        self._entries = entries
        self._foreign = document.file.suffix != ".toml"

    def read(self, written: str, value: Any, path: KeyPath) -> None:
        """Take in one entry, good or bad."""
        name = self._name(written, path)
        if name is None:
            return
        document, entries = self._document, self._entries
        scope = Scope(name, self._sources, Findings(), foreign=self._foreign)
        spec: ServerSpec | None = None
        if isinstance(value, dict):
            own = translated(value, path, document, scope) if self._foreign else items_of(value, path, document)
            reader = TableReader(with_defaults(own, self._defaults), scope)
            spec = read_entry(reader, document, path, shown_name=written if name != written else "")
        else:
            scope.problem(Item(value, path, document), f"is {kind_of(value)}", expected="a table with command or url")
        entries.findings.problems += scope.findings.problems
        entries.findings.hints += scope.findings.hints
        entries.paths[name] = path
        if spec is not None:
            entries.specs[name] = spec
        else:
            entries.rejected[name] = scope.findings.problems[0]

    def _name(self, written: str, path: KeyPath) -> str | None:
        """The name of an entry; None, and a problem, when it can have none."""
        name = carried_over(written) if self._foreign else written
        if not is_name(name):
            self._reject(written, path, "cannot be the name of a server", EXPECTED)
            return None
        if name in self._entries.paths:
            other = show_path((self._entries.paths[name][-1],))
            message = f'its name becomes "{name}", as that of {other} does; the first one counts'
            self._reject(written, path, message, "names that stay different")
            return None
        if name != written:
            hint = self._document.problem(path, f'carried over under the name "{name}"', server=name)
            self._entries.findings.hints.append(hint)
        return name

    def _reject(self, written: str, path: KeyPath, message: str, expected: str) -> None:
        problem = self._document.problem(path, message, expected=expected, server=written)
        self._entries.findings.problems.append(problem)
        self._entries.rejected[written] = problem


def _check_tables(file: Found, document: Document, findings: Findings) -> None:
    """Name each table of our TOML that is not known, not there yet, or not allowed in this file."""
    known = (*SECTIONS, "defaults", "servers", *TABLES_OF_HANDLERS)
    for key in document.data:
        if key == SCHEMA:
            continue
        if key not in known:
            findings.problems.append(document.problem((key,), "unknown table", near=nearest(key, known)))
        elif key not in IN_DROP_INS and not file.is_main:
            message = "belongs into the main file; a file of servers.d holds [servers.NAME], [handlers.NAME] and [[routes]]"
            findings.problems.append(document.problem((key,), message))


def _foreign_root(document: Document, entries: FileEntries) -> str | None:
    """The key under which a JSON file holds its servers; None for an object without any, which is "no servers"."""
    roots = [key for key in ROOTS if key in document.data]
    if len(roots) > 1:
        _fail(entries, document.problem((roots[1],), f"stands beside {roots[0]}", expected="one of the two"))
        return None
    if roots:
        return roots[0]
    keys = [key for key in document.data if not _COMMENT.fullmatch(key)]
    if not keys:
        return None
    for key in keys:
        if key in _LATER_ROOTS:
            _fail(entries, document.problem((key,), f"the form of {_LATER_ROOTS[key]} is not supported in this version"))
            return None
    near = next((near for key in keys if (near := nearest(key, ROOTS))), "")
    expected = " or ".join(f'"{key}" ({whose})' for key, whose in ROOTS.items())
    _fail(entries, document.problem((keys[0],), "the file has no table of servers", expected=expected, near=near))
    return None


def _fail(entries: FileEntries, problem: Problem) -> None:
    entries.failure = problem
    entries.findings.problems.append(problem)

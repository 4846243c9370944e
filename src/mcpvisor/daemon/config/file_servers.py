"""Owns which servers a file holds: our tables in TOML, and the shapes of other programs in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcpvisor.daemon.config.dialects import Form, form_of, is_comment, is_ours
from mcpvisor.daemon.config.discovery import Found
from mcpvisor.daemon.config.entry_scope import Item, Repeats, Scope, items_of, kind_of
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_handlers import TABLES as TABLES_OF_HANDLERS
from mcpvisor.daemon.config.foreign_entry import translated
from mcpvisor.daemon.config.foreign_variables import surroundings_of
from mcpvisor.daemon.config.names import EXPECTED, carried_over, is_name
from mcpvisor.daemon.config.positions import Document, KeyPath, show_path
from mcpvisor.daemon.config.problems import ConfigError, Findings, Problem, cut
from mcpvisor.daemon.config.server_entry import MISFITS, read_entry, with_defaults
from mcpvisor.daemon.config.settings import SECTIONS
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.spec import ServerSpec

IN_DROP_INS: Final = ("servers", "handlers", "routes")
"""The tables of ours that may stand in a file of `servers.d`."""

SCHEMA: Final = "$schema"
"""What editors look for; of no meaning here."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one entry of another program was read: its name here and there, its items under our keys, and what was found."""

    name: str
    written: str
    path: KeyPath
    items: Mapping[str, Item]
    faults: tuple[Problem, ...]
    """What has no form of ours; `scope` goes on to have what is wrong with the entry as one of ours too."""
    scope: Scope


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
    if not is_ours(document):
        return read_foreign(document, defaults, sources)
    entries = FileEntries()
    _check_tables(file, document, entries.findings)
    table = document.data.get("servers", {})
    if not isinstance(table, dict):
        return _failed(document.problem(("servers",), f"is {kind_of(table)}", expected="servers as one object of servers"))
    reader = _EntryReader(document, defaults, sources, entries)
    for written, value in table.items():
        reader.read(written, value, ("servers", written))
    return entries


def read_foreign(
    document: Document,
    defaults: Mapping[str, Item],
    sources: Sources,
    keep: Callable[[Reading], None] | None = None,
) -> FileEntries:
    """All entries of another program's file. `keep` is given each one as it was read, for who writes it as ours.

    With `keep` what has no use is not among the findings: each of it stays in the scope of its entry.
    """
    try:
        form = form_of(document)
    except ConfigError as error:
        return _failed(error.problem)
    if form is None:
        return FileEntries()
    table: Any = document.data
    for key in form.root:
        table = table[key]
    if not isinstance(table, dict):
        where = ".".join(map(str, form.root))
        return _failed(document.problem(form.root, f"is {kind_of(table)}", expected=f"{where} as one object of servers"))
    entries = FileEntries()
    reader = _ForeignReader(document, defaults, sources, entries, form, keep)
    for written, value in table.items():
        if not is_comment(written) or isinstance(value, dict):
            reader.read(written, value, (*form.root, written))
    if keep is None:
        entries.findings.hints += reader.repeats.once()
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
    """Reads the entries of one document of ours into `entries`."""

    def __init__(self, document: Document, defaults: Mapping[str, Item], sources: Sources, entries: FileEntries) -> None:
        self._document = document
        self._defaults = defaults
        self._sources = sources
        self._entries = entries

    def read(self, written: str, value: Any, path: KeyPath) -> None:
        """Take in one entry, good or bad."""
        name = self._name(written, path)
        if name is None:
            return
        scope = self._scope(name)
        spec: ServerSpec | None = None
        if isinstance(value, dict):
            items = self._items(value, path, scope)
            reader = TableReader(with_defaults(items, self._defaults), scope)
            spec = read_entry(reader, self._document, path, shown_name=written if name != written else "")
        else:
            scope.problem(Item(value, path, self._document), f"is {kind_of(value)}", expected="a table with command or url")
        entries = self._entries
        entries.findings.problems += scope.findings.problems
        entries.findings.hints += scope.findings.hints
        entries.paths[name] = path
        if spec is not None:
            entries.specs[name] = spec
        else:
            entries.rejected[name] = scope.findings.problems[0]

    def _scope(self, name: str) -> Scope:
        return Scope(name, self._sources, Findings(), foreign=False)

    def _items(self, value: dict[str, Any], path: KeyPath, scope: Scope) -> dict[str, Item]:  # noqa: ARG002 - for another form
        """The items of an entry under our keys; what is wrong with how they are written goes into the scope."""
        return items_of(value, path, self._document)

    def _name(self, written: str, path: KeyPath) -> str | None:
        """The name of an entry; None, and a problem, when it can have none."""
        if not is_name(written):
            self._reject(written, path, "cannot be the name of a server", EXPECTED)
            return None
        return written

    def _reject(self, written: str, path: KeyPath, message: str, expected: str) -> None:
        problem = self._document.problem(path, message, expected=expected, server=cut(written))
        self._entries.findings.problems.append(problem)
        self._entries.rejected[written] = problem


class _ForeignReader(_EntryReader):
    """Reads the entries of one document of another program."""

    def __init__(
        self,
        document: Document,
        defaults: Mapping[str, Item],
        sources: Sources,
        entries: FileEntries,
        form: Form,
        keep: Callable[[Reading], None] | None,
    ) -> None:
        super().__init__(document, defaults, sources, entries)
        self._form = form
        self._around = surroundings_of(document, form, sources.environ)
        self._keep = keep
        self.repeats = Repeats()

    def _scope(self, name: str) -> Scope:
        return Scope(name, self._sources, Findings(), foreign=True, repeats=Repeats() if self._keep else self.repeats)

    def _items(self, value: dict[str, Any], path: KeyPath, scope: Scope) -> dict[str, Item]:
        items = translated(
            value, path, self._document, scope, self._form.dialect, self._around, suggests=self._keep is not None
        )
        if self._keep is not None:
            self._keep(Reading(scope.server, str(path[-1]), path, items, tuple(scope.findings.problems), scope))
        return items

    def _name(self, written: str, path: KeyPath) -> str | None:
        name = carried_over(written)
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


def _check_tables(file: Found, document: Document, findings: Findings) -> None:
    """Name each table of our TOML that is not known, not there yet, or not allowed in this file."""
    known = (*SECTIONS, "defaults", "servers", *TABLES_OF_HANDLERS)
    for key in document.data:
        if key == SCHEMA:
            continue
        if key not in known:
            findings.problems.append(document.problem((key,), "unknown table", near=document.near(key, known)))
        elif key not in IN_DROP_INS and not file.is_main:
            message = "belongs into the main file; a file of servers.d holds [servers.NAME], [handlers.NAME] and [[routes]]"
            findings.problems.append(document.problem((key,), message))


def _failed(problem: Problem) -> FileEntries:
    """Nothing but a problem, for a file of which no entry can be used."""
    return FileEntries(failure=problem, findings=Findings(problems=[problem]))

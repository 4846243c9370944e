"""Owns which handlers and routes a file holds, and whether the routes of all files lead to somebody."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mcpvisor.daemon.config.entry_scope import Item, Scope, items_of, kind_of
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.handler_entry import read_handler
from mcpvisor.daemon.config.names import EXPECTED, is_name
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.problems import Findings, Problem, cut
from mcpvisor.daemon.config.route_entry import read_route, read_routing
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.contract import EventKind
from mcpvisor.daemon.handlers.routing import QUIET_KINDS, Route, RoutingOptions
from mcpvisor.daemon.handlers.specs import ANSWER_QUESTIONS, OPERATOR, TAKE_EVENTS, HandlerSpec, HandlerType

_NAMES_SHOWN: Final = 20
"""How many handlers are named where another word was written."""

TABLES: Final = ("handlers", "routes", "routing")


@dataclass(slots=True)
class FileHandlers:
    """The handlers and routes of one file, good and bad."""

    handlers: dict[str, HandlerSpec] = field(default_factory=dict[str, HandlerSpec])
    rejected: dict[str, Problem] = field(default_factory=dict[str, Problem])
    """Names of handlers that cannot be used, each with its first problem."""
    paths: dict[str, KeyPath] = field(default_factory=dict[str, KeyPath])
    routes: list[Route] = field(default_factory=list[Route])
    options: RoutingOptions | None = None
    """`[routing]`, None where the file has none that can be used."""
    faults_of_routes: list[Problem] = field(default_factory=list[Problem])
    """What is wrong with routes: with one that is wrong the others would mean something else, so they count together."""
    findings: Findings = field(default_factory=Findings)


def read_handlers(document: Document, sources: Sources) -> FileHandlers:
    """All handlers and routes of a document of ours; a bad one is rejected by itself."""
    found = FileHandlers()
    table = document.data.get("handlers", {})
    if isinstance(table, dict):
        for name, value in table.items():
            _read_handler(name, value, document, sources, found)
    else:
        found.findings.problems.append(document.problem(("handlers",), f"is {kind_of(table)}", expected="[handlers.NAME]"))
    routes = document.data.get("routes", [])
    if isinstance(routes, list):
        for number, value in enumerate(routes):
            _read_route(("routes", number), value, document, sources, found)
    else:
        found.faults_of_routes.append(document.problem(("routes",), f"is {kind_of(routes)}", expected="[[routes]]"))
    if "routing" in document.data:
        _read_routing(document.data["routing"], document, sources, found)
    return found


def _read_handler(name: str, value: Any, document: Document, sources: Sources, found: FileHandlers) -> None:
    path = ("handlers", name)
    if not is_name(name) or name == OPERATOR:
        what = "is the name of the built-in handler" if name == OPERATOR else "cannot be the name of a handler"
        problem = replace(document.problem(path, what, expected=EXPECTED), handler=cut(name))
        found.findings.problems.append(problem)
        found.rejected[name] = problem
        return
    place = Item(value, path, document)
    scope = Scope("", sources, Findings(), foreign=False, handler=name, entry=place)
    spec: HandlerSpec | None = None
    if isinstance(value, dict):
        spec = read_handler(TableReader(items_of(value, path, document), scope), document, path)
    else:
        scope.problem(place, f"is {kind_of(value)}", expected="a table with a type")
    found.findings.problems += scope.findings.problems
    found.findings.hints += scope.findings.hints
    found.paths[name] = path
    if spec is not None:
        found.handlers[name] = spec
    else:
        found.rejected[name] = scope.findings.problems[0]


def _read_route(path: KeyPath, value: Any, document: Document, sources: Sources, found: FileHandlers) -> None:
    scope = Scope("", sources, Findings(), foreign=False)
    if isinstance(value, dict):
        route = read_route(TableReader(items_of(value, path, document), scope), document, path)
        if route is not None:
            found.routes.append(route)
    else:
        scope.problem(Item(value, path, document), f"is {kind_of(value)}", expected="a table with handler")
    found.faults_of_routes += scope.findings.problems
    found.findings.hints += scope.findings.hints


def _read_routing(value: Any, document: Document, sources: Sources, found: FileHandlers) -> None:
    path: KeyPath = ("routing",)
    scope = Scope("", sources, Findings(), foreign=False)
    if isinstance(value, dict):
        found.options = read_routing(TableReader(items_of(value, path, document), scope), document, path)
    else:
        scope.problem(Item(value, path, document), f"is {kind_of(value)}", expected="[routing]")
    found.faults_of_routes += scope.findings.problems


def keep_first(document: Document, found: FileHandlers, owners: dict[str, str]) -> None:
    """Reject each handler whose name an earlier file has, with both places; `owners` are the places so far."""
    for name, path in found.paths.items():
        position = document.at(path)
        here = f"{document.file}:{position.line}" if position is not None else str(document.file)
        owner = owners.setdefault(name, here)
        if owner != here:
            message = f"a handler of this name is written at {owner} already; the first one counts"
            problem = replace(document.problem(path, message), handler=name)
            found.findings.problems.append(problem)
            found.rejected[name] = problem
            found.handlers.pop(name, None)


def check_ways(document: Document, found: FileHandlers, types: Mapping[str, HandlerType | None]) -> None:
    """Name each route of a file that leads to nobody, or to somebody who cannot take what it brings; leave it out.

    `types` are all handlers that are written in any file; None for one that cannot be used, which is said elsewhere.
    """
    good: list[Route] = []
    numbers = _numbers_of(document)
    with_operator = {**types, OPERATOR: None}
    expected = _expected(types)
    for route in found.routes:
        path: KeyPath = (*numbers.get(route.origin, ("routes",)), "handler")
        faults = [
            *_unknown(document, path, route.handlers, with_operator, expected),
            *_unfit(document, path, route.handlers, route.kinds, types),
        ]
        found.faults_of_routes += faults
        if not faults:
            good.append(route)
    found.routes = good
    if found.options is not None:
        path = ("routing", "default")
        found.faults_of_routes += [
            *_unknown(document, path, found.options.default, types, expected),
            *_unfit(document, path, found.options.default, QUIET_KINDS, types),
        ]


def _numbers_of(document: Document) -> dict[str, KeyPath]:
    """The path of each route by the place that it names as its origin."""
    routes = document.data.get("routes", [])
    paths: list[KeyPath] = [("routes", number) for number in range(len(routes) if isinstance(routes, list) else 0)]
    return {f"{document.file}:{place.line}": path for path in paths if (place := document.at(path)) is not None}


def _unknown(
    document: Document, path: KeyPath, handlers: Iterable[str], types: Mapping[str, HandlerType | None], expected: str
) -> list[Problem]:
    problems: list[Problem] = []
    for handler in handlers:
        if handler not in types:
            near = document.near(handler, types)
            message = f'"{_printable(handler)}": there is no handler of this name'
            problems.append(document.problem(path, message, expected="" if near else expected, near=near))
    return problems


def _unfit(
    document: Document,
    path: KeyPath,
    handlers: Iterable[str],
    kinds: frozenset[EventKind],
    types: Mapping[str, HandlerType | None],
) -> list[Problem]:
    problems: list[Problem] = []
    for handler in handlers:
        if handler == OPERATOR and kinds - {"elicitation"}:
            problems.append(document.problem(path, f"{OPERATOR} is the built-in handler, which takes questions only"))
        kind = types.get(handler)
        if kind is not None and "elicitation" in kinds and kind not in ANSWER_QUESTIONS:
            problems.append(document.problem(path, f"{handler} is of type {kind.value}, which answers no questions"))
        if kind is not None and kinds - {"elicitation"} and kind not in TAKE_EVENTS:
            problems.append(document.problem(path, f"{handler} is of type {kind.value}, which takes questions only"))
    return problems


def _expected(types: Mapping[str, HandlerType | None]) -> str:
    if not types:
        return "a handler as [handlers.NAME]"
    names = heapq.nsmallest(_NAMES_SHOWN, types)
    more = f" or one of {len(types) - _NAMES_SHOWN} more" if len(types) > _NAMES_SHOWN else ""
    return "one of " + ", ".join(names) + more


def _printable(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= 40 else shown[:40] + "..."

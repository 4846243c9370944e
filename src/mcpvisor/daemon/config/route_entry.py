"""Owns how one `[[routes]]` becomes a `Route`, and what `[routing]` says."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.handler_entry import shown
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.contract import EventKind
from mcpvisor.daemon.handlers.globs import MAX_PATTERN, Glob
from mcpvisor.daemon.handlers.routing import (
    KINDS,
    LEVELS,
    OF_LEVEL,
    OF_TOOL,
    OF_URI,
    QUIET_KINDS,
    Match,
    Route,
    RoutingOptions,
)

KIND_EXPECTED: Final = "one of " + ", ".join(f'"{kind}"' for kind in KINDS)
LEVEL_EXPECTED: Final = "one of " + ", ".join(f'"{level}"' for level in LEVELS)
HANDLER_EXPECTED: Final = "the name of a handler, or a list of names"


def read_route(entry: TableReader, document: Document, path: KeyPath) -> Route | None:
    """A route; None when its scope has found a problem. Whether its handlers are there is for others to say."""
    handlers = entry.words("handler")
    if entry.item("handler") is None:
        entry.scope.problem(Item(None, path, document), "the handler is missing", expected=f"handler = {HANDLER_EXPECTED}")
    elif not handlers and not entry.scope.findings.problems:
        entry.scope.problem(Item(None, (*path, "handler"), document), "names nobody", expected=HANDLER_EXPECTED)
    kinds = _kinds(entry)
    place = document.at(path)
    route = Route(
        handlers=tuple(dict.fromkeys(handlers)),
        kinds=kinds,
        servers=_globs(entry, "server"),
        uris=_globs(entry, "uri"),
        tools=_globs(entry, "tool"),
        level=_level(entry),
        origin=f"{document.file}:{place.line}" if place is not None else str(document.file),
    )
    _check_conditions(entry, kinds)
    entry.finish()
    return None if entry.scope.findings.problems else route


def read_routing(entry: TableReader, document: Document, path: KeyPath) -> RoutingOptions | None:
    """`[routing]` with `match` and `default`; None when its scope has found a problem."""
    place = document.at(path)
    options = RoutingOptions(
        match=entry.choice("match", Match.FIRST),
        default=tuple(dict.fromkeys(entry.words("default"))),
        origin=f"{document.file}:{place.line}" if place is not None else str(document.file),
    )
    entry.finish()
    return None if entry.scope.findings.problems else options


def _kinds(entry: TableReader) -> frozenset[EventKind]:
    words = entry.condition("event")
    item = entry.item("event")
    if item is None or not words:
        return QUIET_KINDS
    for word in words:
        if word not in KINDS:
            message = f"{shown(Item(word, item.path, item.document))}: not a kind of event"
            entry.scope.problem(item, message, expected=KIND_EXPECTED, near=item.document.near(word, KINDS))
    return frozenset(kind for kind in KINDS if kind in words)


def _globs(entry: TableReader, key: str) -> tuple[Glob, ...]:
    patterns = entry.condition(key)
    item = entry.item(key)
    for pattern in patterns:
        if item is not None and not 0 < len(pattern) <= MAX_PATTERN:
            message = f"a pattern of {len(pattern)} characters"
            entry.scope.problem(item, message, expected=f"1 to {MAX_PATTERN}")
            return ()
    return tuple(Glob(pattern) for pattern in patterns)


def _level(entry: TableReader) -> str | None:
    level = entry.plain("level")
    item = entry.item("level")
    if level is not None and item is not None and level not in LEVELS:
        near = item.document.near(level, LEVELS)
        entry.scope.problem(item, f"{shown(item)}: not a level", expected=LEVEL_EXPECTED, near=near)
        return None
    return level


def _check_conditions(entry: TableReader, kinds: frozenset[EventKind]) -> None:
    """Name each condition that no event of these kinds can meet: such a route would be silent for ever."""
    for key, having in (("uri", OF_URI), ("tool", OF_TOOL), ("level", OF_LEVEL)):
        item = entry.item(key)
        if item is not None and kinds and not kinds & having:
            names = " or ".join(f'"{kind}"' for kind in KINDS if kind in having)
            entry.scope.problem(item, "no event of this route has one", expected=f"event = {names} beside it")

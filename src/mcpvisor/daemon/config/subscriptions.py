"""Owns the key `subscriptions` of an entry: URIs, or tables of one with how it is to be watched."""

from __future__ import annotations

from typing import Any, Final

from mcpvisor.daemon.config.durations import DURATION_EXPECTED, seconds
from mcpvisor.daemon.config.entry_scope import Item, kind_of
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Text, WantedResource

EXPECTED: Final = 'a URI, or a table such as { uri = "file:///a", poll = "60s" }'

SHORTEST_POLL: Final = 1.0
MAX_URI: Final = 4096
"""Characters of a URI."""


def read_subscriptions(entry: TableReader) -> tuple[WantedResource, ...]:
    """`subscriptions = ["URI", { uri, poll, force }]`; each URI as it is written, letter by letter."""
    found: dict[str, WantedResource] = {}
    for element in entry.elements("subscriptions"):
        one = _read_one(entry, element)
        if one is None:
            continue
        if one.uri in found:
            entry.scope.problem(element, "the URI stands in the list twice")
        elif not one.uri or len(one.uri) > MAX_URI:
            entry.scope.problem(element, f"a URI of {len(one.uri)} characters", expected=f"1 to {MAX_URI}")
        else:
            found[one.uri] = one
    return tuple(found.values())


def _read_one(entry: TableReader, element: Item) -> WantedResource | None:
    if isinstance(element.value, str):
        uri = entry.text_of(element)
        return None if uri is None else WantedResource(uri=_plain(uri))
    table = entry.table_of(element)
    if table is None:
        entry.scope.problem(element, f"is {kind_of(element.value)}", expected=EXPECTED)
        return None
    if table.item("uri") is None:
        entry.scope.problem(element, "the uri is missing", expected=EXPECTED)
    uri = table.text("uri")
    poll = table.converted("poll", None, _poll, f"{DURATION_EXPECTED}, at least {SHORTEST_POLL:g} s")
    force = table.flag("force", False)
    table.finish()
    return None if uri is None else WantedResource(uri=_plain(uri), poll=poll, force=force)


def _poll(value: Any) -> float | None:
    result = seconds(value)
    if result < SHORTEST_POLL:
        raise ValueError("too often")
    return result


def _plain(text: Text) -> str:
    return text.reveal() if isinstance(text, Secret) else text

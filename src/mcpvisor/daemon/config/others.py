"""Owns what is asked of other programs' files to be shown: where their servers are, their keys, their entries under ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mcpvisor.daemon.config.entry_scope import Item, Scope
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_servers import ROOTS
from mcpvisor.daemon.config.foreign_entry import NOT_READ, SAME, translated
from mcpvisor.daemon.config.names import carried_over
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.problems import Findings


def roots() -> Mapping[str, str]:
    """The keys under which such a file holds its servers, each with whose form that is."""
    return ROOTS


def keys() -> Mapping[str, str]:
    """Their keys that mean one of ours, each with ours; a dot stands before a key within a table."""
    return SAME


def unused_keys() -> Mapping[str, str]:
    """Their keys that are known and of no use here, each with the reason."""
    return NOT_READ


def entries(document: Document, sources: Sources) -> Iterator[tuple[str, KeyPath, Mapping[str, Item]]]:
    """The entries of such a file: name here, path there, and items under our keys at the places where they are written."""
    root = next((root for root in ROOTS if root in document.data), "")
    table = document.data.get(root)
    for written, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            path: KeyPath = (root, written)
            scope = Scope(written, sources, Findings(), foreign=True)
            yield carried_over(written), path, translated(value, path, document, scope)

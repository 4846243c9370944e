"""Owns what is asked of other programs' files to be shown: where their servers are, their keys, their entries under ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mcpvisor.daemon.config.dialects import ROOTS
from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_servers import Reading, read_foreign
from mcpvisor.daemon.config.foreign_keys import EVERYBODY, OF_ONE, Means, Nothing
from mcpvisor.daemon.config.positions import Document, KeyPath


def roots() -> Mapping[str, str]:
    """The keys under which such a file holds its servers, one of them in a file, each with whose form that is."""
    return {key: dialect.value for key, dialect in ROOTS.items()}


def keys() -> Mapping[str, tuple[str, bool]]:
    """Their keys that mean one of ours: ours, with a dot before a key within a table, and whether it has the same values."""
    return {key: (one.ours, one.reading is None) for key, one in _table().items() if isinstance(one, Means)}


def unused_keys() -> Mapping[str, str]:
    """Their keys that are known and of no use here, each with the reason."""
    return {key: one.why for key, one in _table().items() if isinstance(one, Nothing)}


def entries(document: Document, sources: Sources) -> Iterator[tuple[str, KeyPath, Mapping[str, Item]]]:
    """The entries of such a file: name here, path there, and items under our keys at the places where they are written."""
    found: list[Reading] = []
    read_foreign(document, {}, sources, found.append)
    for reading in found:
        yield reading.name, reading.path, reading.items


def _table() -> Mapping[str, Means | Nothing]:
    """What any program may write; a key that means something in one of them alone does not mean nothing."""
    of_one = {key: one for own in OF_ONE.values() for key, one in own.items()}
    return {**of_one, **EVERYBODY}

"""Owns which files somebody has begun to write and not closed: they are not read before their time."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from mcpvisor.daemon.config.folder_events import FolderEvent


class OpenWriters:
    """What the events of folders say of writers. Of those who were there before the first event nothing is known."""

    def __init__(self) -> None:
        self._written: set[str] = set()
        self._made: set[str] = set()

    def took(self, event: FolderEvent) -> None:
        """Take one event, in the order in which they happened."""
        if not event.path:  # any close may have been among those that were lost
            self._written.clear()
            self._made.clear()
        if event.is_entry or event.is_close:
            self._written.discard(event.path)
            self._made.discard(event.path)
        if event.is_new:
            self._made.add(event.path)
        if event.is_write:
            self._written.add(event.path)

    def are_at(self, paths: AbstractSet[str], empty: AbstractSet[str]) -> bool:
        """Whether one of these files is being written; of `empty` ones also whether that is about to begin."""
        return not self._written.isdisjoint(paths) or not self._made.isdisjoint(empty)

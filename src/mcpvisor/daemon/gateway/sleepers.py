"""Owns what sessions of former runs watch while they sleep: it is wanted of the servers all the while."""

from __future__ import annotations

from collections.abc import Iterable

from mcpvisor.daemon.gateway.watching import Sink, Watcher, Watching
from mcpvisor.daemon.state.kept import KeptSession


class _Nobody:
    """Where updates go that nobody can be told of yet: all of them are told as one when the session wakes."""

    def updated(self, uri: str) -> None:
        """See `Sink`."""

    def unwatched(self, uri: str) -> None:
        """See `Sink`."""


class Sleepers:
    """What sleeping sessions watch, by the hash of their ids."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self._asleep: dict[str, Watcher] = {}

    def fill(self, sessions: Iterable[KeptSession]) -> None:
        """Watch for these."""
        for kept in sessions:
            if kept.watched:
                watcher = self._watching.open("session", kept.principal, kept.view, _Nobody())
                self._watching.restore(watcher, kept.watched)
                self._asleep[kept.id_hash] = watcher

    def wake(self, kept: KeptSession, sink: Sink) -> Watcher | None:
        """What the session watches, told to `sink` from now on; each may have changed. None where it watches nothing."""
        watcher = self._asleep.pop(kept.id_hash, None)
        if watcher is not None:
            watcher.sink = sink
            for uri in watcher.uris:
                sink.updated(uri)
        return watcher

    def forget(self, kept: KeptSession) -> None:
        """The session is over; one that does not sleep is no error."""
        watcher = self._asleep.pop(kept.id_hash, None)
        if watcher is not None:
            self._watching.close(watcher)

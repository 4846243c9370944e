"""Owns the entries that cannot be servers as they are written: they run nothing, and are shown beside those that do."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio

from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import Event, ServerAdded, ServerRemoved, ServerStateChanged
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidEntry:
    """An entry that no server runs by. `reason` names the key and the remedy, `origin` is `file:line`.

    `waits`: nothing is wrong with it itself.
    """

    name: str
    reason: str
    origin: str
    waits: bool = False


@dataclass(slots=True)
class _Shown:
    entry: InvalidEntry
    since: float
    shown_at: float
    """The same by the monotonic clock."""
    history: list[tuple[int, Event]] = field(default_factory=list[tuple[int, Event]])


class InvalidEntries:
    """The invalid entries of the configuration in force."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._shown: dict[str, _Shown] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._shown

    def names(self) -> list[str]:
        return list(self._shown)

    def drop(self, names: Iterable[str]) -> None:
        """These names are servers now."""
        gone = set(names)
        self.show([shown.entry for name, shown in self._shown.items() if name not in gone])

    def show(self, entries: Iterable[InvalidEntry]) -> None:
        """Make these the invalid entries; what comes and goes is told like servers that do."""
        wanted = {entry.name: entry for entry in entries}
        for name in [name for name, shown in self._shown.items() if wanted.get(name) != shown.entry]:
            del self._shown[name]
            self._bus.emit(ServerRemoved(at=time.time(), server=name))
        for name, entry in wanted.items():
            if name not in self._shown:
                self._add(entry)

    def _add(self, entry: InvalidEntry) -> None:
        at = time.time()
        shown = self._shown[entry.name] = _Shown(entry, at, anyio.current_time())
        for event in (
            ServerAdded(at=at, server=entry.name, transport="", required=False),
            ServerStateChanged(
                at=at, server=entry.name, old=State.STARTING, new=State.FAILED, reason=entry.reason, next_attempt=None
            ),
        ):
            shown.history.append((self._bus.next_number(), event))
            self._bus.emit(event)

    def reason(self, name: str) -> str:
        """Why no server runs by the entry of that name, as a sentence. Raises KeyError."""
        entry = self._shown[name].entry
        return f"the entry of {name!r} {'is not in force' if entry.waits else 'is not valid'}: {entry.reason}"

    def numbered(self, name: str) -> list[tuple[int, Event]]:
        """What was told of the entry, each with its number in the order of all events that are kept. Raises KeyError."""
        return list(self._shown[name].history)

    def status(self, name: str) -> ServerStatus:
        """The entry as a server that failed; it waits for an edit, not for a time. Raises KeyError."""
        shown = self._shown[name]
        return ServerStatus(
            name=name,
            state=State.FAILED,
            reason=shown.entry.reason,
            since=shown.since,
            state_seconds=anyio.current_time() - shown.shown_at,
            transport="",
            wanted="running",
            wanted_by="config",
            origin=shown.entry.origin,
        )

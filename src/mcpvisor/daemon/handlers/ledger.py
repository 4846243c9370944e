"""Owns which events outlive the daemon: those that handlers have accepted, and dead letters; bounded in age and bytes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from typing import Final, Protocol

from mcpvisor.daemon.handlers.contract import HandlerEvent, JsonObject
from mcpvisor.daemon.handlers.dead_letters import DeadLetters
from mcpvisor.daemon.handlers.routing import KINDS
from mcpvisor.daemon.state.kept import KeptEvent
from mcpvisor.supervisor.transports.codec import encode

DAY: Final = 86400.0


class EventStore(Protocol):
    """What the ledger asks of the state store."""

    def kept_events(self) -> list[KeptEvent]:
        """All that are kept, the oldest first."""
        ...

    def keep_event(self, kept: KeptEvent) -> int:
        """Keep an event, or what is new of it; returns the number of the change."""
        ...

    def forget_event(self, key: str) -> None:
        """Drop an event."""
        ...

    async def until_written(self, number: int) -> bool:
        """Whether a change has reached the disk; returns at once where it will not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """How much is kept, and for how long. Sizes in bytes, times in seconds."""

    pending_bytes: int = 32 * 1024 * 1024
    pending_share: int = 1024 * 1024
    """What each handler has beyond that, so that those which are away cost no other one its room."""
    pending_seconds: float = 7 * DAY
    dead_bytes: int = 16 * 1024 * 1024
    dead_number: int = 10_000
    dead_seconds: float = 30 * DAY


class Ledger:
    """The kept events; `now` is wall-clock seconds. Whatever it does is in memory at once, and on disk as the store can."""

    def __init__(self, store: EventStore, limits: LedgerLimits | None = None) -> None:
        self._store = store
        self._limits = limits or LedgerLimits()
        self._pending: OrderedDict[str, tuple[KeptEvent, int]] = OrderedDict()
        self._pending_bytes: Counter[str] = Counter()
        """By handler."""
        self._dead = DeadLetters()
        self._jumped = 0.0
        self.lost = 0
        """Dead letters that were dropped for want of room, or for their age."""

    def recall(self) -> None:
        """Take in what the store knows and this does not: at the start, and where the file could be read only later."""
        for kept in self._store.kept_events():
            is_known = kept.key in self._pending or kept.key in self._dead
            if not is_known and kept.event["kind"] in KINDS:  # others are those of a newer program
                self._enter(kept)

    @property
    def dead_letters(self) -> list[KeptEvent]:
        """All dead letters, those that died first come first."""
        return list(self._dead)

    def pending(self) -> list[KeptEvent]:
        """What was accepted and is not handled, the oldest first."""
        return [kept for kept, _ in self._pending.values()]

    def has_room(self, handler: str, size: int) -> bool:
        """Whether an event of that size may be accepted for a handler."""
        if self._pending_bytes.total() + size <= self._limits.pending_bytes:
            return True
        return self._pending_bytes[handler] + size <= self._limits.pending_share

    def clock_jumped(self, seconds: float) -> None:
        """The wall clock has jumped, or stood still for us: that time has made nothing older."""
        self._jumped += seconds

    def accept(self, handler: str, event: HandlerEvent, now: float) -> int:
        """Keep an accepted event, or what was coalesced into it; returns the number of the change, for `until_written`."""
        former = self._pending.get(_key(handler, event.id))
        accepted_at = former[0].accepted_at if former is not None else now
        return self._keep(KeptEvent(handler=handler, event=event.as_json(), accepted_at=accepted_at))

    async def until_written(self, number: int) -> bool:
        """See `EventStore`."""
        return await self._store.until_written(number)

    def handled(self, handler: str, event_id: str) -> None:
        """An event is done with."""
        self._forget(_key(handler, event_id))

    def buried(self, handler: str, event: HandlerEvent, why: str, tries: int, now: float) -> None:
        """An event was given up, or never accepted for want of room: it is a dead letter."""
        former = self._pending.get(_key(handler, event.id))
        accepted_at = former[0].accepted_at if former is not None else now
        kept = KeptEvent(handler=handler, event=event.as_json(), accepted_at=accepted_at, tries=tries, dead_at=now, why=why)
        self._keep(kept)
        self._make_room(now)

    def revived(self, key: str, now: float) -> KeptEvent | None:
        """Take a dead letter out of the dead: it is pending again. None where there is none of that key."""
        found = self._dead.get(key)
        if found is None:
            return None
        kept = replace(found, accepted_at=now, tries=0, dead_at=None, why="")
        self._keep(kept)
        return kept

    def outdated(self, now: float) -> list[KeptEvent]:
        """What has been pending for too long; dead letters that are too old are dropped on the way."""
        self._make_room(now)
        since = self._since(now, self._limits.pending_seconds)
        return [kept for kept, _ in self._pending.values() if kept.accepted_at < since]

    def discard(self, key: str) -> KeptEvent | None:
        """Drop a dead letter that nobody wants any more. None where there is none of that key."""
        if (found := self._dead.get(key)) is not None:
            self._forget(key)
        return found

    def find_dead(self, event_id: str) -> list[str]:
        """The keys of the dead letters of an event, of which each handler may have one; also by a whole key."""
        return [kept.key for kept in self._dead if event_id in (kept.key, kept.event["id"])]

    def _keep(self, kept: KeptEvent) -> int:
        self._leave(kept.key)
        self._enter(kept)
        return self._store.keep_event(kept)

    def _enter(self, kept: KeptEvent) -> None:
        size = len(encode(kept.event))
        if kept.dead_at is None:
            self._pending[kept.key] = (kept, size)
            self._pending_bytes[kept.handler] += size
        else:
            self._dead.add(kept, size)

    def _leave(self, key: str) -> bool:
        if (found := self._pending.pop(key, None)) is not None:
            self._pending_bytes[found[0].handler] -= found[1]
            return True
        return self._dead.remove(key)

    def _forget(self, key: str) -> None:
        if self._leave(key):
            self._store.forget_event(key)

    def _make_room(self, now: float) -> None:
        limits = self._limits
        for key in list(self._dead.older_than(self._since(now, limits.dead_seconds))):
            self._drop(key)
        while self._dead.size > limits.dead_bytes:
            self._drop(self._dead.least_missed(by_size=True))
        while len(self._dead) > limits.dead_number:
            self._drop(self._dead.least_missed(by_size=False))

    def _drop(self, key: str) -> None:
        self._forget(key)
        self.lost += 1

    def _since(self, now: float, seconds: float) -> float:
        """Since when, by the wall clock, what is younger than `seconds` is there."""
        return now - max(0.0, self._jumped) - seconds


def event_of(data: JsonObject) -> HandlerEvent:
    """The event that `as_json` was given."""
    return HandlerEvent(
        id=data["id"],
        kind=data["kind"],
        server=data["server"],
        at=data["at"],
        data=data["data"],
        coalesced=data["coalesced"],
    )


def _key(handler: str, event_id: str) -> str:
    return f"{handler}/{event_id}"

"""Owns the state in memory, which is always read, and hands what is new to the thread that writes it; see `Store`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio

from mcpvisor.daemon.state.database import Loaded
from mcpvisor.daemon.state.kept import (
    KeptEvent,
    KeptSession,
    KeptVersion,
    KnownOrder,
    KnownServer,
    Limits,
    PastEvent,
    StoreHealth,
)
from mcpvisor.daemon.state.pending import Pending
from mcpvisor.daemon.state.tables import EVENTS, ORDERS, SERVERS, SESSIONS, TABLES, TOKENS, VERSIONS, Table
from mcpvisor.daemon.state.writer import Emptied, Ended, Failed, Opened, Report, Writer, Written
from mcpvisor.supervisor.auth.token_source import server_of
from mcpvisor.supervisor.store import KeptToken, Remembered, StandingOrder

OPEN_SECONDS: Final = 5.0
"""How long the daemon's start waits for the state file."""

CLOSE_SECONDS: Final = 2.0
"""How long the daemon's end waits for what is still to be written."""

WATCH_SECONDS: Final = 0.5
USED_SECONDS: Final = 60.0
"""A session that was merely used again is written that often at the most."""

SEEN_SECONDS: Final = 86400.0
"""That a server is still configured is written that often at the most."""


class StateStore:
    """What outlives the daemon. For one event loop; nothing but `keep_token`, `flush` and the two ends of its life waits."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        self.health = StoreHealth(up=False, reason="it is not open yet", since=time.time())
        self.past: list[PastEvent] = []
        """The newest events of each server from before this run, oldest first."""
        self.unread_file: Path | None = None
        """Where the file was put that was damaged at the start: what it held is not in memory."""
        self.on_health: Callable[[StoreHealth], None] = lambda _: None
        """Told the health when whether it is up, or why not, has changed."""
        self.on_emptied: Callable[[Path | None, str], None] = lambda _, __: None
        """Told when the file is a new one: where the damaged one was put, and what was wrong."""
        self._limits = limits or Limits()
        self._values: dict[Table, dict[str, Any]] = {table: {} for table in TABLES}
        self._touched: set[tuple[Table, str]] = set()
        """Keys that were written before the file was read: they are newer than what is in it."""
        self._pending = Pending(self._limits.queued_events)
        self._writer = Writer(path, self._pending, self._limits, self._hand_over)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_loaded = False
        self._settled = anyio.Event()
        """Set once the file was read and written to, or could not be."""
        self._ended = anyio.Event()
        self._written = 0
        self._news = anyio.Event()
        """Set, and replaced, whenever something was written or could not be."""
        self._used: dict[str, float] = {}
        """When what is on disk of a session says that it was used."""

    # Life

    async def open(self) -> None:
        """Read the file; goes on in memory where that takes too long or fails, as `health` says then."""
        self._loop = asyncio.get_running_loop()
        self._writer.start()
        with anyio.move_on_after(OPEN_SECONDS):
            await self._settled.wait()
        if not self._settled.is_set():
            self._set_health(up=False, reason=f"{self.path} could not be read within {OPEN_SECONDS:g} s")

    async def close(self) -> None:
        """Write what is left, for as long as `CLOSE_SECONDS`."""
        self._pending.close()
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS):
            await self._ended.wait()

    async def watch(self) -> None:
        """Notice a write that hangs, until cancelled."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            if self._writer.busy_seconds > self._limits.slow_write:
                self._set_health(up=False, reason=f"{self.path}: a write has taken over {self._limits.slow_write:g} s")
                self._tell_news()

    async def flush(self) -> bool:
        """Bring to disk what was handed over so far; False where the disk does not take it."""
        return await self._until_written(self._pending.hurry())

    # See `Store`

    def recall(self, server: str, target: str) -> Remembered | None:
        """See `Store`."""
        known: KnownServer | None = self._values[SERVERS].get(server)
        return known.what if known is not None and known.target == target else None

    def remember(self, server: str, target: str, what: Remembered) -> None:
        """See `Store`."""
        self._put(SERVERS, server, KnownServer(target=target, what=what, seen_at=time.time()))

    def standing_order(self, server: str) -> StandingOrder | None:
        """See `Store`."""
        known: KnownOrder | None = self._values[ORDERS].get(server)
        return known.order if known is not None else None

    def keep_order(self, server: str, order: StandingOrder | None) -> None:
        """See `Store`."""
        self._put(ORDERS, server, KnownOrder(order=order, seen_at=time.time()) if order is not None else None, urgent=True)

    def token(self, key: str) -> KeptToken | None:
        """See `Store`."""
        token: KeptToken | None = self._values[TOKENS].get(key)
        return token

    def tokens(self) -> list[str]:
        """The plain values of all that are kept, for those who mask them, and nobody else."""
        return [token.value.reveal() for token in self._values[TOKENS].values()]

    async def keep_token(self, key: str, token: KeptToken | None) -> None:
        """See `Store`."""
        await self._until_written(self._put(TOKENS, key, token, urgent=True))

    # Sessions of gateway clients

    def sessions(self) -> list[KeptSession]:
        """All that are kept."""
        return list(self._values[SESSIONS].values())

    def keep_session(self, session: KeptSession) -> None:
        """Keep a session, or what is new of it. That it was merely used is in memory at once, and on disk within a minute."""
        former: KeptSession | None = self._values[SESSIONS].get(session.id_hash)
        self._values[SESSIONS][session.id_hash] = session
        on_disk = self._used.get(session.id_hash, float("-inf"))
        is_only_used = former is not None and replace(former, used_at=session.used_at) == session
        if not is_only_used or abs(session.used_at - on_disk) >= USED_SECONDS:
            self._used[session.id_hash] = session.used_at
            is_asked_for = former is not None and former.watched != session.watched  # its client counts on that
            self._put(SESSIONS, session.id_hash, session, urgent=is_asked_for)

    def forget_session(self, id_hash: str) -> None:
        """Drop a session; one that is not known is no error."""
        self._used.pop(id_hash, None)
        if id_hash in self._values[SESSIONS] or not self._is_loaded:
            self._put(SESSIONS, id_hash, None)

    # Events of handlers

    def kept_events(self) -> list[KeptEvent]:
        """All that are kept, dead letters among them, in the order in which they came."""
        return list(self._values[EVENTS].values())

    def keep_event(self, kept: KeptEvent) -> int:
        """Keep an event, or what is new of it; `until_written` with the number that is returned says when it is on disk."""
        return self._put(EVENTS, kept.key, kept, urgent=True)

    def forget_event(self, key: str) -> None:
        """Drop an event; one that is not known is no error."""
        if key in self._values[EVENTS] or not self._is_loaded:
            self._put(EVENTS, key, None)

    async def until_written(self, number: int) -> bool:
        """Whether a change, and all before it, have reached the disk; returns at once while the store is down."""
        return await self._until_written(number)

    # Versions of the configuration

    def versions(self) -> dict[str, KeptVersion]:
        """All that are kept, by their keys."""
        return dict(self._values[VERSIONS])

    def keep_version(self, key: str, version: KeptVersion | None) -> None:
        """Replace a version; None drops it."""
        if version is not None or key in self._values[VERSIONS] or not self._is_loaded:
            self._put(VERSIONS, key, version, urgent=True)

    @property
    def is_read(self) -> bool:
        """Whether the first try to read the file is over: what it held is in memory."""
        return self._is_loaded

    # The journal

    def note(self, event: PastEvent) -> None:
        """Bring an event into the journal."""
        self._pending.add(event)

    @property
    def lost_events(self) -> int:
        """Events that were never written, for want of a disk that took them."""
        return self._pending.lost_events

    def rewrite(self, events: Iterable[PastEvent]) -> None:
        """Write all that is in memory, and these events, into a file that holds nothing."""
        for table, values in self._values.items():
            for key, value in values.items():
                self._pending.put(table, key, value)
        for event in events:
            self._pending.add(event)

    # What was in the configuration

    def configured(self, servers: Iterable[str], now: float) -> None:
        """Take note of which servers there are; what is known of those that have been missing for long is dropped.

        Tokens go at once with their servers, and when they have expired: others can be fetched, and these only be stolen.
        """
        here = set(servers)
        for table in (SERVERS, ORDERS):
            for name, known in list(self._values[table].items()):
                if name in here and now - known.seen_at > SEEN_SECONDS:
                    self._put(table, name, replace(known, seen_at=now))
                elif name not in here and now - known.seen_at > self._limits.absent_seconds:
                    self._put(table, name, None)
        for key, token in list(self._values[TOKENS].items()):
            if server_of(key) not in here or (token.expires_at is not None and token.expires_at <= now):
                self._put(TOKENS, key, None)

    # Memory first, then the thread

    def _put(self, table: Table, key: str, value: Any, *, urgent: bool = False) -> int:
        if value is None:
            self._values[table].pop(key, None)
        else:
            self._values[table][key] = value
        if not self._is_loaded:
            self._touched.add((table, key))
        return self._pending.put(table, key, value, urgent=urgent)

    async def _until_written(self, number: int) -> bool:
        """Whether a change has reached the disk; returns at once while the store is down."""
        while self._written < number and self.health.up:
            await self._news.wait()
        return self._written >= number

    def _tell_news(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # What the thread tells

    def _hand_over(self, report: Report) -> None:
        """In the thread: bring a report to the event loop, which may be gone by now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._take, report)
            except RuntimeError:  # it was closed at this very moment: nobody is left to be told
                return

    def _take(self, report: Report) -> None:
        match report:
            case Opened(loaded=loaded):
                self._load(loaded)
            case Written(number=number):
                self._written = max(self._written, number)
                self._set_health(up=True, reason="")
                self._settled.set()
            case Failed(reason=reason):
                self._set_health(up=False, reason=reason)
                self._settled.set()
            case Emptied(aside=aside, reason=reason):
                if not self._is_loaded:
                    self.unread_file = aside
                self.on_emptied(aside, reason)
            case Ended():
                self._ended.set()
        self._tell_news()

    def _load(self, loaded: Loaded) -> None:
        self._is_loaded = True
        for table, values in loaded.values.items():
            before = {key: value for key, value in values.items() if (table, key) not in self._touched}
            self._values[table] = before | self._values[table]
        self._touched.clear()
        self._used = {session.id_hash: session.used_at for session in self.sessions()}
        self.past = loaded.events

    def _set_health(self, *, up: bool, reason: str) -> None:
        former = self.health
        if (former.up, former.reason) == (up, reason):
            return
        self.health = StoreHealth(up=up, reason=reason, since=former.since if former.up == up else time.time())
        self.on_health(self.health)

"""Owns the values that only the daemon keeps: sessions of gateway clients, and how the store itself is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcpvisor.supervisor.store import Remembered, StandingOrder

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """A session of a gateway client, known again after a restart of the daemon.

    `id_hash` is a hash of the session's id, never the id itself; `view` is the one server that its endpoint shows, None for all
    of them; `opened_with` are the params of its `initialize`; `used_at` is wall-clock seconds since the epoch; `watched` are
    the URIs of the resources whose changes its client is told of.
    """

    id_hash: str
    principal: str
    view: str | None
    opened_with: JsonObject
    used_at: float
    watched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvent:
    """An event that a handler has accepted and not handled yet; with `dead_at` it is a dead letter, and `why` says why.

    Times are wall-clock seconds since the epoch. The same event may be kept for several handlers.
    """

    handler: str
    event: JsonObject
    """As `HandlerEvent.as_json` gives it."""
    accepted_at: float
    tries: int = 0
    dead_at: float | None = None
    why: str = ""

    @property
    def key(self) -> str:
        """What tells it apart."""
        return f"{self.handler}/{self.event['id']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptVersion:
    """A version of a part of the configuration, by a key that says which part.

    `digest` is a keyed one of what is sealed; `good_at` is wall-clock seconds since the epoch; `ready` is whether its server
    was ready with it; `why` is why it is not in force, where that is so.
    """

    digest: str
    sealed: Callable[[], str] = field(compare=False, repr=False)
    """The content under the seal; called by the thread that writes it."""
    good_at: float
    ready: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """Whether what is handed over reaches the disk; `reason` says why not, `since` is wall-clock seconds since the epoch."""

    up: bool
    reason: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """A row of what is remembered of servers; `seen_at` is when the server was last configured."""

    target: str
    what: Remembered
    seen_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOrder:
    """A row of the standing orders; `seen_at` is when the server was last configured."""

    order: StandingOrder
    seen_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is kept, and how long anything may take. Sizes in bytes, times in seconds."""

    total: int = 256 * 1024 * 1024
    """Of the file as a whole."""
    reserve: int = 4 * 1024 * 1024
    """Of it, and beside it, what is given up first when there is no room, so that there is room to delete in."""
    log: int = 64 * 1024 * 1024
    """Of the write-ahead log; it only grows so far while another program reads the file and does not end."""
    journal_rows: int = 50_000
    journal_seconds: float = 30 * 86400.0
    absent_seconds: float = 30 * 86400.0
    """How long a server may be missing from the configuration before what is known of it is dropped."""
    queued_events: int = 10_000
    """Events that wait to be written while the disk does not take them; the oldest go first."""
    slow_write: float = 5.0
    """After this a write counts as one that hangs."""
    lock_wait: float = 60.0
    """How long a write waits for another program that holds the file's lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEvent:
    """An event as the journal keeps it: `view` is what the control API shows of it."""

    at: float
    server: str
    kind: str
    view: JsonObject = field(default_factory=dict[str, Any])

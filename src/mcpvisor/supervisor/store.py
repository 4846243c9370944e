"""Owns what the supervisor wants to outlive the process, as a protocol; the default keeps it in memory.

Reading is from memory and never waits. Writing hands over and returns at once: a store that is full, slow or broken says so
on its own account and keeps what it was given in memory, so that nothing here ever stops for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Era


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What earlier sessions have shown of a server."""

    era: Era | None = None
    """The era that the server itself has answered for; None while it has not."""
    skip_probe: bool = False
    """Whether a process did not survive the question for its era: the next one is not asked."""
    only_sse: bool = False
    """Whether it knows only the old HTTP+SSE transport."""
    offer: Offer | None = None
    """What it offered last, and what it said of itself: its answer to `server/discover` or `initialize`, in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingOrder:
    """An operator's order that lasts longer than the daemon; `at` is wall-clock seconds since the epoch."""

    wanted: Wanted
    who: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptToken:
    """An access token; `expires_at` in wall-clock seconds since the epoch, None where its issuer did not say."""

    value: Secret
    expires_at: float | None


class Store(Protocol):
    """What outlives the process. Nothing here raises or waits, but for `keep_token`."""

    def recall(self, server: str, target: str) -> Remembered | None:
        """What is known of a server; None where its `target` (a digest of where and how it is reached) was another one."""
        ...

    def remember(self, server: str, target: str, what: Remembered) -> None:
        """Replace what is known of a server."""
        ...

    def standing_order(self, server: str) -> StandingOrder | None:
        """The order that stands for a server; None where none does."""
        ...

    def keep_order(self, server: str, order: StandingOrder | None) -> None:
        """Replace the order that stands for a server; None ends it."""
        ...

    def token(self, key: str) -> KeptToken | None:
        """The token that was kept under a key which names its issuer, client and scope, but holds no secret."""
        ...

    async def keep_token(self, key: str, token: KeptToken | None) -> None:
        """Replace a token; returns once it is on disk, or cannot be brought there."""
        ...


class MemoryStore:
    """A store that ends with the process."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Remembered]] = {}
        self._orders: dict[str, StandingOrder] = {}
        self._tokens: dict[str, KeptToken] = {}

    def recall(self, server: str, target: str) -> Remembered | None:
        """See `Store`."""
        known = self._known.get(server)
        return known[1] if known is not None and known[0] == target else None

    def remember(self, server: str, target: str, what: Remembered) -> None:
        """See `Store`."""
        self._known[server] = (target, what)

    def standing_order(self, server: str) -> StandingOrder | None:
        """See `Store`."""
        return self._orders.get(server)

    def keep_order(self, server: str, order: StandingOrder | None) -> None:
        """See `Store`."""
        if order is None:
            self._orders.pop(server, None)
        else:
            self._orders[server] = order

    def token(self, key: str) -> KeptToken | None:
        """See `Store`."""
        return self._tokens.get(key)

    async def keep_token(self, key: str, token: KeptToken | None) -> None:
        """See `Store`."""
        if token is None:
            self._tokens.pop(key, None)
        else:
            self._tokens[key] = token

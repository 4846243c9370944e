"""Owns how one subscription is described: its states, what its holders wish, and who is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mcpvisor.supervisor.events import UpdateReason


class SubscriptionState(StrEnum):
    """How a wanted URI stands now."""

    PENDING = "pending"
    """It is about to be asked for: the server is away, or the answer is on its way."""
    ACTIVE = "active"
    """The server has agreed to push updates, and the channel on which they come is open."""
    FAILED = "failed"
    """Changes do not reach us; the reason says why."""
    POLLED = "polled"
    """The server cannot push; it is read again and again instead, and changes are found by their content."""


Counts = Mapping[SubscriptionState, int]

WORKING = frozenset({SubscriptionState.ACTIVE, SubscriptionState.POLLED})
"""Changes reach us, one way or the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How one holder wants a URI.

    `poll`: seconds between two reads while the server cannot push; None for no reads. `force`: it is asked for even where the
    server says that it offers no subscriptions.
    """

    poll: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStatus:
    """One wanted URI as it is now; `next_retry` in wall-clock seconds since the epoch, None where nothing is due."""

    uri: str
    state: SubscriptionState
    reason: str
    next_retry: float | None
    holders: tuple[str, ...]
    poll: float | None


class SubscriptionWatcher(Protocol):
    """Who is told of the subscriptions of a server. Called within the steps of the table: it must be quick."""

    def quoted(self, text: str) -> str:
        """A reason with words of the server in it, fit to be shown."""
        ...

    def resource_updated(self, uri: str, reason: UpdateReason) -> None:
        """A wanted resource has changed, or may have."""
        ...

    def subscription_moved(self, status: SubscriptionStatus) -> None:
        """A URI stands otherwise, or for another reason."""
        ...

    def subscription_dropped(self, uri: str) -> None:
        """Nobody wants a URI any more."""
        ...

    def subscriptions_counted(self, counts: Counts) -> None:
        """How many URIs are in each state; told after each step that changed it."""
        ...

    def subscriptions_restored(self, counts: Counts) -> None:
        """What a new session was brought to, as far as it was known when the server became ready."""
        ...

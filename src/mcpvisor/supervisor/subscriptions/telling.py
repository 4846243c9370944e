"""Owns what is told of the subscriptions of one server: each failure once, and never more of them than one can read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mcpvisor.supervisor import events
from mcpvisor.supervisor.subscriptions.standing import WORKING, Counts, SubscriptionState, SubscriptionStatus

MAX_TOLD: Final = 20
"""Failures at one time that are told of one by one; the others are counted."""

Emit = Callable[[events.Event], None]


class SubscriptionTeller:
    """Turns what becomes of subscriptions into events."""

    def __init__(self, server: str, emit: Emit, quoted: Callable[[str], str], generation: Callable[[], int]) -> None:
        """`quoted` makes a server's words fit to be shown."""
        self._server = server
        self._emit = emit
        self._quoted = quoted
        self._generation = generation
        self._told: dict[str, str] = {}
        """The failures that were told of, by URI, and have not ended."""

    def quoted(self, text: str) -> str:
        """See `SubscriptionWatcher`."""
        return self._quoted(text)

    def resource_updated(self, uri: str, reason: events.UpdateReason) -> None:
        """See `SubscriptionWatcher`."""
        self._emit(events.ResourceUpdated(at=time.time(), server=self._server, uri=uri, reason=reason))

    def subscription_moved(self, status: SubscriptionStatus) -> None:
        """See `SubscriptionWatcher`."""
        known = self._told.get(status.uri)
        if status.state is SubscriptionState.FAILED:
            if known != status.reason and (known is not None or len(self._told) < MAX_TOLD):
                self._told[status.uri] = status.reason
                self._tell(status, status.reason)
        elif status.state in WORKING and known is not None:
            del self._told[status.uri]
            self._tell(status, "")

    def subscription_dropped(self, uri: str) -> None:
        """See `SubscriptionWatcher`."""
        self._told.pop(uri, None)

    def subscriptions_counted(self, counts: Counts) -> None:
        """See `SubscriptionWatcher`."""
        told = {state.value: count for state, count in counts.items()}
        self._emit(events.SubscriptionsCounted(at=time.time(), server=self._server, counts=told))

    def subscriptions_restored(self, counts: Counts) -> None:
        """See `SubscriptionWatcher`."""
        told = {state.value: count for state, count in counts.items()}
        generation = self._generation()
        self._emit(events.SubscriptionsRestored(at=time.time(), server=self._server, generation=generation, counts=told))

    def _tell(self, status: SubscriptionStatus, why: str) -> None:
        self._emit(
            events.SubscriptionAsked(
                at=time.time(),
                server=self._server,
                uri=status.uri,
                state=status.state.value,
                why=why,
                next_retry=status.next_retry,
            )
        )

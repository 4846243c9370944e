"""Owns what a refused subscription means, and when it is tried again: pure rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mcpvisor.supervisor.backoff import Jitter
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import Outcome, RequestFailed

RETRY: Final = 2.0
RETRY_MAX: Final = 300.0
SLOW_RETRY: Final = 300.0
"""Seconds between two tries of what only a change at the server can mend; a change of its lists brings a try forward."""

LIST_PAUSE: Final = 5.0
"""Seconds after a try before a change of the lists may bring the next one forward: some servers announce each entry."""

WHY: Final = 200
"""Characters that are kept of why there is no subscription."""

METHOD_NOT_FOUND: Final = -32601
UNKNOWN_RESOURCE: Final = frozenset({-32602, -32002})
"""How servers of the newer and of the older era say that they know no such resource."""

NOT_OFFERED: Final = "the server says that it offers no subscriptions"


@dataclass(frozen=True, slots=True)
class Retry:
    """Why a subscription failed, and when it is tried again, in monotonic seconds."""

    why: str
    at: float
    row: int
    """Failures in a row, but for those that only the server can mend."""
    tried_at: float
    is_orphan: bool
    """Whether the server knows no such resource: another list of resources may mend that."""

    def due(self, lists_changed_at: float) -> float:
        """When the next try is due, with what is known of the server's lists."""
        if self.is_orphan and lists_changed_at > self.tried_at:
            return min(self.at, max(lists_changed_at, self.tried_at + LIST_PAUSE))
        return self.at


def retry_after(failure: RequestFailed, row: int, now: float, jitter: Jitter) -> Retry:
    """What to make of a failure that is the next one after `row` others."""
    why = clean_text(failure.message, WHY)
    is_answer = failure.outcome is Outcome.PEER_ERROR
    if is_answer and failure.code in UNKNOWN_RESOURCE:
        return Retry(f"the server knows no such resource: {why}", now + SLOW_RETRY, 0, now, is_orphan=True)
    if is_answer and failure.code == METHOD_NOT_FOUND:
        return Retry(f"the server knows no subscriptions: {why}", now + SLOW_RETRY, 0, now, is_orphan=False)
    delay = min(RETRY * 2.0 ** min(row, 20), RETRY_MAX) * (0.5 + 0.5 * jitter())
    return Retry(why, now + max(delay, failure.retry_after_s or 0.0), row + 1, now, is_orphan=False)


def offers(capabilities: dict[str, Any]) -> bool:
    """Whether a server says that one can subscribe to its resources."""
    resources = capabilities.get("resources")
    return isinstance(resources, dict) and resources.get("subscribe") is True

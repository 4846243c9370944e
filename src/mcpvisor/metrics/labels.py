"""Owns which words may become label values: closed sets, so that nobody's text can grow the number of series."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OTHER: Final = "_OTHER"
"""Stands for every word that is not in its set (OpenTelemetry's own spelling)."""

REQUEST_METHODS: Final = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/call",
        "tools/list",
    }
)
"""What a client asks of a server, in every revision of the protocol that is spoken here."""

NOTIFICATION_METHODS: Final = frozenset(
    {
        "notifications/cancelled",
        "notifications/elicitation/complete",
        "notifications/message",
        "notifications/progress",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/subscriptions/acknowledged",
        "notifications/tasks/status",
        "notifications/tools/list_changed",
    }
)
"""What a server tells a client unasked."""

ERROR_TYPES: Final = frozenset({"", "tool_error", "error"})
OUTCOMES: Final = frozenset({"ok", "not_sent", "maybe_executed", "peer_error", "timeout", "cancelled", "rejected"})
RESTART_REASONS: Final = frozenset({"exit", "session", "probe", "spec", "order", "retry", "memory"})
SUBSCRIPTION_STATES: Final = frozenset({"pending", "active", "failed", "polled"})
RESTORE_OUTCOMES: Final = {"active": "restored", "polled": "polled", "failed": "failed", "pending": "failed"}
"""What the states of subscriptions are called once a session was brought to them."""
QUESTION_MODES: Final = frozenset({"form", "url"})
QUESTION_ACTIONS: Final = frozenset({"accept", "decline", "cancel", "withdrawn"})
EVENT_KINDS: Final = frozenset({"resource_updated", "list_changed", "elicitation", "state_changed", "log_message", "progress"})
EVENT_OUTCOMES: Final = frozenset({"accepted", "coalesced", "overflow", "handled", "failed", "dead", "dropped"})
ERAS: Final = frozenset({"legacy", "modern"})
REFUSING_SIDES: Final = frozenset({"server", "client", "control", "metrics"})
REFUSAL_REASONS: Final = frozenset({"size", "values", "depth", "syntax", "rate", "host", "origin", "auth", "access", "slow"})

_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


def among(known: frozenset[str], word: str) -> str:
    """The word itself where it is in the set, else `_OTHER`."""
    return word if word in known else OTHER


class Words:
    """A set that is closed where its words are made, and not listed here: causes, triggers.

    It lets plain lower-case words through until `limit` different ones were seen; whatever comes later, or is no such
    word, is `_OTHER`. A text that slips in by mistake therefore costs a bounded number of series.
    """

    def __init__(self, known: Iterable[str] = (), *, limit: int = 32) -> None:
        self._seen = set(known)
        self._limit = limit

    def fit(self, word: str) -> str:
        """The word as a label value."""
        if word in self._seen:
            return word
        if len(self._seen) >= self._limit or not _WORD.fullmatch(word):
            return OTHER
        self._seen.add(word)
        return word

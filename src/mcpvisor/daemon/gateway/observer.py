"""The direct line on which the gateway's traffic is counted."""

from __future__ import annotations

from typing import Final, Protocol

METHODS: Final = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "subscriptions/listen",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
    }
)
OTHER_METHOD: Final = "_OTHER"


def method_label(method: str) -> str:
    """The method where we know it, else `_OTHER`: a client must not be able to make series."""
    return method if method in METHODS else OTHER_METHOD


class GatewayObserver(Protocol):
    """Counts what clients do; every method must be O(1), quick and free of failure."""

    def session_opened(self, era: str) -> None:
        """A `legacy` session was initialised, or a `modern` client opened a stream of notifications."""
        ...

    def session_closed(self, era: str) -> None:
        """What `session_opened` told of is over."""
        ...

    def request_ended(self, method: str, outcome: str, seconds: float) -> None:
        """A request was answered; `outcome` is `ok`, an `Outcome` or `error`."""
        ...

    def refused(self, side: str, reason: str) -> None:
        """A client's request was refused: `size`, `values`, `depth`, `syntax`, `rate`, `host`, `origin`, `auth`, `slow`."""
        ...


class NoGatewayObserver:
    """Counts nothing."""

    def session_opened(self, era: str) -> None:
        """See `GatewayObserver`."""

    def session_closed(self, era: str) -> None:
        """See `GatewayObserver`."""

    def request_ended(self, method: str, outcome: str, seconds: float) -> None:
        """See `GatewayObserver`."""

    def refused(self, side: str, reason: str) -> None:
        """See `GatewayObserver`."""

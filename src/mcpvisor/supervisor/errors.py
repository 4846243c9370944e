"""The errors of the supervisor, ordered by what the one who meets them should do.

McpvisorError
+-- SpecError        the entry cannot work as written: edit it
+-- OrderRefused     an operator's order does not fit: the text says what to do first
+-- UnknownServer    no server has that name: look at `status`
+-- RequestFailed    a request has no result: `outcome` says whether it may be sent again
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What became of a request that has no result, as far as anyone can know."""

    NOT_SENT = "not_sent"
    """It surely never reached the server: free to be sent again."""
    MAYBE_EXECUTED = "maybe_executed"
    """It was written, and the answer will not come: the server may have done it."""
    PEER_ERROR = "peer_error"
    """The server answered with an error."""
    TIMEOUT = "timeout"
    """No answer within the deadline; a cancellation was sent."""
    CANCELLED = "cancelled"
    """Whoever asked has withdrawn it; a cancellation was sent."""
    REJECTED = "rejected"
    """Refused here: a limit, an unknown name or a request that is not allowed."""


class McpvisorError(Exception):
    """Root of every error this program raises on purpose."""


class SpecError(McpvisorError):
    """An entry that cannot work as written; the text names the key and the remedy."""


class OrderRefused(McpvisorError):
    """An order that does not fit the state the server was put into; the text says what to do first."""


class UnknownServer(McpvisorError):
    """No server of that name is configured."""


class RequestFailed(McpvisorError):
    """A request that got no result.

    `cause` is a short word of a closed set (`process_exited`, `session_lost`, `connect_failed`, `queue_full`, ...).
    `code`, `message` and `data` are the JSON-RPC error that the caller is to see; for `PEER_ERROR` they are the server's own.
    `retry_after_s` is how many seconds to wait before another try makes sense, where that is known.
    """

    def __init__(
        self,
        outcome: Outcome,
        cause: str,
        message: str,
        *,
        code: int = -32000,
        data: Any = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.cause = cause
        self.message = message
        self.code = code
        self.data = data
        self.retry_after_s = retry_after_s

    def __repr__(self) -> str:
        return f"RequestFailed({self.outcome.value}, {self.cause}, {self.message!r})"

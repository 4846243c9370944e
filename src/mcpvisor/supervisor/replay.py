"""Owns which failed requests may be sent a second time: one pure rule, asked in one place."""

from __future__ import annotations

from typing import Any, Final

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.spec import ServerSpec

READ_ONLY: Final = frozenset(
    {
        "ping",
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
"""Read-only, or the same when done twice, by the protocol itself."""


_LASTING: Final = frozenset({"auth", "auth_unavailable", "busy", "queue_full", "tls"})
"""Causes that will be just as true a moment later; the caller is told at once."""


def may_replay(failure: RequestFailed, method: str, tool: dict[str, Any] | None, spec: ServerSpec) -> bool:
    """Whether a request that failed like this may be sent again.

    What was surely not sent always may. What may have run only when the protocol says that the method reads, or the tool says
    so of itself and the operator trusts its hints, or the operator allows it for lost sessions.
    """
    if failure.cause in _LASTING:
        return False
    if failure.outcome is Outcome.NOT_SENT:
        return True
    if failure.outcome is not Outcome.MAYBE_EXECUTED or failure.cause == "answer_refused":
        return False
    if method in READ_ONLY:
        return True
    if method != "tools/call":
        return False
    if failure.cause == "session_lost" and spec.replay_on_session_loss:
        return True
    hints = (tool or {}).get("annotations")
    return spec.trust_hints and isinstance(hints, dict) and (hints.get("readOnlyHint") or hints.get("idempotentHint")) is True

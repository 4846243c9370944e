"""Owns which failed requests may be sent a second time: one table, of which the first row that fits decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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


class Kind(StrEnum):
    """What sending a method twice may do, as the protocol says."""

    READ = "read"
    """A method of `READ_ONLY`."""
    CALL = "tool call"
    OTHER = "other"
    """A method that the protocol does not know: anything may come of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; a column that is None fits everything."""

    name: str
    may_go_again: bool
    outcome: Outcome | None = None
    causes: frozenset[str] | None = None
    kind: Kind | None = None
    is_hinted: bool | None = None
    """The tool says that it reads or may be called twice, and the operator trusts that (`trust_hints`)."""
    is_allowed: bool | None = None
    """The operator allows it for lost sessions (`replay_on_session_loss`)."""
    was_asked: bool | None = None
    """A question of the server was answered for its sake."""


LASTING: Final = frozenset({"auth", "auth_unavailable", "busy", "queue_full", "tls"})
"""Causes that will be just as true a moment later; the caller is told at once."""

BUSY_WAIT: Final = 0.5
"""Seconds before a server that was busy is asked again at the earliest; doubled each time, whatever it says."""

_MAYBE: Final = Outcome.MAYBE_EXECUTED

ROWS: Final = (
    Row("what will be no different a moment later", False, causes=LASTING),
    Row("what never reached the server", True, Outcome.NOT_SENT),
    Row("what was answered with an error", False, Outcome.PEER_ERROR),
    Row("what ran out of time", False, Outcome.TIMEOUT),
    Row("what its caller withdrew", False, Outcome.CANCELLED),
    Row("what was refused here", False, Outcome.REJECTED),
    Row("an answer that came and was refused", False, _MAYBE, frozenset({"answer_refused"})),
    Row("what the server has asked a question about, and got an answer", False, _MAYBE, was_asked=True),
    Row("a read", True, _MAYBE, kind=Kind.READ),
    Row("a tool call that met a lost session, where that is allowed", True, _MAYBE, frozenset({"session_lost"}), Kind.CALL,
        is_allowed=True),
    Row("a call of a tool whose hints are trusted", True, _MAYBE, kind=Kind.CALL, is_hinted=True),
    Row("any other tool call", False, _MAYBE, kind=Kind.CALL),
    Row("a method that the protocol does not know", False, _MAYBE, kind=Kind.OTHER),
)  # fmt: skip
"""Every failed request fits a row. Whatever may have run is sent once more at the most; that is the door's business."""


def row_for(
    failure: RequestFailed, method: str, tool: dict[str, Any] | None, spec: ServerSpec, *, was_asked: bool = False
) -> Row:
    """The row that decides; `tool` is the server's own entry for the tool that a call names."""
    kind = Kind.READ if method in READ_ONLY else Kind.CALL if method == "tools/call" else Kind.OTHER
    hinted, allowed = spec.trust_hints and _says_harmless(tool), spec.replay_on_session_loss
    return next(
        row
        for row in ROWS
        if (row.outcome is None or row.outcome is failure.outcome)
        and (row.causes is None or failure.cause in row.causes)
        and (row.kind is None or row.kind is kind)
        and (row.is_hinted is None or row.is_hinted == hinted)
        and (row.is_allowed is None or row.is_allowed == allowed)
        and (row.was_asked is None or row.was_asked == was_asked)
    )


def busy_wait(failure: RequestFailed, waited: int) -> float | None:
    """Seconds after which to ask a busy server again, which surely has not done it; None where it does not say when.

    `waited` is how many times that was done before. Whether the caller has the time is the caller's to know.
    """
    if failure.cause != "busy" or failure.outcome is not Outcome.NOT_SENT or failure.retry_after_s is None:
        return None
    return max(failure.retry_after_s, BUSY_WAIT * 2.0**waited)


def may_replay(
    failure: RequestFailed, method: str, tool: dict[str, Any] | None, spec: ServerSpec, *, was_asked: bool = False
) -> bool:
    """Whether a request that failed like this may be sent again."""
    return row_for(failure, method, tool, spec, was_asked=was_asked).may_go_again


def _says_harmless(tool: dict[str, Any] | None) -> bool:
    hints = (tool or {}).get("annotations")
    return isinstance(hints, dict) and (hints.get("readOnlyHint") or hints.get("idempotentHint")) is True

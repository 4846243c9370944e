"""Owns what is shown of a server that answers its probes by refusing them: by which answer, to what, and since when."""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.status import ERRORS, NO_ROOM, REFUSES
from mcpvisor.supervisor.transports.http_outcome import status_line


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a server answers, in words that stay the same for as long as it answers the same."""

    text: str
    since: float
    """When it began to refuse, in monotonic seconds, be it in other words."""
    kind: tuple[str, object, int]


def refusal_of(failure: RequestFailed, method: str, before: Refusal | None, now: float) -> Refusal:
    """The refusal that `method` has met, as one with that which stood `before`; its words are kept where it is the same."""
    status = failure.data.get("http_status") if isinstance(failure.data, dict) else None
    kind = (failure.cause, status, failure.code)
    if before is not None and before.kind == kind:
        return before
    return Refusal(_text(failure, method, status), before.since if before is not None else now, kind)


def _text(failure: RequestFailed, method: str, status: object) -> str:
    # What follows the status may be another text each time, as the time until which to wait is.
    if failure.cause == "busy":
        said = f" was answered {status_line(status)}" if isinstance(status, int) else f": {failure.message}"
        return f"{NO_ROOM}{method}{said}"
    if failure.cause == "error_answer":
        return f"{ERRORS}{method} was answered {failure.code}: {failure.message}"
    return f"{REFUSES}{method}: {failure.message}"

"""Owns what the daemon does next for a server, and when: words by its state, and the time where there is one."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.evidence import Evidence
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.supervisor.spec import RestartRule
from mcpvisor.supervisor.states import BOUNDED, State
from mcpvisor.supervisor.status import Hindrance, ServerStatus

_NEXT: Final = {
    State.READY: "the daemon probes it when nothing was heard for {probe}",
    State.DEGRADED: "the daemon keeps the session, and tries again what is missing",
    State.STARTING: "the daemon waits for it to start, then {gives_up}",
    State.NEGOTIATING: "the daemon waits for the handshake, then {gives_up}",
    State.RESTORING: "calls are served; what is not read by then is read later, and the server called degraded",
    State.BACKOFF: "the daemon tries again by itself; a call wakes one try earlier",
    State.CRASH_LOOP: "the daemon makes one careful try every few minutes; an edit or an order wakes one at once, "
    "a call one earlier, but ever more rarely",
    State.AUTH_REQUIRED: "the daemon waits for other credentials, with a try now and then",
    State.FAILED: "the daemon looks again now and then whether it can be started",
    State.DRAINING: "the daemon ends it when its calls are done, and no later than its time to end allows",
    State.STOPPED: "nothing happens until `start`, or until the daemon's own next start",
    State.DISABLED: "nothing happens until it is enabled",
}

_ON_TRIAL: Final = "; this version is on trial: the former one runs again if it does not become ready in its time"


def what_next(evidence: Evidence) -> str:
    """What the daemon does next, without the time: that is `next_at`."""
    if evidence.removal is not None:
        return "the daemon removes it, unless the file of its entry comes back before; `mcpvisor reload` removes it at once"
    trial = _ON_TRIAL if evidence.on_trial and evidence.status.wanted == "running" else ""
    return _untried(evidence) + trial + _waiting(evidence)


def _waiting(evidence: Evidence) -> str:
    """What becomes of an edit that waits."""
    if evidence.waiting is None or evidence.spec is None:
        return ""
    return f"; the edit of its entry is applied as soon as {evidence.waiting['waits_for']} is corrected"


def _untried(evidence: Evidence) -> str:
    """The same but for what a trial of its version adds to it."""
    status, spec = evidence.status, evidence.spec
    if spec is None and evidence.waiting is not None:
        return f"it is started as soon as {evidence.waiting['waits_for']} is corrected"
    if spec is None:
        return "nothing until the entry is edited"
    if evidence.ended_by_policy:
        return f"nothing by itself: its restart policy is {evidence.ended_by_policy}"
    if evidence.missed is not None and status.state in (State.READY, State.DEGRADED):
        allowed = counted(evidence.missed.allowed, "missed probe")
        replaced = f"the daemon probes it again, and replaces it after {allowed} in a row"
        return f"{replaced}; none counts while a call is within its own time"
    if status.too_large:
        return "the daemon replaces it in good order if it still uses so much then (at most once in restart.stable_after)"
    if status.replacing and status.state in (State.READY, State.DEGRADED):
        return _of_replacement(status)
    if status.next_attempt is None and (awaited := _of_session(status)):
        return awaited
    if evidence.retry_after:
        return "the daemon tries again when the server asked it to (its Retry-After), and no earlier"
    match status.state:
        case State.STARTING if status.deadline is None:
            return "the daemon starts it when it is its turn among all starts"
        case State.BACKOFF if status.next_attempt is None:
            return "the daemon ends what is left of the last try, then waits a little and tries again"
        case State.FAILED if status.next_attempt is None:
            return "the daemon waits for an edit of the entry"
        case _:
            never = spec.restart.policy is RestartRule.NEVER
            gives_up = "ends it (its restart policy is never)" if never else "ends this try and makes another"
            return _NEXT[status.state].format(probe=seconds(spec.probe.interval), gives_up=gives_up)


def _of_session(status: ServerStatus) -> str:
    """What is waited for of a session, or of one that is on its way; empty where that has no time of its own."""
    if status.state is State.NEGOTIATING and status.asked_until is not None:
        return "if it is silent until then it is sent initialize, as servers of the older era want it"
    if status.hindrance is Hindrance.REFUSAL:
        again = "when the server asked it to (its Retry-After), and no earlier" if status.probe_asked_to_wait else "by itself"
        return f"the daemon keeps the session, and probes it again {again}"
    if status.lists_next is not None:
        again = "when the server asked it to (its Retry-After), and no earlier" if status.lists_asked_to_wait else "by itself"
        return f"the daemon keeps the session, and asks for the missing lists again {again}"
    return ""


def _of_replacement(status: ServerStatus) -> str:
    if status.next_attempt is not None:
        return "the daemon keeps the session that serves, and tries again to bring up the next one"
    if "(restart.prevent_codes)" in status.reason or "its restart policy is" in status.reason:
        return "the daemon keeps the session that serves, and brings up no other one until an edit or an order"
    return "the daemon keeps the session that serves until the next one is up, and goes on with that"


def next_at(evidence: Evidence) -> float | None:
    """When that is, in seconds since the epoch; None where it is bound to no time."""
    status = evidence.status
    if evidence.removal is not None:
        return evidence.removal["at"]
    if evidence.spec is None or evidence.ended_by_policy:
        return None
    if status.too_large:
        return status.recycled_at
    if status.state is State.NEGOTIATING and status.asked_until is not None:
        return status.asked_until
    if status.state in BOUNDED:
        return status.deadline
    if status.next_attempt is not None:
        return status.next_attempt
    return status.probe_next if status.hindrance is Hindrance.REFUSAL else status.lists_next

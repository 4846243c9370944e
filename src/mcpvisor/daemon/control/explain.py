"""Owns the answer to "why is this server as it is, and what happens next": a pure reading of what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mcpvisor.daemon.control.remedies import remedy_for
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.daemon.control.views import JsonObject, event_view, server_view
from mcpvisor.supervisor.events import (
    CatalogEntryDropped,
    ConnectEnded,
    Event,
    LogLevelAsked,
    MessageRefused,
    ProcessEnded,
    SessionLost,
    SessionOpened,
    StdoutNoise,
)
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus

EVENTS_SHOWN: Final = 20

_CONNECTING: Final = frozenset({State.STARTING, State.NEGOTIATING, State.RESTORING})


_CONNECTS: Final = (
    "the daemon gives it {start} to get ready (longer after a start that timed out), then ends this try and makes another"
)

_NEXT: Final = {
    "ready": "the daemon probes it when nothing was heard for {probe}",
    "degraded": "the daemon keeps the session, and tries again what is missing",
    "starting": _CONNECTS,
    "negotiating": _CONNECTS,
    "restoring": _CONNECTS,
    "backoff": "the daemon tries again by itself; a call wakes one try earlier",
    "backoff soon": "the daemon ends what is left of the last try, then waits a little and tries again",
    "crash_loop": "the daemon makes one careful try every few minutes; a call, an edit or an order wakes one earlier",
    "auth_required": "the daemon waits for other credentials, with a try now and then",
    "failed": "the daemon looks again now and then whether it can be started",
    "failed for good": "the daemon waits for an edit of the entry",
    "draining": "the daemon ends it when its calls are done, at the latest after {drain}",
    "stopped": "nothing happens until `start`, or until the daemon's own next start",
    "disabled": "nothing happens until it is enabled",
}
"""What the daemon does next, by state; for two states it depends on whether the next try has its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one server. `history` is oldest first, `stderr` the newest lines of its tail."""

    status: ServerStatus
    spec: ServerSpec | None
    """None where the entry is not valid as it is written."""
    history: Sequence[Event] = ()
    stderr: Sequence[str] = ()
    stderr_dropped: int = 0
    """Lines of stderr that were over the rate."""
    conflicts: Sequence[str] = ()
    """URIs that another server claims as well, in words."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What the history adds up to."""

    cause: str
    """The cause of the newest failure, empty where there was none since the server was last ready."""
    ends: int
    """Ends of processes that nobody asked for."""
    first_end: float | None
    noise: int
    drops: tuple[CatalogEntryDropped, ...] = field(default=())
    log_level: str = ""
    """Which log level the present session does not take, and why; empty where it takes all."""


def explain(evidence: Evidence, now: float) -> JsonObject:
    """The explanation of one server as plain data; `now` in seconds since the epoch.

    `what` says what is wrong, `next` what the daemon will do and when (`next_at`), `remedy` what an operator can do.
    """
    status, signs, flood = evidence.status, read_signs(evidence.history), evidence.stderr_dropped
    return {
        "server": server_view(status),
        "state": status.state.value,
        "reason": status.reason,
        "since": status.since,
        "now": now,
        "what": _what(status, signs, flood, now),
        "next": _next(status, evidence.spec),
        "next_at": _next_at(status, evidence.spec),
        "remedy": remedy_for(status, signs.cause, flooding=flood > 0, silent=not evidence.stderr),
        "cause": signs.cause,
        "last_exit": status.last_exit,
        "events": [event_view(event) for event in evidence.history[-EVENTS_SHOWN:]],
        "stderr": list(evidence.stderr),
        "stderr_dropped": flood,
        "stdout_noise": signs.noise,
        "catalog_drops": [{"kind": drop.kind, "entry": drop.entry, "why": drop.why} for drop in signs.drops],
        "uri_conflicts": list(evidence.conflicts),
        "origin": status.origin,
        "wanted": status.wanted,
        "wanted_by": status.wanted_by,
    }


def read_signs(history: Sequence[Event]) -> Signs:
    """Count and class what happened, oldest first."""
    cause, noise, log_level = "", 0, ""
    ends: list[float] = []
    drops: dict[tuple[str, str], CatalogEntryDropped] = {}
    for event in history:
        match event:
            case ConnectEnded(outcome="ready"):
                cause = ""
            case ConnectEnded(outcome=outcome):
                cause = outcome
            case SessionLost(cause=lost):
                cause = lost
            case MessageRefused(reason=reason):
                cause = cause or f"refused_{reason}"
            case ProcessEnded(wanted=False):
                ends.append(event.at)
                cause = cause or "process_exited"
            case StdoutNoise():
                noise = event.count
            case CatalogEntryDropped():
                drops[event.kind, event.entry] = event
            case SessionOpened():
                log_level = ""
            case LogLevelAsked(level=level, why=why):
                log_level = f"{level} ({why})" if why else ""
            case _:
                pass
    return Signs(cause, len(ends), ends[0] if ends else None, noise, tuple(drops.values()), log_level)


def uri_conflicts(name: str, offers: Mapping[str, Offer]) -> list[str]:
    """The URIs of a server that others claim too; on the common endpoint the first server in name order owns each."""
    claims: dict[str, list[str]] = {}
    for server in sorted(offers):
        for resource in offers[server].resources:
            claims.setdefault(str(resource.get("uri")), []).append(server)
    return [
        f"{uri} is also offered by {', '.join(one for one in servers if one != name)}; "
        f"on /mcp it is {servers[0]}'s, at /mcp/{name} this server's own"
        for uri, servers in claims.items()
        if name in servers and len(set(servers)) > 1
    ]


def _what(status: ServerStatus, signs: Signs, flood: int, now: float) -> str:
    name, reason = status.name, f": {status.reason}" if status.reason else ""
    match status.state:
        case State.READY:
            return f"{name} is ready{_blemishes(signs, flood)}"
        case State.DEGRADED:
            return f"{name} answers calls, but not all is well{reason}{_blemishes(signs, flood)}"
        case State.STARTING | State.NEGOTIATING | State.RESTORING:
            doing = {
                State.STARTING: "is being started",
                State.NEGOTIATING: "has not finished the handshake",
                State.RESTORING: "is connected, and its lists are being read",
            }[status.state]
            return f"{name} {doing}, for {seconds(now - status.since)} now{reason}"
        case State.BACKOFF:
            return f"{name} is down{reason}{_last_exit(status)}"
        case State.CRASH_LOOP:
            span = f" in {seconds(now - signs.first_end)}" if signs.first_end is not None else ""
            count = f" ({signs.ends} ends{span})" if signs.ends else ""
            return f"{name} keeps ending{count}{reason}{_last_exit(status)}"
        case State.AUTH_REQUIRED:
            return f"{name} refuses the credentials it was given{reason}"
        case State.FAILED:
            return f"{name} cannot work as its entry is written{reason}"
        case State.DRAINING:
            return f"{name} is ending in good order; {status.in_flight} calls may still finish{reason}"
        case State.STOPPED:
            return f"{name} was stopped{reason or f' by {status.wanted_by}'}"
        case State.DISABLED:
            return f"{name} is disabled{reason or f' by {status.wanted_by}'}"


def _next(status: ServerStatus, spec: ServerSpec | None) -> str:
    if spec is None:
        return "nothing until the entry is edited"
    """What the daemon does next, without the time: that is `next_at`."""
    key = status.state.value
    if status.state in (State.BACKOFF, State.FAILED) and status.next_attempt is None:
        key += " for good" if status.state is State.FAILED else " soon"
    times = {"probe": spec.probe.interval, "start": spec.start_timeout, "drain": spec.drain}
    return _NEXT[key].format(**{name: seconds(duration) for name, duration in times.items()})


def _next_at(status: ServerStatus, spec: ServerSpec | None) -> float | None:
    if spec is None:
        return None
    """When that is, in seconds since the epoch; None where it is bound to no time."""
    if status.next_attempt is not None:
        return status.next_attempt
    if status.state in _CONNECTING:
        return status.since + spec.start_timeout
    return status.since + spec.drain if status.state is State.DRAINING else None


def _blemishes(signs: Signs, flood: int) -> str:
    said: list[str] = []
    if flood:
        said.append(f"it floods stderr ({flood} lines over the rate were dropped)")
    if signs.noise:
        said.append(f"it writes to stdout what is no message ({signs.noise} lines)")
    if signs.drops:
        said.append(f"{len(signs.drops)} entries of its lists are left out or repaired")
    if signs.log_level:
        said.append(f"it does not take the log level {signs.log_level}")
    return f", but {', '.join(said)}" if said else ""


def _last_exit(status: ServerStatus) -> str:
    return f"; its last process {status.last_exit}" if status.last_exit and status.last_exit not in status.reason else ""

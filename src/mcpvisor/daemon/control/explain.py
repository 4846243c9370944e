"""Owns the answer to "why is this server as it is, and what happens next": a pure reading of what is known of it."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.config.problems import Rejection
from mcpvisor.daemon.control import not_in_force
from mcpvisor.daemon.control.counts import counted
from mcpvisor.daemon.control.evidence import Evidence
from mcpvisor.daemon.control.prospects import next_at, what_next
from mcpvisor.daemon.control.remedies import remedy_for
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.daemon.control.views import JsonObject, event_view, line_view, server_view, subscription_view
from mcpvisor.supervisor.signs import Signs
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import Hindrance, ServerStatus

EVENTS_SHOWN: Final = 20

_EXCERPT: Final = 60
"""Characters of a line on stdout that the first line shows; below it stands whole."""

_DOING: Final = {
    State.STARTING: "is being started",
    State.NEGOTIATING: "has not finished the handshake",
    State.RESTORING: "is connected, and its lists are being read",
}


def explain(evidence: Evidence, now: float) -> JsonObject:
    """The explanation of one server as plain data; `now` in seconds since the epoch.

    `what` says what is wrong, `next` what the daemon will do and when (`next_at`), `remedy` what an operator can do.
    """
    status, signs = evidence.status, evidence.signs
    return {
        "server": server_view(status),
        "state": status.state.value,
        "reason": status.reason,
        "since": status.since,
        "state_seconds": status.state_seconds,
        "now": now,
        "what": _not_yet(evidence) or _what(evidence, signs, now) + _rejected(evidence) + _on_its_way(evidence),
        "next": what_next(evidence),
        "next_at": next_at(evidence),
        "remedy": remedy_for(evidence, signs),
        "cause": signs.cause,
        "last_exit": status.last_exit,
        "events": [*evidence.earlier, *map(event_view, evidence.history)][-EVENTS_SHOWN:],
        "stderr": [line_view(line) for line in evidence.stderr],
        "stderr_dropped": evidence.stderr_dropped,
        "stdout_noise": signs.noise,
        "stdout_excerpt": signs.excerpt,
        "catalog_drops": [{"kind": drop.kind, "entry": drop.entry, "why": drop.why} for drop in signs.drops],
        "subscriptions": [subscription_view(one) for one in evidence.subscriptions],
        "unwanted_updates": evidence.strangers,
        "uri_conflicts": list(evidence.conflicts),
        "rejected": list(evidence.rejections),
        "waiting": evidence.waiting,
        "removal": evidence.removal,
        "origin": status.origin,
        "wanted": status.wanted,
        "wanted_by": status.wanted_by,
    }


def _what(evidence: Evidence, signs: Signs, now: float) -> str:
    status = evidence.status
    name, reason = status.name, f": {status.reason}" if status.reason else ""
    if evidence.ended_by_policy:
        return f"{name} has ended and is not started again{reason}{_last_exit(status)}{_noise(signs)}"
    match status.state:
        case State.READY | State.DEGRADED if evidence.missed is not None and not status.is_barred:
            return f"{name} {_deafness(evidence)}{_blemishes(evidence, signs)}"
        case State.READY:
            return f"{name} is ready{reason}{_crowd(status)}{_blemishes(evidence, signs)}"
        case State.DEGRADED:
            reason += _for_how_long(status, now) + _crowd(status)
            return f"{name} {_unwell(status)}{reason}{_blemishes(evidence, signs)}"
        case State.STARTING | State.NEGOTIATING | State.RESTORING:
            doing = f"{name} {_DOING[status.state]}, for {seconds(status.state_seconds)} now"
            return f"{doing}{_unanswered(status, now) or reason}{_noise(signs)}"
        case State.BACKOFF:
            return f"{name} is down{_page(evidence)}{reason}{_last_exit(status)}{_noise(signs)}"
        case State.CRASH_LOOP:
            span = f" in {seconds(signs.ends_seconds)}" if signs.ends_seconds is not None else ""
            count = f" ({counted(signs.ends, 'end')}{span})" if signs.ends else ""
            return f"{name} keeps ending{count}{_page(evidence)}{reason}{_last_exit(status)}{_noise(signs)}"
        case State.AUTH_REQUIRED:
            return f"{name} {'has no credentials' if signs.is_penniless else 'refuses the credentials it was given'}{reason}"
        case State.FAILED:
            return f"{name} cannot work as its entry is written{reason}"
        case State.DRAINING:
            return f"{name} is ending in good order; {counted(status.in_flight, 'call')} may still finish{reason}"
        case State.STOPPED | State.DISABLED:
            rest = "was stopped" if status.state is State.STOPPED else "is disabled"
            return f"{name} {rest}{reason or f' by {status.wanted_by}'}"


def _unanswered(status: ServerStatus, now: float) -> str:
    """What a handshake waits for."""
    if status.state is not State.NEGOTIATING or status.asked_at is None:
        return ""
    return f": it was sent {status.asked} {seconds(now - status.asked_at)} ago and has not answered"


def _unwell(status: ServerStatus) -> str:
    if status.lacks_credentials:
        return "keeps its session, but there is nothing to send a call with"
    if status.has_refused_credentials:
        return "keeps its session, but the server refuses the credentials it is given"
    if status.hindrance is Hindrance.REFUSAL:
        return "keeps its session, but the server refuses what it is asked"
    if status.hindrance is Hindrance.SILENCE:
        return "keeps its session, but does not answer probes"
    return "answers calls, but not all is well"


def _crowd(status: ServerStatus) -> str:
    """That calls wait for others, and what bounds them."""
    if not status.queued:
        return ""
    others = f"{status.queued} more {'waits' if status.queued == 1 else 'wait'}"
    return f"; it works on {counted(status.in_flight, 'call')}, and {others} for a place (concurrency, queue)"


def _for_how_long(status: ServerStatus, now: float) -> str:
    """Since when it refuses what it is asked; what it has said to that was in its reason."""
    if status.hindrance is not Hindrance.REFUSAL or status.refused_since is None:
        return ""
    return f"; so for {seconds(now - status.refused_since)} now"


def _deafness(evidence: Evidence) -> str:
    missed, calls = evidence.missed, evidence.status.in_flight
    assert missed is not None
    count = f"{missed.misses} of {missed.allowed} missed in a row" if missed.misses else "it may be busy with its calls"
    wait = "waits" if calls == 1 else "wait"
    waiting = f"; {counted(calls, 'call')} {wait} for it" if calls else ""
    return f"does not answer probes ({count}){waiting}"


def _page(evidence: Evidence) -> str:
    return ", it answered with a web page, not MCP" if "text/html" in evidence.status.reason and evidence.is_http else ""


def _rejected(evidence: Evidence) -> str:
    """What is written now and not in force, which is not what the server runs."""
    if evidence.spec is None or not evidence.rejections:
        return ""
    first, *more = evidence.rejections
    rest = f" (and {counted(len(more), 'further error')})" if more else ""
    return f"; {_subject(first)}: {not_in_force.rejected(first)}{rest}"


def _subject(one: Rejection) -> str:
    """What was rejected of a server that runs."""
    if one.get("needs"):
        return f"what its entry names cannot be used as it is now ({one['needs']})"
    if one["server"]:
        return (
            "its entry was edited and rejected" if one.get("keeps_running", True) else "another entry of its name is not used"
        )
    is_line = one["where"].rpartition(":")[2].isdecimal()
    return "the file of its entry was edited and rejected" if is_line else "the file of its entry cannot be used as it is now"


def _not_yet(evidence: Evidence) -> str:
    """Why a new entry is no server yet, though nothing is wrong with it; empty for all others."""
    if evidence.spec is not None or evidence.waiting is None:
        return ""
    return f"{evidence.status.name} does not run yet: {not_in_force.waiting(evidence.waiting)}"


def _on_its_way(evidence: Evidence) -> str:
    """What is written now and will be in force by itself, sooner or later."""
    if evidence.spec is None:
        return ""
    said = f"; an edit of its entry waits: {not_in_force.waiting(evidence.waiting)}" if evidence.waiting is not None else ""
    return said + (f"; {not_in_force.removal(evidence.removal)}" if evidence.removal is not None else "")


def _blemishes(evidence: Evidence, signs: Signs) -> str:
    said: list[str] = []
    if signs.denied:
        said.append(f"it denies its credentials some of the calls ({signs.denied})")
    if evidence.status.too_large:
        said.append(evidence.status.too_large)
    if flood := evidence.stderr_dropped:
        was = "was" if flood == 1 else "were"
        said.append(f"it floods stderr ({counted(flood, 'line')} over the rate {was} dropped)")
    if signs.noise:
        said.append(f"it writes to stdout what is no message ({counted(signs.noise, 'line')}, such as {_excerpt(signs)})")
    if drops := signs.dropped:
        said.append(f"{counted(drops, 'entry', 'entries')} of its lists {'is' if drops == 1 else 'are'} left out or repaired")
    if signs.log_level:
        said.append(f"it does not take the log level {signs.log_level}")
    return f", but {', '.join(said)}" if said else ""


def _noise(signs: Signs) -> str:
    return f"; it wrote to stdout what is no message, such as {_excerpt(signs)}" if signs.noise else ""


def _excerpt(signs: Signs) -> str:
    text = signs.excerpt
    return repr(text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "\u2026")


def _last_exit(status: ServerStatus) -> str:
    """How its process ended, where that is why the server is as it is: unasked, and of no other generation."""
    is_cause = status.last_exit_generation == status.generation and not status.last_exit_wanted
    if not status.last_exit or not is_cause or status.last_exit in status.reason:
        return ""
    return f"; its last process {status.last_exit}"

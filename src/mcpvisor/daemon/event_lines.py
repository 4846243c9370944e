"""Owns the log lines of the supervisor's events: for each event its level and one sentence that an operator can act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcpvisor.daemon.local_time import iso_time
from mcpvisor.daemon.redaction import clean, clean_text
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor import host_events
from mcpvisor.supervisor.cleaning import marked
from mcpvisor.supervisor.states import State

Emit = Callable[[str, str, dict[str, Any]], None]
"""Level, message, fields; both cleaned of secrets."""
Line = tuple[str, str, dict[str, Any]]

_STATE_LEVELS: Final = {
    State.READY: "info",
    State.STOPPED: "info",
    State.DISABLED: "info",
    State.DEGRADED: "warning",
    State.BACKOFF: "warning",
    State.CRASH_LOOP: "error",
    State.AUTH_REQUIRED: "error",
    State.FAILED: "error",
}
"""The states on the way from one to another are for debugging; those that last are news."""


class EventLines:
    """An inline subscriber of the event bus that hands one line for each telling event to `emit`.

    Samples, counts and answered probes are numbers, not news, and have none. Params of notifications are a server's own and are
    never written.
    """

    def __init__(self, emit: Emit, is_shown: Callable[[str], bool] = lambda _level: True) -> None:
        self._emit = emit
        self._is_shown = is_shown

    def __call__(self, event: ev.Event) -> None:
        """Write the line of one event."""
        if isinstance(event, ev.StderrWritten):
            self._stderr(event)
            return
        teller = _TELLERS.get(type(event))
        if teller is None:
            return
        level, message, fields = teller(event)
        if self._is_shown(level):
            self._write(level, message, event, fields)

    def _stderr(self, event: ev.StderrWritten) -> None:
        if event.dropped:
            told = f"{event.server}: {event.dropped} lines of stderr over the rate were dropped"
            self._write("warning", told, event, {"dropped": event.dropped})
        if self._is_shown("info"):
            for line in event.lines:
                self._write("info", f"{event.server}: stderr: {line}", event, {})

    def _write(self, level: str, message: str, event: ev.Event, fields: dict[str, Any]) -> None:
        own: dict[str, Any] = {"mcp_event": type(event).__name__}
        if isinstance(event, ev.ServerEvent):
            own["server"] = event.server
        self._emit(level, marked(clean_text(message)), {**own, **clean(fields)})


def _state_changed(event: ev.ServerStateChanged) -> Line:
    parts = [f"{event.server}: {event.new.value}"]
    if event.old is not event.new:
        parts[0] = f"{event.server}: {event.old.value} -> {event.new.value}"
    if event.reason:
        parts.append(f": {event.reason}")
    if event.next_attempt is not None:
        clock = iso_time(event.next_attempt)
        parts.append(f"; next attempt at {clock}")
    fields = {"old": event.old.value, "new": event.new.value, "reason": event.reason, "next_attempt": event.next_attempt}
    return _STATE_LEVELS.get(event.new, "debug"), "".join(parts), fields


def _process_ended(event: ev.ProcessEnded) -> Line:
    how = f"signal {event.signal}" if event.signal is not None else f"exit code {event.exit_code}"
    fields = {"pid": event.pid, "exit_code": event.exit_code, "signal": event.signal, "generation": event.generation}
    level = "info" if event.wanted else "warning"
    why = "as wanted" if event.wanted else "unasked"
    kernel = f", by the kernel: {event.why}" if event.why else ""
    return level, f"{event.server}: process {event.pid} ended {why} after {event.seconds:.1f} s: {how}{kernel}", fields


def _connect_ended(event: ev.ConnectEnded) -> Line:
    fields = {"outcome": event.outcome, "seconds": event.seconds, "generation": event.generation}
    if event.outcome == "ready":
        return "debug", f"{event.server}: connected in {event.seconds:.2f} s", fields
    return "warning", f"{event.server}: connect failed after {event.seconds:.2f} s: {event.outcome}", fields


def _session_opened(event: ev.SessionOpened) -> Line:
    who = event.implementation or "a server that does not say its name"
    told = f"{event.server}: session with {who}, {event.era} protocol {event.protocol_version}"
    return "info", told, {"era": event.era, "generation": event.generation, "seconds": event.seconds}


def _probe_missed(event: ev.ProbeMissed) -> Line:
    if not event.misses:
        return "warning", f"{event.server}: a probe was not answered, which does not count while calls are in flight", {}
    return "warning", f"{event.server}: probe {event.misses} of {event.allowed} not answered", {}


def _session_lost(event: ev.SessionLost) -> Line:
    told = f"{event.server}: session lost: {event.cause}" + (f" ({event.detail})" if event.detail else "")
    return "warning", told, {"cause": event.cause, "generation": event.generation}


def _updated(event: ev.ServerUpdated) -> Line:
    told = f"{event.server}: new configuration ({', '.join(event.fields)}): {event.change}"
    return "info", told, {"change": event.change, "changed": event.fields}


def _rolled_back(event: host_events.VersionRolledBack) -> Line:
    told = f"{event.server}: rolled back to the version of {iso_time(event.former_at)}: {event.origin}: {event.reason}"
    return "error", told, {"origin": event.origin, "reason": event.reason, "former_at": event.former_at}


def _log_level_asked(event: ev.LogLevelAsked) -> Line:
    fields = {"log_level": event.level}
    if event.why:
        return "warning", f"{event.server}: does not take the log level {event.level}: {event.why}", fields
    return "info", f"{event.server}: takes the log level {event.level} now", fields


def _store_replaced(event: host_events.StateStoreReplaced) -> Line:
    kept = f"; the former one is kept as {event.aside}" if event.aside else ""
    known = "all that is known is written anew"
    if event.forgotten:
        known = (
            "what it held is lost: servers that were disabled run, clients initialise anew, and events not yet handled are gone"
        )
    fields = {"reason": event.reason, "aside": event.aside, "forgotten": event.forgotten}
    return "error", f"a new state file is begun: {event.reason}{kept}; {known}", fields


def _clock_jumped(event: ev.ClockJumped) -> Line:
    fields = {"seconds": event.seconds, "asleep": event.asleep}
    if event.asleep:
        return "warning", f"the machine has slept for {event.asleep:.0f} s: every session is probed", fields
    way = "ahead" if event.seconds > 0 else "back"
    return "warning", f"the wall clock has jumped {abs(event.seconds):.0f} s {way}: every session is probed", fields


def _credentials_refreshed(event: ev.CredentialsRefreshed) -> Line:
    fields = {"source": event.source, "expires_at": event.expires_at}
    if event.expires_at is None:
        return "info", f"{event.server}: has credentials ({event.source})", fields
    clock = iso_time(event.expires_at)
    return "info", f"{event.server}: has credentials until {clock} ({event.source})", fields


def _credentials_failed(event: ev.CredentialsFailed) -> Line:
    level = "error" if event.cause == "auth" else "warning"
    told = f"{event.server}: no credentials: {event.detail}; not asked for again within {event.retry_in:.0f} s"
    return level, told, {"cause": event.cause, "retry_in": event.retry_in}


def _credentials_dropped(event: ev.CredentialsDropped) -> Line:
    why = "the server has refused them" if event.cause == "refused" else "its entry changed"
    return "info", f"{event.server}: its fetched credentials are used no more: {why}", {"cause": event.cause}


def _subscription_asked(event: ev.SubscriptionAsked) -> Line:
    fields = {"uri": event.uri, "state": event.state, "why": event.why, "next_retry": event.next_retry}
    if event.why:
        return "warning", f"{event.server}: changes of {event.uri!r} do not reach us: {event.why}", fields
    return "info", f"{event.server}: changes of {event.uri!r} reach us now ({event.state})", fields


def _subscriptions_restored(event: ev.SubscriptionsRestored) -> Line:
    wanted = sum(event.counts.values())
    lost = wanted - event.counts.get("active", 0) - event.counts.get("polled", 0)
    told = f"{event.server}: {wanted - lost} of {wanted} subscriptions restored"
    return "warning" if lost else "info", told, {"generation": event.generation, "counts": event.counts}


def _question_asked(event: ev.QuestionAsked) -> Line:
    whose = {"nobody": "for nobody's call", "ambiguous": "while several clients call"}.get(event.belongs, "")
    if not whose:
        whose = f"for a call of {event.principal}" if event.tool is None else f"for {event.tool!r}, called by {event.principal}"
    fields = {"method": event.method, "belongs": event.belongs, "principal": event.principal, "tool": event.tool}
    return "debug", f"{event.server}: asks {event.method} {whose}", fields


def _question_answered(event: ev.QuestionAnswered) -> Line:
    level = "warning" if event.outcome == "failed" else "debug"  # the desk tells of each, with more
    fields = {"method": event.method, "outcome": event.outcome, "by": event.by, "seconds": event.seconds}
    return level, f"{event.server}: {event.method}: {event.outcome} after {event.seconds:.1f} s", fields


def _question_put(event: host_events.QuestionPut) -> Line:
    fields = {
        "audit": True,
        "question": event.id,
        "method": event.method,
        "mode": event.mode,
        "tool": event.tool,
        "whom": event.whom,
        "principal": event.principal,
        "properties": event.properties,
    }
    of = f" of {event.tool}" if event.tool else ""
    waits = f"; answer it with `mcpvisor elicitations answer {event.id}`" if event.whom == "operator" else ""
    return (
        "info",
        f"{event.server}: a question{of} ({_kind(event.method, event.mode)}) is put to the {event.whom}{waits}",
        fields,
    )


def _question_settled(event: host_events.QuestionSettled) -> Line:
    fields = {
        "audit": True,
        "question": event.id,
        "method": event.method,
        "mode": event.mode,
        "tool": event.tool,
        "by": event.by,
        "action": event.action,
        "properties": event.properties,
        "seconds": event.seconds,
        "why": event.why,
    }
    why = f": {event.why}" if event.why else ""
    told = f"{event.server}: a question ({_kind(event.method, event.mode)}): {event.action} by {event.by}{why}"
    return "warning" if event.why else "info", told, fields


def _kind(method: str, mode: str) -> str:
    return f"elicitation, {mode}" if mode else method


def _gave_up(event: host_events.HandlerGaveUp) -> Line:
    many = "1 event has become a dead letter" if event.count == 1 else f"{event.count} events have become dead letters"
    return "error", f"handler {event.handler}: {many}: {event.why}", {"handler": event.handler, "count": event.count}


def _noise(event: ev.StdoutNoise) -> Line:
    return "warning", f"{event.server}: stdout is not JSON-RPC: {event.excerpt}", {}


_TELLERS: Final[dict[type[ev.Event], Callable[[Any], Line]]] = {
    ev.ServerAdded: lambda e: ("info", f"{e.server}: under supervision ({e.transport})", {"required": e.required}),
    ev.ServerRemoved: lambda e: ("info", f"{e.server}: no longer under supervision", {}),
    ev.ServerUpdated: _updated,
    host_events.VersionRolledBack: _rolled_back,
    ev.ServerStateChanged: _state_changed,
    ev.ServerRestarted: lambda e: (
        "info",
        f"{e.server}: generation {e.generation} begins: {e.reason}",
        {"generation": e.generation, "reason": e.reason},
    ),
    ev.ConnectEnded: _connect_ended,
    ev.ProcessStarted: lambda e: ("info", f"{e.server}: process {e.pid} runs", {"pid": e.pid, "generation": e.generation}),
    ev.LimitsNotEnforced: lambda e: (
        "warning",
        f"{e.server}: runs without its limits of {', '.join(e.limits)}: {e.why}",
        {"limits": e.limits, "why": e.why},
    ),
    ev.ProcessEnded: _process_ended,
    ev.ProcessStuck: lambda e: (
        "error",
        f"{e.server}: process {e.pid} hangs in the kernel and outlives SIGKILL; nobody waits for it any more",
        {"pid": e.pid},
    ),
    ev.SessionOpened: _session_opened,
    ev.SessionLost: _session_lost,
    ev.ProbeMissed: _probe_missed,
    ev.CatalogChanged: lambda e: ("info", f"{e.server}: offers {e.count} {e.kind}", {"kind": e.kind, "count": e.count}),
    ev.CatalogEntryDropped: lambda e: (
        "warning",
        f"{e.server}: {e.kind}: {e.entry!r} left out or repaired: {e.why}",
        {"kind": e.kind},
    ),
    ev.LogLevelAsked: _log_level_asked,
    ev.CredentialsRefreshed: _credentials_refreshed,
    ev.CredentialsFailed: _credentials_failed,
    ev.AccessDenied: lambda e: ("warning", f"{e.server}: access denied: {e.detail}", {"count": e.count}),
    ev.CredentialsDropped: _credentials_dropped,
    ev.ResourceUpdated: lambda e: (
        "debug",
        f"{e.server}: {e.uri!r} {'may have changed' if e.reason == 'resync' else 'has changed'} ({e.reason})",
        {"uri": e.uri, "reason": e.reason},
    ),
    ev.SubscriptionAsked: _subscription_asked,
    ev.SubscriptionsRestored: _subscriptions_restored,
    host_events.QuestionPut: _question_put,
    host_events.QuestionSettled: _question_settled,
    ev.ServerNotified: lambda e: ("debug", f"{e.server}: notified {e.method}", {}),
    ev.InstanceStarted: lambda e: ("info", f"{e.server}: {e.label} begins, for {e.client}", {"label": e.label}),
    ev.InstanceEnded: lambda e: ("info", f"{e.server}: {e.label} of {e.client} is ended: {e.why}", {"label": e.label}),
    ev.QuestionAsked: _question_asked,
    ev.QuestionAnswered: _question_answered,
    ev.StdoutNoise: _noise,
    ev.MessageRefused: lambda e: ("warning", f"{e.server}: message refused ({e.reason}): {e.detail}", {"reason": e.reason}),
    ev.OperatorOrdered: lambda e: ("info", f"{e.server}: {e.order}, ordered by {e.who}", {"order": e.order, "who": e.who}),
    ev.ClockJumped: _clock_jumped,
    ev.OrphansSwept: lambda e: ("warning", f"{e.count} processes of a former run were found and ended", {"count": e.count}),
    host_events.StateStoreDegraded: lambda e: (
        "error",
        f"the state store is degraded, what is new is kept in memory only: {e.reason}",
        {"reason": e.reason},
    ),
    host_events.StateStoreRecovered: lambda e: (
        "info",
        f"the state store is written again, after {e.seconds:.0f} s; {e.lost} events are not in the journal",
        {"lost": e.lost},
    ),
    host_events.StateStoreReplaced: _store_replaced,
    host_events.HandlerCircuitOpened: lambda e: (
        "error",
        f"handler {e.handler}: {e.failures} failures in a row, it is left alone until {iso_time(e.next_try)}: {e.why}",
        {"handler": e.handler, "failures": e.failures, "next_try": e.next_try},
    ),
    host_events.HandlerCircuitClosed: lambda e: (
        "info",
        f"handler {e.handler}: takes events again, after {e.seconds:.0f} s",
        {"handler": e.handler, "seconds": e.seconds},
    ),
    host_events.HandlerGaveUp: _gave_up,
    host_events.HandlersFlooded: lambda e: (
        "warning",
        f"events came faster than they could be routed: {e.count} have reached no handler",
        {"count": e.count},
    ),
    ev.GuardianLost: lambda _: ("warning", "the guardian has ended; another one is started", {}),
}

"""Owns what an operator is advised to do, by the state of a server and the cause of its newest failure."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.control.evidence import Evidence
from mcpvisor.supervisor.signs import Signs
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import NO_ROOM, Hindrance, ServerStatus
from mcpvisor.supervisor.subscriptions.standing import SubscriptionState

_BY_CAUSE: Final = {
    "start_timeout": (
        "it runs but does not answer: run its command by hand and send it an initialize, read its stderr below; "
        "if it is only slow, raise start_timeout in {origin}"
    ),
    "no_such_program": (
        "install the program, or write its full path as `command` in {origin} (the daemon's PATH is not your shell's)"
    ),
    "permission": "make the program executable and readable for the daemon's user, or correct `command` in {origin}",
    "bad_cwd": "make the folder named by `cwd` in {origin}, or correct it",
    "protocol": "what it says is not MCP: check `command`, `args` and `era` in {origin}",
    "version_mismatch": "it speaks no version of the protocol that is spoken here: update it, or check `era` in {origin}",
    "process_exited": "its last words on stderr are below; correct what they complain of",
    "stdout_closed": "it closed its stdout but lived on: its last words on stderr are below",
    "stream_failed": "it closed its stdin but lived on: its last words on stderr are below",
    "probe": "it stopped answering and was replaced: its last words on stderr are below",
    "refused_size": "it sent a message over the limit: raise max_message in {origin}, or ask it for less",
    "internal": "the fault is the daemon's own: its log has the details",
}

_BY_HTTP_CAUSE: Final = {
    "start_timeout": (
        "look at that server's own log, and whether `url` in {origin} is its MCP endpoint; "
        "if it is only slow, raise start_timeout in {origin}"
    ),
    "no_answer": (
        "it accepted the connection and gave no answer: look at that server's own log, "
        "and whether `url` in {origin} is its MCP endpoint"
    ),
    "connect_failed": "check that the server runs and that `url` in {origin} is right",
    "auth": "give it valid credentials (`auth` or `headers` in {origin})",
    "auth_unavailable": "look at why its credentials cannot be fetched: the reason names their source (`auth` in {origin})",
    "protocol": "what it answers is not MCP: check `url`, `transport` and `era` in {origin}",
    "version_mismatch": _BY_CAUSE["version_mismatch"],
    "not_mcp": "what it answers is not MCP: check `url` in {origin}",
    "not_found": "there is no MCP endpoint at that path, or not any more: check the path of `url` in {origin}",
    "redirect": "write the address that it leads to as `url` in {origin}, if that is the right one",
    "http_refused": "look at that server's own log for why it refuses; check `url` and `headers` in {origin}",
    "server_error": "the fault is the server's, or a proxy's before it: look at their logs",
    "occupied": (
        "somebody else holds the session that it has room for (another client of it, or a daemon that was killed): "
        "end that one, or restart that server"
    ),
    "busy": "it is overloaded or limits its clients: look at its own log, and at proxies before it",
    "session_lost": "the server forgot the session, as one that was restarted does; nothing to do unless it goes on",
    "stream_failed": "the connection broke: look at the server's own log and at proxies between",
    "probe": "it stopped answering: look at that server's own log",
    "refused_size": _BY_CAUSE["refused_size"],
    "internal": _BY_CAUSE["internal"],
}

_BY_STATE: Final = {
    State.READY: "nothing",
    State.DEGRADED: "look at the events below; `mcpvisor restart {name}` makes a fresh session",
    State.STARTING: "wait; its stderr is in `mcpvisor logs {name}`",
    State.NEGOTIATING: "wait; if it never answers, read its stderr below, run its command by hand, and check `era` in {origin}",
    State.RESTORING: "wait; calls are served already",
    State.DRAINING: "wait",
    State.BACKOFF: "look at the events and the stderr below",
    State.CRASH_LOOP: "read its stderr below",
    State.AUTH_REQUIRED: "give it valid credentials (`auth` or `headers` in {origin}), then `mcpvisor reload`",
    State.FAILED: "correct {origin}, then `mcpvisor reload`",
    State.STOPPED: "`mcpvisor start {name}`",
    State.DISABLED: "`mcpvisor enable {name}`",
}

_BY_HTTP_STATE: Final = {
    State.STARTING: "wait",
    State.NEGOTIATING: "wait; if it never answers, look at that server's own log, and check `url` and `era` in {origin}",
    State.BACKOFF: "look at the events below, and at that server's own log",
    State.CRASH_LOOP: "look at the events below, and at that server's own log",
}
"""Where the advice differs for a server that is no process of ours."""

_PLAIN: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL says of an answer that is no TLS at all."""

_SETTLED: Final = frozenset({State.READY, State.STARTING, State.RESTORING, State.DRAINING, State.STOPPED, State.DISABLED})
"""States in which an earlier failure is history, or its advice would be wrong."""

_OFF_STDOUT: Final = "make it write to stderr what it writes to stdout besides messages (a banner, a debug print)"


def remedy_for(evidence: Evidence, signs: Signs) -> str:
    """One sentence on what an operator can do now."""
    status = evidence.status
    advice = _advice(evidence, signs) + _haste(evidence, signs.cause)
    advice = advice.format(name=status.name, origin=status.origin or "its entry", pid=status.pid)
    if evidence.removal is not None:
        return f"put {evidence.removal['file']} back, if it is not to go"
    wrong = _place_to_correct(evidence)
    if wrong:
        edit = f"correct {wrong}, which is seen by itself" if _needed(evidence) else f"correct {wrong}, then `mcpvisor reload`"
        is_all = evidence.spec is None or advice == _BY_STATE[State.READY]
        return edit if is_all else f"{edit}; {advice}"
    return advice


def _place_to_correct(evidence: Evidence) -> str:
    """Where something is wrong for which an edit of this server is not in force, while it runs or has to wait."""
    if evidence.waiting is not None:  # whatever was wrong with the entry before, what is written now is right
        return evidence.waiting["waits_for"]
    if evidence.spec is not None and evidence.rejections:
        return _needed(evidence) or evidence.rejections[0]["where"]
    return ""


def _needed(evidence: Evidence) -> str:
    """The file that has to be mended in place of the entry that names it."""
    has_one = evidence.spec is not None and evidence.rejections and evidence.waiting is None
    return evidence.rejections[0].get("needs", "") if has_one else ""


def _advice(evidence: Evidence, signs: Signs) -> str:
    status = evidence.status
    match status.state:
        case State.FAILED | State.STOPPED if evidence.ended_by_policy:
            shown = "the events below" if evidence.is_http else "the events and the stderr below"
            return f"look at why it ended ({shown}), then `mcpvisor start {{name}}`"
        case State.DEGRADED if status.hindrance is not None:
            return _of_hindrance(evidence, status.hindrance)
        case State.READY | State.DEGRADED if evidence.missed is not None:
            return _of_the_deaf(evidence)
        case State.DEGRADED if any(one.state is SubscriptionState.FAILED for one in evidence.subscriptions):
            return (
                "look at the reasons of its subscriptions below; what a server cannot push is read with "
                '`{{ uri = "...", poll = "60s" }}` in {origin}'
            )
        case State.READY if signs.denied:
            return (
                "give its credentials what the refusal names (`auth` in {origin}); calls that need no more than they have go on"
            )
        case State.READY if evidence.stderr_dropped:
            return "make it say less (a log level in its `args` or `env`, {origin}); what it says is in `mcpvisor logs {name}`"
        case State.READY if signs.noise:
            return _OFF_STDOUT
        case State.AUTH_REQUIRED if signs.is_penniless:
            return (
                "mend what the reason names (`auth` or `header_command` in {origin}); `mcpvisor restart {name}` tries at once"
            )
        case State.DISABLED if status.wanted_by == "config":
            return "set `enabled = true` in {origin}, or `mcpvisor enable {name}`"
        case state if state in _SETTLED:
            return _of_state(evidence)
        case _:
            cause = _cause_of_state(status, signs)
            earlier = "wait for this try; of the one before: " if cause and status.state is State.NEGOTIATING else ""
            noise = f"; {_OFF_STDOUT}" if signs.noise else ""
            return earlier + _of_failure(evidence, cause) + noise


def _cause_of_state(status: ServerStatus, signs: Signs) -> str:
    """The cause, where it is that of the state: a message that was refused once is none of what ails a session otherwise."""
    is_other = status.state is State.DEGRADED and signs.cause.startswith("refused_") and "refused" not in status.reason
    return "" if is_other else signs.cause


def _of_the_deaf(evidence: Evidence) -> str:
    where = "that server's own log" if evidence.is_http else "whether its process (pid {pid}) is at work or was stopped"
    return f"look at {where}; `mcpvisor restart {{name}}` replaces it now"


def _of_hindrance(evidence: Evidence, hindrance: Hindrance) -> str:
    match hindrance:
        case Hindrance.CREDENTIALS:
            return _BY_HTTP_CAUSE["auth_unavailable" if evidence.status.lacks_credentials else "auth"]
        case Hindrance.SILENCE:
            return _of_the_deaf(evidence)
        case Hindrance.REFUSAL:
            return _of_refusal(evidence)


def _of_refusal(evidence: Evidence) -> str:
    if evidence.status.reason.startswith(NO_ROOM):
        return _BY_HTTP_CAUSE["busy"]
    if evidence.is_http:
        return _BY_HTTP_CAUSE["http_refused"]
    return "look at its stderr for why it answers with errors; `mcpvisor restart {name}` makes a fresh session"


def _of_failure(evidence: Evidence, cause: str) -> str:
    silent = not evidence.stderr and evidence.status.state in (State.BACKOFF, State.CRASH_LOOP)
    if evidence.is_http:
        return _of_http(evidence, cause)
    if silent and cause in ("process_exited", ""):
        return "it left no word on stderr: run its command by hand"
    return _BY_CAUSE.get(cause) or _of_state(evidence)


def _of_http(evidence: Evidence, cause: str) -> str:
    reason = evidence.status.reason
    if "text/html" in reason and cause in ("not_mcp", "protocol", "not_streamable_http"):
        return "check that `url` in {origin} is the MCP endpoint, and that no login page or proxy stands before it"
    if evidence.status.lists_asked_to_wait:
        cause = "busy"
    if cause == "protocol" and " 404 " in reason:
        cause = "not_found"
    if cause == "tls":
        return _of_tls(reason)
    return _BY_HTTP_CAUSE.get(cause) or _of_state(evidence)


def _of_tls(reason: str) -> str:
    """TLS fails in many ways, and only one of them is the server's certificate."""
    if "cannot be loaded" in reason:
        return "correct the file that the reason names, or its key under `tls` in {origin}"
    if "refused TLS" in reason:
        return "give it the certificate it asks for (`tls.client_cert` and `tls.client_key` in {origin})"
    if "certificate" in reason:
        return "check the server's certificate, and `tls` in {origin} where it has a CA of its own"
    if any(word in reason for word in _PLAIN):
        return "what answers at that port does not speak TLS: write `http://` in `url` ({origin}), or the port that does"
    return "it and the daemon find no TLS in common: look at the versions and ciphers that the server allows"


def _of_state(evidence: Evidence) -> str:
    state = evidence.status.state
    return (_BY_HTTP_STATE.get(state) if evidence.is_http else None) or _BY_STATE[state]


def _haste(evidence: Evidence, cause: str) -> str:
    """How to have the next try now, where one is waited for and nobody has asked for patience."""
    status = evidence.status
    if evidence.retry_after:
        return "; it has asked for the time until the next try, so leave it that"
    if cause == "busy":
        return ""
    match status.state:
        case State.BACKOFF:
            return "; `mcpvisor restart {name}` tries at once"
        case State.CRASH_LOOP:
            return "; `mcpvisor restart {name}` tries at once and forgets the ends so far"
        case State.FAILED if status.next_attempt is not None and not evidence.is_http:
            return "; `mcpvisor restart {name}` tries at once"
        case _:
            return ""

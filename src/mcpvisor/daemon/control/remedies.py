"""Owns what an operator is advised to do, by the state of a server and the cause of its newest failure."""

from __future__ import annotations

from typing import Final

from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus

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
    "connect_failed": "check that the server runs and that `url` in {origin} is right",
    "tls": "check the server's certificate, and `tls` in {origin} where it has a CA of its own",
    "auth": "give it valid credentials (`auth` or `headers` in {origin})",
    "protocol": "what it says is not MCP: check `command`, `args`, `url` and `era` in {origin}",
    "process_exited": "its last words on stderr are below; correct what they complain of, then `mcpvisor restart {name}`",
    "stdout_closed": "it closed its stdout but lived on: its last words on stderr are below",
    "session_lost": "the server forgot the session, as one that was restarted does; nothing to do unless it goes on",
    "stream_failed": "the connection broke: look at the server's own log and at proxies between",
    "refused_size": "it sent a message over the limit: raise max_message in {origin}, or ask it for less",
}

_BY_STATE: Final = {
    State.READY: "nothing",
    State.DEGRADED: "look at the events below; `mcpvisor restart {name}` makes a fresh session",
    State.STARTING: "wait; its stderr is in `mcpvisor logs {name}`",
    State.NEGOTIATING: "wait; if it never answers, read its stderr below, run its command by hand, and check `era` in {origin}",
    State.RESTORING: "wait; calls are served already",
    State.DRAINING: "wait",
    State.BACKOFF: "look at the events and the stderr below; `mcpvisor restart {name}` tries at once",
    State.CRASH_LOOP: "read its stderr below; `mcpvisor restart {name}` tries at once and forgets the ends so far",
    State.AUTH_REQUIRED: "give it valid credentials (`auth` or `headers` in {origin}), then `mcpvisor reload`",
    State.FAILED: "correct {origin}, then `mcpvisor reload`",
    State.STOPPED: "`mcpvisor start {name}`",
    State.DISABLED: "`mcpvisor enable {name}`",
}

_SETTLED: Final = frozenset({State.READY, State.STARTING, State.RESTORING, State.DRAINING, State.STOPPED, State.DISABLED})
"""States in which an earlier failure is history, or its advice would be wrong."""


def remedy_for(status: ServerStatus, cause: str, *, flooding: bool, silent: bool) -> str:
    """One sentence on what an operator can do now; `silent` is a server of whose stderr there is nothing to read."""
    if status.state is State.READY and flooding:
        advice = "make it say less (a log level in its `args` or `env`, {origin}); what it says is in `mcpvisor logs {name}`"
    elif status.state is State.DISABLED and status.wanted_by == "config":
        advice = "set `enabled = true` in {origin}, or `mcpvisor enable {name}`"
    elif status.state in (State.BACKOFF, State.CRASH_LOOP) and silent and cause in ("process_exited", ""):
        advice = "it left no word on stderr: run its command by hand; `mcpvisor restart {name}` tries at once"
    elif status.state in _SETTLED or cause not in _BY_CAUSE:
        advice = _BY_STATE[status.state]
    else:
        advice = _BY_CAUSE[cause]
        if status.state is State.CRASH_LOOP:
            advice += "; `mcpvisor restart {name}` tries at once"
    return advice.format(name=status.name, origin=status.origin or "its entry")

"""The public states of a server, and the named groups that the rest of the program asks about."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a server is doing now; shown by `status`, in metrics and in events."""

    DISABLED = "disabled"
    """Switched off by its entry or by an operator; nothing runs until it is enabled."""
    STOPPED = "stopped"
    """Stopped by an operator; started again by `start` or by the daemon's next start."""
    STARTING = "starting"
    """A process is being started, or an address dialled."""
    NEGOTIATING = "negotiating"
    """Protocol era and version are being settled."""
    RESTORING = "restoring"
    """The session stands; lists and subscriptions are being restored. Calls are admitted."""
    READY = "ready"
    """Everything that was declared holds."""
    DEGRADED = "degraded"
    """A session stands and calls go out on it, and something does not work; the reason says what."""
    DRAINING = "draining"
    """Ending in good order; calls in flight may finish."""
    BACKOFF = "backoff"
    """Waiting before the next try; the time of that try is known."""
    CRASH_LOOP = "crash_loop"
    """Ended too often within its window; a half-open try follows every few minutes."""
    AUTH_REQUIRED = "auth_required"
    """The server refuses the credentials; waits for others, with a slow retry."""
    FAILED = "failed"
    """Cannot work as written; the reason names the key to edit."""


ADMITTING = frozenset({State.RESTORING, State.READY, State.DEGRADED})
"""Calls go out at once."""

COMING = frozenset({State.STARTING, State.NEGOTIATING})
"""Calls wait up to `wait_ready`, since an answer is near."""

WAKEABLE = frozenset({State.BACKOFF, State.CRASH_LOOP})
"""A call may have the server tried before it is time for the next try by itself."""

STARTING = frozenset({State.STARTING, State.NEGOTIATING, State.RESTORING})
"""On the way up; bounded by `start_timeout`."""

BOUNDED = STARTING | {State.DRAINING}
"""States that last until a deadline at the most."""

UP = frozenset({State.READY, State.DEGRADED})
"""Counted as up in `mcpvisor_server_up`."""

AT_REST = frozenset({State.DISABLED, State.STOPPED})
"""Not wanted running: neither healthy nor unhealthy."""

"""Owns whether a handler is given anything at all: after failures in a row it is left alone, and then tried with one event."""

from __future__ import annotations

from enum import StrEnum

from mcpvisor.daemon.handlers.specs import CircuitPolicy


class CircuitState(StrEnum):
    """How a handler is taken to be."""

    CLOSED = "closed"
    """It gets events."""
    OPEN = "open"
    """It is left alone."""
    HALF_OPEN = "half_open"
    """It has one event; what becomes of that decides."""


class Circuit:
    """The circuit of one handler; times are monotonic seconds."""

    def __init__(self, policy: CircuitPolicy) -> None:
        self.policy = policy
        self.state = CircuitState.CLOSED
        self.row = 0
        """Failures in a row."""
        self.next_try: float | None = None
        """When one event is tried, while it is open."""

    def admits(self, now: float) -> bool:
        """Whether an event may be given to the handler."""
        if self.state is CircuitState.OPEN:
            return self.next_try is not None and now >= self.next_try
        return self.state is CircuitState.CLOSED

    def gave(self) -> None:
        """An event was given to the handler."""
        if self.state is CircuitState.OPEN:
            self.state, self.next_try = CircuitState.HALF_OPEN, None

    def succeeded(self) -> bool:
        """The handler has taken an event; whether the circuit was not closed before, and now is."""
        was = self.state
        self.state, self.next_try, self.row = CircuitState.CLOSED, None, 0
        return was is not CircuitState.CLOSED

    def failed(self, now: float) -> bool:
        """The handler has not taken an event; whether the circuit was closed before, and now is open."""
        was = self.state
        self.row += 1
        if was is CircuitState.HALF_OPEN or (was is CircuitState.CLOSED and self.row >= self.policy.failures):
            self.state, self.next_try = CircuitState.OPEN, now + self.policy.open_for
        return was is CircuitState.CLOSED and self.state is CircuitState.OPEN

"""Owns the one table of states of a server: inputs and the time in, commands and the next deadline out. No I/O, no clock.

    wanted running:   starting -> negotiating -> restoring -> ready <-> degraded
                          ^                                      |
                          +---- backoff | crash_loop | failed | auth_required (each with the time of its next try)
    wanted otherwise: draining -> stopped | disabled

What is wanted is stored beside what is; a command of an operator only edits what is wanted, and the table does the rest.
"""

from __future__ import annotations

from typing import Final

from mcpvisor.supervisor.backoff import Jitter, RestartHistory, delay_before
from mcpvisor.supervisor.lifecycle_messages import (
    Closed,
    Command,
    Ended,
    Impaired,
    Input,
    Launched,
    Moved,
    Negotiated,
    Open,
    Opened,
    RestartOrdered,
    Restored,
    Retire,
    SpecChanged,
    TimePassed,
    Wanted,
    WantedSet,
    Woken,
)
from mcpvisor.supervisor.spec import RestartRule, ServerSpec
from mcpvisor.supervisor.states import STARTING, State
from mcpvisor.supervisor.transports.wire import LINGERING

SLOW_RETRY: Final = 300.0
"""Seconds between tries of what an edit or another credential has to mend."""

SERVED_AFTER: Final = 5.0
"""Seconds of being ready after which an end is followed by an immediate restart, even if nobody had asked anything."""

MAX_START_TIMEOUT: Final = 300.0

STILL_MOVING: Final = 5.0
"""A server that wrote to stderr so many seconds before its start timed out was at work, as a cold package start is."""

STOP_SLACK: Final = 10.0
"""Seconds beyond the stop ladder after which a generation that does not close is reported, not waited for."""


_COUNTED: Final = frozenset({"process_exited", "stdout_closed", "start_timeout", "protocol", "probe"})
"""Ends of processes and of handshakes count towards the window; dials, sessions and credentials do not."""

_AS_WRITTEN: Final = frozenset({"no_such_program", "permission", "bad_cwd", "tls"})
"""Nothing but an edit or a change of the machine mends these."""

_ANOTHER_WAY: Final = frozenset({"era_probe", "other_transport"})
"""The server answered, if only by its end, that it is to be spoken to otherwise: no failure, and no reason to wait."""


class Lifecycle:
    """The state of one server, and the rules by which it moves."""

    def __init__(self, spec: ServerSpec, jitter: Jitter) -> None:
        self.spec = spec
        self.state = State.STARTING if spec.enabled else State.DISABLED
        self.reason = "about to be started" if spec.enabled else "disabled in its entry"
        self.wanted = Wanted.RUNNING if spec.enabled else Wanted.DISABLED
        self.generation = 0
        """The number of the newest generation; 0 before the first."""
        self.deadline: float | None = None
        """When `TimePassed` is due, in the caller's monotonic seconds; None while nothing is waited for."""
        self._jitter = jitter
        self._history = RestartHistory()
        self._open: set[int] = set()
        self._lingering: set[int] = set()
        self._due = False
        self._current: int | None = None
        self._ready_since: float | None = None
        self._tried_at = float("-inf")
        self._reopen_reason = "start"
        self._start_timeouts = 0
        self._rest_reason = ""
        self._is_looping = False
        """Whether the server was in a crash loop and has not been up for long since."""
        self._not_before = float("-inf")
        """The time before which the server itself does not want to be tried, as it said."""
        self.is_done = False
        """Whether the server is at rest because it ended well and its restart policy leaves it at that."""
        self.restarts = 0
        """How many further generations were opened, but for those that only spoke to the server in another way."""

    def handle(self, event: Input, now: float) -> list[Command]:
        """Take one input at the time `now`; returns what is to be done, in order."""
        match event:
            case WantedSet():
                return self._set_wanted(event, now)
            case SpecChanged():
                return self._change_spec(event, now)
            case RestartOrdered():
                return self._restart(event.reason, "order", now)
            case Woken():
                return self._wake(now)
            case TimePassed():
                return self._time_passed(event, now)
            case Closed():
                return self._closed(event.generation, now)
            case _:
                return self._of_generation(event, now) if event.generation == self._current else []

    @property
    def is_gone(self) -> bool:
        """Whether no generation is left in any form."""
        return not self._open and not self._lingering

    @property
    def next_attempt(self) -> float | None:
        """When the next try by itself is due, in monotonic seconds; None when none is."""
        waiting = self.state in (State.BACKOFF, State.CRASH_LOOP, State.FAILED, State.AUTH_REQUIRED)
        return self.deadline if waiting else None

    # What is wanted

    def _set_wanted(self, event: WantedSet, now: float) -> list[Command]:
        self.wanted, self.is_done = event.wanted, False
        self._rest_reason = event.reason
        if event.wanted is Wanted.RUNNING:
            if self._current is not None:
                return []
            self._forget()
            return self._open_next(now, self._reopen_reason, event.reason)
        return self._rest(now)

    def _rest(self, now: float) -> list[Command]:
        resting = State.DISABLED if self.wanted is Wanted.DISABLED else State.STOPPED
        self._due = False
        if self._current is None and self.is_gone:
            self.deadline = None
            return self._move(resting, self._rest_reason)
        commands: list[Command] = []
        if self._current is not None:
            commands.append(Retire(self._current, self.spec.drain))
            self._current = None
        self.deadline = now + self._stop_budget()
        return commands + self._move(State.DRAINING, self._rest_reason)

    def _change_spec(self, event: SpecChanged, now: float) -> list[Command]:
        is_told_otherwise = self._current is None and event.spec.enabled and self.spec.target != event.spec.target
        self.spec = event.spec
        if event.restart or is_told_otherwise:  # other credentials may be what it was waiting for
            self._start_timeouts = 0
            return self._restart("its entry was changed", "spec", now)
        return []

    def _restart(self, reason: str, cause: str, now: float) -> list[Command]:
        self._forget()
        if self.wanted is not Wanted.RUNNING:
            return []
        self._reopen_reason = cause
        if self._current is None:
            return self._open_next(now, cause, reason)
        retire = Retire(self._current, self.spec.drain)
        self._current = None
        self.deadline = now + self._stop_budget()
        return [retire, *self._move(State.DRAINING, reason)]

    def _stop_budget(self) -> float:
        return self.spec.stop_seconds + STOP_SLACK

    # What a generation tells

    def _of_generation(self, event: Input, now: float) -> list[Command]:
        match event:
            case Launched():
                self.deadline = now + self._start_budget()
                return []
            case Opened():
                return self._move(State.NEGOTIATING, "the handshake is under way")
            case Negotiated():
                self._ready_since = now
                self._start_timeouts = 0
                self.deadline = now + self._start_budget()
                return self._move(State.RESTORING, "lists are being read")
            case Restored(lacking=lacking) | Impaired(lacking=lacking):
                self.deadline = self._stable_at() if isinstance(event, Restored) else self.deadline
                return self._move(State.DEGRADED if lacking else State.READY, lacking)
            case Ended():
                return self._ended(event, now)
            case _:
                return []

    def _start_budget(self) -> float:
        return min(self.spec.start_timeout * 2.0**self._start_timeouts, max(MAX_START_TIMEOUT, self.spec.start_timeout))

    def _stable_at(self) -> float | None:
        if self._ready_since is None or not (self._history.row or self._history.ends):
            return None
        return self._ready_since + self.spec.restart.stable_after

    def _ended(self, event: Ended, now: float) -> list[Command]:
        served = event.served or (self._ready_since is not None and now - self._ready_since >= SERVED_AFTER)
        stable = self._ready_since is not None and now - self._ready_since >= self.spec.restart.stable_after
        lost = self.spec.transport != "stdio" and event.cause in LINGERING
        commands: list[Command] = [Retire(event.generation, self.spec.drain if lost else 0.0)]
        if lost:
            # Requests in flight have answers of their own coming; the next session need not wait for them.
            self._open.discard(event.generation)
            self._lingering.add(event.generation)
        self._current, self._ready_since = None, None
        if stable:
            self._forget()
        if self.wanted is not Wanted.RUNNING:
            return commands + self._rest(now)
        return commands + self._after_end(event, served, now)

    def _after_end(self, event: Ended, served: bool, now: float) -> list[Command]:
        policy = self.spec.restart
        self._reopen_reason = "session" if event.cause == "session_lost" else "exit" if served else "retry"
        if event.cause in _ANOTHER_WAY:
            self._reopen_reason = "another_way"
            return self._open_next(now, "another_way", event.detail)
        if event.cause in _AS_WRITTEN:
            return self._await_try(State.FAILED, event.detail, now + SLOW_RETRY)
        if event.cause == "auth":
            return self._await_try(State.AUTH_REQUIRED, event.detail, now + (event.retry_after_s or SLOW_RETRY))
        ended_well = event.cause == "process_exited" and event.exit_code == 0
        if policy.policy is RestartRule.NEVER or (policy.policy is RestartRule.ON_FAILURE and ended_well):
            reason = f"{event.detail}; its restart policy is {policy.policy.value}"
            if not ended_well:
                return self._await_try(State.FAILED, reason, None)
            self.wanted, self._rest_reason, self.is_done = Wanted.STOPPED, reason, True
            return self._rest(now)
        if event.cause == "start_timeout":
            self._start_timeouts += 1
        if event.retry_after_s is not None:
            self._not_before = now + event.retry_after_s
        if event.cause in _COUNTED and (self._history.count_end(now, policy) or self._is_looping):
            self._is_looping = True
            return self._await_try(State.CRASH_LOOP, self._crash_loop_reason(event), now + policy.crash_loop_retry)
        if served:
            self._history.row = 0
        delay = delay_before(self._history.row, policy, self._jitter) if served else self._grow()
        return self._await_try(State.BACKOFF, event.detail, now + max(delay, event.retry_after_s or 0.0))

    def _forget(self) -> None:
        self._history.forget()
        self._is_looping = False

    def _grow(self) -> float:
        self._history.row += 1
        return delay_before(self._history.row, self.spec.restart, self._jitter)

    def _crash_loop_reason(self, event: Ended) -> str:
        window = self.spec.restart.intensity
        ends, within = (window.ends, window.within) if window else (0, 0.0)
        return f"ended more than {ends} times in {within:g} s; last: {event.detail}"

    def _closed(self, generation: int, now: float) -> list[Command]:
        self._open.discard(generation)
        self._lingering.discard(generation)
        if self._open or self._current is not None:
            return []
        if self.wanted is not Wanted.RUNNING:
            return self._rest(now)
        if self._due or self.state is State.DRAINING:
            return self._open_next(now, self._reopen_reason, self.reason)
        return []

    # The way back

    def _await_try(self, state: State, reason: str, at: float | None) -> list[Command]:
        self.deadline = at
        return self._move(state, reason)

    def _wake(self, now: float) -> list[Command]:
        """At most one try per base delay comes from callers, however many there are."""
        too_early = now - self._tried_at < self.spec.restart.delay or now < self._not_before
        if self.state not in (State.BACKOFF, State.CRASH_LOOP) or too_early:
            return []
        return self._open_next(now, "retry", "a call is waiting")

    def _time_passed(self, event: TimePassed, now: float) -> list[Command]:
        if self.deadline is None or now < self.deadline:
            return []
        if self.next_attempt is not None:
            return self._open_next(now, self._reopen_reason, self.reason)
        if self.state is State.RESTORING:
            # Calls are served: what hangs is a list, and no reason to end them.
            budget, self.deadline = self._start_budget(), self._stable_at()
            return self._move(State.DEGRADED, f"its lists are not read after {budget:g} s; calls are served")
        if self.state in STARTING and self._current is not None:
            return self._ended(self._start_timed_out(self._current, event.stderr_at, now), now)
        self.deadline = None
        if self.state in (State.READY, State.DEGRADED):
            self._forget()
        elif self.state is State.DRAINING:
            return self._move(State.DRAINING, f"{self._rest_reason or self.reason}; its process does not end")
        return []

    def _start_timed_out(self, generation: int, stderr_at: float | None, now: float) -> Ended:
        what = "did not start" if self.state is State.STARTING else "did not answer the handshake"
        detail = f"{what} within {self._start_budget():g} s (start_timeout)"
        if stderr_at is not None and stderr_at >= max(self._tried_at, now - STILL_MOVING):
            detail += "; it was still writing to stderr, so it may only be slow"
        return Ended(generation, "start_timeout", detail)

    def _open_next(self, now: float, cause: str, reason: str) -> list[Command]:
        """Open the next generation, once the last one is gone entirely: never two processes of one server."""
        if self._open:
            self._due = True
            self.deadline = None if self.next_attempt is not None else self.deadline
            return []
        self.generation += 1
        self.restarts += self.generation > 1 and cause != "another_way"
        self._due = False
        self._current = self.generation
        self._open.add(self.generation)
        self._tried_at = now
        self.deadline = None
        opening = Open(self.generation, cause if self.generation > 1 else "start")
        return [opening, *self._move(State.STARTING, reason)]

    def _move(self, state: State, reason: str) -> list[Command]:
        old, self.state = self.state, state
        changed = old is not state or self.reason != reason
        self.reason = reason
        return [Moved(old, state, reason)] if changed else []

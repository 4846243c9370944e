"""Owns the one table of states of a server: inputs and the time in, commands and the next deadline out. No I/O, no clock.

    wanted running:   starting -> negotiating -> restoring -> ready <-> degraded
                          ^                                      |
                          +---- backoff | crash_loop | failed | auth_required (each with the time of its next try)
    wanted otherwise: draining -> stopped | disabled

While a generation serves, another may be brought up beside it to take over (`replacing`): the state is then that of the one
that serves. What is wanted is stored beside what is; a command of an operator only edits what is wanted, and the table does the
rest.
"""

from __future__ import annotations

from typing import Final

from mcpvisor.supervisor.aftermath import COUNTED, SLOW_RETRY, Reaction, reaction_to, reason_of
from mcpvisor.supervisor.backoff import Jitter, RestartHistory
from mcpvisor.supervisor.held import Held
from mcpvisor.supervisor.lifecycle_messages import (
    Closed,
    Command,
    Ended,
    Impaired,
    Input,
    Launched,
    MemorySampled,
    Moved,
    Negotiated,
    Opened,
    RestartOrdered,
    Restored,
    Retire,
    Serve,
    SpecChanged,
    TimedOut,
    TimePassed,
    Wanted,
    WantedSet,
    Woken,
)
from mcpvisor.supervisor.recycling import Recycling
from mcpvisor.supervisor.replacing import Replacement
from mcpvisor.supervisor.serving import Serving
from mcpvisor.supervisor.spec import Change, ServerSpec, change_between
from mcpvisor.supervisor.start_time import start_budget, start_timed_out
from mcpvisor.supervisor.states import ADMITTING, STARTING, UP, WAKEABLE, State
from mcpvisor.supervisor.status import hindrance_of
from mcpvisor.supervisor.transports.wire import LINGERING

_READING: Final = "lists are being read"

STOP_SLACK: Final = 10.0
"""Seconds beyond the stop ladder after which a generation that does not close is reported, not waited for."""


class Lifecycle:
    """The state of one server, and the rules by which it moves."""

    def __init__(self, spec: ServerSpec, jitter: Jitter) -> None:
        self.spec = spec
        self.state = State.STARTING if spec.enabled else State.DISABLED
        self.reason = "about to be started" if spec.enabled else "disabled in its entry"
        self.wanted = Wanted.RUNNING if spec.enabled else Wanted.DISABLED
        self._held = Held()
        self._history = RestartHistory(jitter)
        self._due = False
        self._due_reason = ""
        """Why the next generation is due, while it waits for the end of the last one."""
        self._serving: Serving | None = None
        """The generation that serves, or is on its way to."""
        self._replacement: Replacement | None = None
        self._recycling = Recycling()
        self._deadline: float | None = None
        self._told_attempt: float | None = None
        """The next try by itself that was told of last."""
        self._tried_at = float("-inf")
        self._reopen_reason = "start"
        self._rest_reason = ""
        self.is_done = False
        """Whether the server is at rest because it ended well and its restart policy leaves it at that."""

    def handle(self, event: Input, now: float) -> list[Command]:
        """Take one input at the time `now`; returns what is to be done, in order."""
        commands = self._handle(event, now)
        # The time of the next try is news even where the state and its reason are the same.
        if self.next_attempt != self._told_attempt and not any(isinstance(one, Moved) for one in commands):
            commands.append(Moved(self.state, self.state, self.reason))
        self._told_attempt = self.next_attempt
        return commands

    def _handle(self, event: Input, now: float) -> list[Command]:
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
            case MemorySampled():
                return self._weigh(event, now)
            case _ if self._serving is not None and event.generation == self._serving.number:
                return self._of_generation(self._serving, event, now)
            case _ if self._replacement is not None and event.generation == self._replacement.generation:
                return self._of_replacement(self._replacement, event, now)
            case _:
                return []

    @property
    def deadline(self) -> float | None:
        """When `TimePassed` is due, in the caller's monotonic seconds; None while nothing is waited for."""
        beside = self._replacement.deadline if self._replacement is not None else None
        return min((at for at in (self._deadline, beside) if at is not None), default=None)

    @property
    def generation(self) -> int:
        """The number of the newest generation; 0 before the first."""
        return self._held.newest

    @property
    def ends(self) -> tuple[int, float | None]:
        """Ends that counted as crashes since the server was last up for long, and when the first of them was."""
        return self._history.ended, self._history.first_end

    @property
    def restarts(self) -> int:
        """How many generations followed another one, but for those that only spoke to the server in another way."""
        return self._held.restarts

    @property
    def _current(self) -> int | None:
        return self._serving.number if self._serving is not None else None

    @property
    def is_replacing(self) -> bool:
        """Whether another generation is to take over from the one that serves."""
        return self._replacement is not None

    @property
    def coming(self) -> State:
        """How far the newest spec is: the state or, where another generation is to take over, the one that it would be in."""
        return self._replacement.standing if self._replacement is not None else self.state

    @property
    def coming_reason(self) -> str:
        """Why it is as far as that, for people."""
        return self._replacement.detail if self._replacement is not None else self.reason

    @property
    def recycling(self) -> tuple[str, float | None]:
        """Why the one that serves is to be replaced for its memory, and from when on it may be; empty where it is not."""
        if not self._recycling.reason or self.state not in UP or self._replacement is not None:
            return "", None
        return self._recycling.reason, self._recycling.due(self.spec.restart)

    @property
    def is_gone(self) -> bool:
        """Whether no generation is left in any form."""
        return self._held.is_empty

    @property
    def next_attempt(self) -> float | None:
        """When the next try by itself is due, in monotonic seconds; None when none is.

        It may be one of a generation that is to take over from the one that serves.
        """
        return self._replacement.next_try if self._replacement is not None else self._own_next_attempt

    @property
    def call_again_at(self) -> float | None:
        """When a refused call is worth another: at the next try by itself, or as soon as a call may ask for one."""
        if self.state not in WAKEABLE:
            return self.next_attempt
        waking_at = self._history.waking_at(self._tried_at, self.spec.restart)
        return waking_at if self.next_attempt is None else min(self.next_attempt, waking_at)

    @property
    def _own_next_attempt(self) -> float | None:
        waiting = self.state in (State.BACKOFF, State.CRASH_LOOP, State.FAILED, State.AUTH_REQUIRED)
        return self._deadline if waiting else None

    @property
    def _is_process(self) -> bool:
        return self.spec.transport == "stdio"

    # What is wanted

    def _set_wanted(self, event: WantedSet, now: float) -> list[Command]:
        self.wanted, self.is_done = event.wanted, False
        self._rest_reason = event.reason
        if event.wanted is Wanted.RUNNING:
            if self._current is not None:
                return []
            self._history.forget()
            return self._open_next(now, self._reopen_reason, event.reason)
        return self._rest(now)

    def _rest(self, now: float) -> list[Command]:
        resting = State.DISABLED if self.wanted is Wanted.DISABLED else State.STOPPED
        self._due = False
        if self._current is None and self.is_gone:
            self._deadline = None
            return self._move(resting, self._rest_reason)
        commands: list[Command] = []
        if self._current is not None:
            commands += [*self._withdraw(), Retire(self._current, self.spec.drain)]
            self._serving = None
        self._deadline = now + self._stop_budget()
        return commands + self._move(State.DRAINING, self._rest_reason)

    def _change_spec(self, event: SpecChanged, now: float) -> list[Command]:
        waits = self._current is None or (self._replacement is not None and self._replacement.generation is None)
        is_told_otherwise = waits and event.spec.enabled and self.spec.target != event.spec.target
        self.spec = event.spec
        if event.restart and self._replacement is not None and self._serves_as_wanted():
            self._history.forget()
            return [*self._withdraw(), *self._beside_changed()]
        if event.restart or is_told_otherwise:  # other credentials may be what it was waiting for
            self._history.start_timeouts = 0
            return self._restart(event.reason, "spec", now)
        return []

    def _serves_as_wanted(self) -> bool:
        """Whether the session that serves is one of the spec as it is now: an edit that never took over was taken back."""
        serving = self._serving
        return serving is not None and change_between(serving.spec, self.spec).change in (Change.KEEP, Change.UPDATE)

    def _restart(self, reason: str, cause: str, now: float) -> list[Command]:
        if cause != "memory":
            self._history.forget()
        if self.wanted is not Wanted.RUNNING:
            return []
        self._reopen_reason = cause
        if self._current is None:
            return self._open_next(now, cause, reason)
        former = self._replacement
        withdrawn = self._withdraw()
        if self.state in ADMITTING and self._may_overlap(self._current):
            self._replacement = Replacement(cause, reason, self.spec)
            if former is not None and former.cause == "spec" and cause == "order":
                # It tries at once what was not in force yet, and that stays to be told until it is.
                self._replacement = former.afresh()
                cause = former.cause
            return withdrawn + self._try_replacement(self._replacement, cause)
        return withdrawn + self._end_first(self._current, reason, now)

    def _end_first(self, current: int, reason: str, now: float) -> list[Command]:
        """End the one that serves in good order; the next one is opened once nothing is left of it."""
        self._serving = None
        self._deadline = now + self._stop_budget()
        return [Retire(current, self.spec.drain), *self._move(State.DRAINING, reason)]

    def _weigh(self, event: MemorySampled, now: float) -> list[Command]:
        """Replace in good order what uses too much memory, at most once in `stable_after`."""
        if event.generation != self._current or self.state not in UP or self._replacement is not None:
            self._recycling.forget()
            return []
        reason = self._recycling.weigh(event.resident_bytes, self.spec.restart, now)
        return self._restart(reason, "memory", now) if reason else []

    def _stop_budget(self) -> float:
        return self.spec.stop_seconds + STOP_SLACK

    # What a generation tells

    def _of_generation(self, serving: Serving, event: Input, now: float) -> list[Command]:
        match event:
            case Launched():
                self._deadline = now + self._start_budget()
                return []
            case Opened():
                return self._move(State.NEGOTIATING, "the handshake is under way")
            case Negotiated():
                serving.ready_since = now
                self._history.start_timeouts = 0
                self._history.refusals = 0
                self._deadline = now + self._start_budget()
                return [Serve(event.generation), *self._move(State.RESTORING, _READING)]
            case Restored(lacking=lacking) | Impaired(lacking=lacking):
                self._deadline = self._stable_at(serving) if isinstance(event, Restored) else self._deadline
                serving.lacking = lacking
                return self._serve_as(serving)
            case Ended():
                return self._ended(serving, event, now)
            case _:
                return []

    def _serve_as(self, serving: Serving) -> list[Command]:
        """Calls are served, by a generation that may lack something besides."""
        lacking, beside = serving.lacking, self._replacement
        parts = (lacking, beside.shown(serves=hindrance_of(lacking) is None) if beside is not None else "")
        is_whole = not lacking and (beside is None or not beside.trouble)
        return self._move(State.READY if is_whole else State.DEGRADED, "; ".join(part for part in parts if part))

    def _start_budget(self) -> float:
        return start_budget(self.spec.start_timeout, self._history.start_timeouts)

    def _stable_at(self, serving: Serving) -> float | None:
        """When the ends that are remembered are to be forgotten; None where there are none."""
        return serving.stable_at(self.spec.restart) if self._history.row or self._history.ends else None

    def _ended(self, serving: Serving, event: Ended, now: float) -> list[Command]:
        lost = event.generation not in self._held.processes and event.cause in LINGERING
        commands: list[Command] = [Retire(event.generation, self.spec.drain if lost else 0.0)]
        if lost:
            # Requests in flight have answers of their own coming; the next session need not wait for them.
            self._held.linger(event.generation)
        self._serving = None
        self._recycling.forget()
        if serving.is_stable(self.spec.restart, now):
            self._history.forget()
        if self.wanted is not Wanted.RUNNING:
            return commands + self._rest(now)
        beside, self._replacement = self._replacement, None
        if beside is not None and beside.generation is not None:
            if event.cause in COUNTED:
                self._history.count_end(now, self.spec.restart)
            return commands + self._promote(beside, beside.generation)
        return commands + self._after_end(event, serving.has_served(event, now), now)

    def _after_end(self, event: Ended, served: bool, now: float) -> list[Command]:
        policy = self.spec.restart
        self._reopen_reason = "session" if event.cause == "session_lost" else "exit" if served else "retry"
        reaction = reaction_to(event, policy)
        reason = reason_of(event, reaction, policy)
        match reaction:
            case Reaction.ANOTHER_WAY:
                self._reopen_reason = "another_way"
                return self._open_next(now, "another_way", reason)
            case Reaction.MEND:
                return self._await_try(State.FAILED, reason, now + SLOW_RETRY)
            case Reaction.CREDENTIALS:
                wait = event.retry_after_s or self._history.after_refusal(SLOW_RETRY)
                return self._await_try(State.AUTH_REQUIRED, reason, now + wait)
            case Reaction.GIVE_UP:
                return self._await_try(State.FAILED, reason, None)
            case Reaction.DONE:
                self.wanted, self._rest_reason, self.is_done = Wanted.STOPPED, reason, True
                return self._rest(now)
            case Reaction.RETRY:
                counts = event.cause in COUNTED
                found = self._history.next_try(event, policy, now, served=served, counts=counts)
                return self._await_try(State.CRASH_LOOP if found.is_looping else State.BACKOFF, found.reason, found.at)

    def _closed(self, generation: int, now: float) -> list[Command]:
        self._held.closed(generation)
        if self._replacement is not None and self._replacement.is_due:
            return self._try_replacement(self._replacement, self._replacement.cause)
        if self._held.open or self._current is not None:
            return []
        if self.wanted is not Wanted.RUNNING:
            return self._rest(now)
        if self._due or self.state is State.DRAINING:
            return self._open_next(now, self._reopen_reason, self._due_reason if self._due else self.reason)
        return []

    # A generation beside the one that serves

    def _may_overlap(self, current: int) -> bool:
        """Whether the next generation may come up while this one serves: two processes only where the entry allows it."""
        return self.spec.overlap or not self._is_process or current not in self._held.processes

    def _withdraw(self) -> list[Command]:
        beside, self._replacement = self._replacement, None
        return [] if beside is None or beside.generation is None else [Retire(beside.generation, 0.0)]

    def _try_replacement(self, beside: Replacement, cause: str) -> list[Command]:
        beside.is_due = not self._held.has_room_beside(self._current, is_process=self._is_process)
        if beside.is_due:
            beside.deadline = None
            return []
        opening = self._held.opening(cause, is_process=self._is_process)
        beside.begun(self.generation, self.spec)
        return [opening, *self._beside_changed()]

    def _beside_changed(self) -> list[Command]:
        if self.state is State.RESTORING:
            beside = self._replacement
            return self._move(State.RESTORING, beside.shown(serves=True) if beside is not None else _READING)
        return self._serve_as(self._serving) if self._serving is not None else []

    def _of_replacement(self, beside: Replacement, event: Input, now: float) -> list[Command]:
        match event:
            case Launched() | Opened() | Negotiated():
                beside.came_along(event, self._start_budget(), now)
                return []
            case Restored():
                return self._take_over(event, now)
            case Ended():
                return [Retire(event.generation, 0.0), *self._not_come_up(beside, event, now)]
            case _:
                return []

    def _take_over(self, event: Restored, now: float) -> list[Command]:
        former, beside, self._replacement = self._current, self._replacement, None
        assert former is not None
        assert beside is not None
        self._serving = Serving(event.generation, beside.spec, now, event.lacking)
        self._held.linger(former)
        self._history.start_timeouts = 0
        self._deadline = self._stable_at(self._serving)
        restarted = self._held.restarted(event.generation, beside.cause)
        return [restarted, Serve(event.generation), Retire(former, self.spec.drain), *self._serve_as(self._serving)]

    def _not_come_up(self, beside: Replacement, event: Ended, now: float) -> list[Command]:
        if self._serving is not None and beside.wants_room(event, self._serving.spec):
            self._replacement, self._reopen_reason = None, beside.cause
            return self._end_first(self._serving.number, f"{beside.reason}; its server has room for one session only", now)
        if not beside.came_to_nothing(event, self.spec.restart, self._history, now):
            return self._try_replacement(beside, "another_way")
        return self._beside_changed()

    def _promote(self, beside: Replacement, generation: int) -> list[Command]:
        """The one that served is gone: what was brought up beside it is the server now, as far as it has come."""
        self._serving, self._deadline = Serving(generation, beside.spec, beside.negotiated_at), beside.deadline
        serve: list[Command] = [Serve(generation)] if beside.phase in ADMITTING else []
        restarted = self._held.restarted(generation, beside.cause)
        return [restarted, *serve, *self._move(beside.phase, beside.reason)]

    # The way back

    def _await_try(self, state: State, reason: str, at: float | None) -> list[Command]:
        self._deadline = at
        return self._move(state, reason)

    def _wake(self, now: float) -> list[Command]:
        """Callers get a try when it is time for one, however many there are."""
        waking_at = self._history.waking_at(self._tried_at, self.spec.restart)
        if self.state not in WAKEABLE or now < waking_at:
            return []
        self._history.count_waking()
        return self._open_next(now, "retry", "a call is waiting")

    def _time_passed(self, event: TimePassed, now: float) -> list[Command]:
        commands: list[Command] = []
        beside = self._replacement
        if beside is not None and beside.deadline is not None and now >= beside.deadline:
            commands = self._replacement_due(beside, now)
        if self._deadline is None or now < self._deadline:
            return commands
        return commands + self._own_time_passed(event, now)

    def _replacement_due(self, beside: Replacement, now: float) -> list[Command]:
        if beside.generation is None:
            return self._try_replacement(beside, beside.cause)
        end = Ended(beside.generation, "start_timeout", f"not ready within {self._start_budget():g} s (start_timeout)")
        return [TimedOut(beside.generation), *self._of_replacement(beside, end, now)]

    def _own_time_passed(self, event: TimePassed, now: float) -> list[Command]:
        if self._own_next_attempt is not None:
            return self._open_next(now, self._reopen_reason, self.reason)
        serving = self._serving
        if self.state is State.RESTORING and serving is not None:
            # Calls are served: what hangs is a list, and no reason to end them.
            budget, self._deadline = self._start_budget(), self._stable_at(serving)
            serving.lacking = f"its lists are not read after {budget:g} s; calls are served"
            return self._serve_as(serving)
        if self.state in STARTING and serving is not None:
            budget, tried_at = self._start_budget(), self._tried_at
            detail = start_timed_out(self.state, budget, stderr_at=event.stderr_at, tried_at=tried_at, now=now)
            end = Ended(serving.number, "start_timeout", detail)
            return [TimedOut(end.generation), *self._ended(serving, end, now)]
        self._deadline = None
        if self.state in (State.READY, State.DEGRADED):
            self._history.forget()
        elif self.state is State.DRAINING:
            return self._move(State.DRAINING, f"{self._rest_reason or self.reason}; its process does not end")
        return []

    def _open_next(self, now: float, cause: str, reason: str) -> list[Command]:
        """Open the next generation, once the last one is gone entirely: never two processes of one server."""
        if self._held.open:
            self._due, self._due_reason = True, reason
            if self.state is State.DRAINING:
                return self._move(State.DRAINING, reason)  # whoever waits learns that it comes back after all
            self._deadline = None if self._own_next_attempt is not None else self._deadline
            return []
        opening = self._held.opening(cause, is_process=self._is_process)
        self._due = False
        self._serving = Serving(self.generation, self.spec)
        self._tried_at = now
        self._deadline = None
        is_restart = opening.generation > 1 and cause != "another_way"
        restarted = [self._held.restarted(opening.generation, cause)] if is_restart else []
        return [opening, *restarted, *self._move(State.STARTING, reason)]

    def _move(self, state: State, reason: str) -> list[Command]:
        old, self.state = self.state, state
        changed = old is not state or self.reason != reason
        self.reason = reason
        return [Moved(old, state, reason)] if changed else []

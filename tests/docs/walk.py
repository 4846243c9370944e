"""Owns a walk through the table of states: every input that an actor could give, from every situation that is reached."""

from __future__ import annotations

from collections import deque
from copy import deepcopy

from mcpvisor.supervisor import lifecycle_messages as told
from mcpvisor.supervisor.lifecycle import Lifecycle
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.spec import Intensity, RestartPolicy, RestartRule, ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State

Step = tuple[State, State]

_CAUSES = {
    State.STARTING: ("process_exited", "connect_failed", "no_such_program", "auth"),
    State.NEGOTIATING: ("process_exited", "connect_failed", "tls", "auth", "era_probe", "other_transport"),
}
_CAUSES_LATER = ("process_exited", "probe", "session_lost", "auth")
"""Why a generation may end, by the state it is met in: one of each kind that the table treats alike."""


def steps() -> set[Step]:
    """Every pair of different states that follow each other, for any restart policy."""
    found: set[Step] = set()
    for rule in RestartRule:
        restart = RestartPolicy(policy=rule, intensity=Intensity(ends=1, within=60.0))
        for enabled in (True, False):
            for overlap in {False, rule is RestartRule.ALWAYS and enabled}:
                target = StdioLaunch(command="true")
                spec = ServerSpec(name="s", target=target, restart=restart, enabled=enabled, overlap=overlap)
                found |= _walk(Lifecycle(spec, lambda: 0.5))
    return found


def _walk(first: Lifecycle) -> set[Step]:
    found: set[Step] = set()
    known: set[tuple[object, ...]] = set()
    waiting = deque([(first, 1000.0)])
    while waiting:
        cycle, now = waiting.popleft()
        for event, at in _inputs(cycle, now):
            after = deepcopy(cycle)
            for command in after.handle(event, at):
                if isinstance(command, told.Moved) and command.old is not command.new:
                    found.add((command.old, command.new))
            if (situation := _situation(after)) not in known:
                known.add(situation)
                waiting.append((after, at))
    return found


def _inputs(cycle: Lifecycle, now: float) -> list[tuple[told.Input, float]]:
    number, is_open = cycle.generation, cycle._current is not None
    given: list[told.Input] = [told.WantedSet(wanted, "ordered") for wanted in Wanted]
    given += [told.SpecChanged(cycle.spec, restart=True), told.RestartOrdered("ordered"), told.Woken()]
    beside = cycle._replacement
    held = {cycle._current, beside.generation if beside is not None else None}
    given += [told.Closed(gone) for gone in cycle._held.open | cycle._held.lingering if gone not in held]
    if is_open and beside is not None and beside.generation is not None:
        other = beside.generation
        given += [told.Ended(other, "process_exited", "ended"), told.Launched(other), told.Opened(other)]
        given += [told.Negotiated(other)] if beside.phase is State.NEGOTIATING else []
        given += [told.Restored(other)] if beside.phase is State.RESTORING else []
    number = cycle._current or number
    if is_open:
        given += [
            told.Ended(number, cause, cause, served=served)
            for cause in _CAUSES.get(cycle.state, _CAUSES_LATER)
            for served in (True, False)
        ]
        given += [told.Ended(number, "process_exited", "well", exit_code=0)]
    if is_open and cycle.state is State.STARTING:
        given += [told.Launched(number), told.Opened(number)]
    if is_open and cycle.state is State.NEGOTIATING:
        given += [told.Negotiated(number)]
    if is_open and cycle.state is State.RESTORING:
        given += [told.Restored(number), told.Restored(number, "a list")]
    if is_open and cycle.state in (State.READY, State.DEGRADED):
        given += [told.Impaired(number, ""), told.Impaired(number, "a probe")]
    timed = [(event, now + 2.0) for event in given]
    return timed if cycle.deadline is None else [*timed, (told.TimePassed(), max(now, cycle.deadline))]


def _beside(cycle: Lifecycle) -> tuple[object, ...]:
    beside = cycle._replacement
    return () if beside is None else (beside.phase, beside.generation is None, beside.is_due, bool(beside.trouble))


def _situation(cycle: Lifecycle) -> tuple[object, ...]:
    """What decides of what can follow, without times and numbers."""
    return (
        cycle.state,
        cycle.wanted,
        cycle._current is not None,
        len(cycle._held.open - {cycle._current}),
        min(len(cycle._held.lingering), 1),
        cycle._due,
        cycle.deadline is None,
        _beside(cycle),
        min(cycle._history.row, 1),
        min(len(cycle._history.ends), 2),
    )

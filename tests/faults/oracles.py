"""Owns what a fault run is judged by: pure functions over what the puppets and the run itself have written down.

Each returns one sentence for each breach, and nothing where all is well. Times are monotonic seconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mcpvisor.supervisor.states import State

NOT_DONE = frozenset({"not_sent", "rejected"})
"""Outcomes which say that the server has surely not done it."""


@dataclass(frozen=True)
class Called:
    """One call of a tool, and what became of it: `ok`, or an outcome; `text` is the answer, or the failure in words."""

    server: str
    id: str
    began: float
    ended: float
    deadline: float
    outcome: str
    text: str


@dataclass(frozen=True)
class Moved:
    """A server was shown in another state."""

    server: str
    at: float
    state: State


@dataclass(frozen=True)
class Span:
    """A time in which something was so: a server was dead or stopped, or the run itself was held up."""

    begin: float
    end: float
    server: str = ""
    what: str = ""

    def shared_with(self, begin: float, end: float) -> float:
        """Seconds of it that lie between the two times."""
        return max(0.0, min(self.end, end) - max(self.begin, begin))


@dataclass(frozen=True)
class Changed:
    """The resource of a server changed, or may have, as after the start of another process."""

    server: str
    at: float


@dataclass(frozen=True)
class Updated:
    """A subscriber was told of a change; `exact`: of this one, and not that there may have been any number."""

    server: str
    at: float
    exact: bool


@dataclass(frozen=True)
class Recovery:
    """A fault, when its cause was over, and when its server was ready and answered again; None: it was not."""

    server: str
    fault: str
    over: float
    well: float | None
    shown: str = ""


def executed_twice(executed: Iterable[str]) -> list[str]:
    """No call is executed twice: `executed` are the ids of calls, one for each execution."""
    return [f"{call} was executed {times} times" for call, times in Counter(executed).items() if times > 1]


def untrue_outcomes(calls: Iterable[Called], executed: set[str]) -> list[str]:
    """What is told of a call is so: done where it has a result, not done where it is said to be unsent, and its own answer."""
    found: list[str] = []
    for call in calls:
        done = call.id in executed
        if call.outcome in NOT_DONE and done:
            found.append(f"{call.id} was told {call.outcome} ({call.text}), and was executed")
        elif call.outcome == "ok" and not done:
            found.append(f"{call.id} has a result, and was not executed")
        elif call.outcome == "ok" and call.text != call.id:
            found.append(f"{call.id} was given the answer to {call.text}")
    return found


def outlived_deadlines(calls: Iterable[Called], slack: float, stalls: list[Span]) -> list[str]:
    """No call outlives its deadline, by more than `slack` and what the run itself was held up meanwhile."""
    found: list[str] = []
    for call in calls:
        over = call.ended - call.began - call.deadline
        if over > slack and over > slack + held_up(stalls, call.began, call.ended):
            took = call.ended - call.began
            found.append(f"{call.id} ended after {took:.3f} s of {call.deadline:.3f} s as {call.outcome} ({call.text})")
    return found


def false_states(moves: Iterable[Moved], dead: Iterable[Span], allowed: float, stalls: list[Span]) -> list[str]:
    """No server is shown ready for longer than `allowed` while it is dead or stopped."""
    shown: dict[str, list[Moved]] = defaultdict(list)
    for move in moves:
        shown[move.server].append(move)
    found: list[str] = []
    for span in dead:
        moved = shown[span.server]
        for index, move in enumerate(moved):
            until = moved[index + 1].at if index + 1 < len(moved) else float("inf")
            false = span.shared_with(move.at, until) if move.state == State.READY else 0.0
            begin = max(span.begin, move.at)
            if false > allowed and false > allowed + held_up(stalls, begin, begin + false):
                found.append(
                    f"{span.server} was shown ready for {false:.3f} s after it was hit ({span.what}, at {span.begin:.3f})"
                )
    return found


def lost_updates(changes: Iterable[Changed], updates: Iterable[Updated], within: float, stalls: list[Span]) -> list[str]:
    """Every change is told by an update of its own, or by a later word that there may have been some, in so many seconds.

    An exact update tells the oldest change that is not told yet: two changes want two of them.
    """
    told: dict[str, list[Updated]] = defaultdict(list)
    for update in sorted(updates, key=lambda update: update.at):
        told[update.server].append(update)
    found: list[str] = []
    next_up: Counter[str] = Counter()
    for change in sorted(changes, key=lambda change: change.at):
        server, mine = change.server, told[change.server]
        while next_up[server] < len(mine) and mine[next_up[server]].at < change.at:
            next_up[server] += 1
        if next_up[server] == len(mine):
            found.append(f"{server} changed at {change.at:.3f}, which nobody was told")
            continue
        update = mine[next_up[server]]
        next_up[server] += update.exact
        if update.at - change.at > within + held_up(stalls, change.at, update.at):
            found.append(f"{server} changed at {change.at:.3f}, which was told {update.at - change.at:.3f} s later")
    return found


def not_recovered(recoveries: Iterable[Recovery], budget: float, stalls: list[Span]) -> list[str]:
    """Every server is ready and answers in so many seconds after the cause of a fault is over."""
    found: list[str] = []
    for one in recoveries:
        if one.well is None:
            found.append(f"{one.server} did not recover from {one.fault}: {one.shown}")
        elif one.well - one.over > budget + held_up(stalls, one.over, one.well):
            found.append(f"{one.server} took {one.well - one.over:.3f} s to recover from {one.fault}")
    return found


def left_over(processes: list[int], before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """No process is left, and no file descriptor (`before` and `after`: what each of ours stands for)."""
    found = [f"process {pid} is left" for pid in processes]
    more = Counter(after.values()) - Counter(before.values()) if len(after) > len(before) else Counter[Any]()
    return found + [f"{count} more of {what}" for what, count in more.items()]


def held_up(stalls: list[Span], begin: float, end: float) -> float:
    """How long the run itself stood still between the two times: what it measures then, it measures late."""
    return sum(stall.shared_with(begin, end) for stall in stalls)

"""Owns the versions on trial: looks at each whenever its server moves or its time is over, and has bad ones taken back."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from mcpvisor.daemon.config.held_back import HeldBack
from mcpvisor.daemon.versions.trial import Sight, Trial, Verdict, judge
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.events import ConnectEnded, Event, OperatorOrdered, ServerStateChanged, ServerUpdated
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec, change_between
from mcpvisor.supervisor.states import UP, State
from mcpvisor.supervisor.supervisor import Order, Supervisor

_TELLING: Final = (ServerStateChanged, ConnectEnded, ServerUpdated)
_SAME_SESSION: Final = (Change.KEEP, Change.UPDATE)

RollBack = Callable[[HeldBack, Callable[[], bool]], Awaitable[None]]
"""Put the former version in force, where the second still says so once nothing else is being applied."""


@dataclass(frozen=True, slots=True)
class Good:
    """A version that its server was ready with, and when that was first seen, in wall-clock seconds."""

    spec: ServerSpec
    at: float


@dataclass(frozen=True, slots=True)
class Before:
    """A server just before something is applied."""

    spec: ServerSpec
    is_up: bool


class Trials:
    """What is on trial, and which version of each server was ready last."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        roll_back: RollBack,
        let_go: Callable[[str], Awaitable[None]],
        on_good: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`let_go` is called for a server that an operator restarts, `on_good` when another version was seen to be ready."""
        self._supervisor = supervisor
        self._roll_back = roll_back
        self._let_go = let_go
        self._on_good = on_good
        self._trials: dict[str, Trial] = {}
        self._good: dict[str, Good] = {}
        self._ordered: dict[str, None] = {}
        self._woken = anyio.Event()
        supervisor.bus.attach(self._told)

    # What is applied

    def before(self) -> dict[str, Before]:
        """Every server as it is now; to be given to `applied` once something was."""
        found: dict[str, Before] = {}
        for name in self._supervisor.names():
            spec = self._supervisor.spec(name)
            if spec is not None:
                found[name] = Before(spec, self._supervisor.status(name).state in UP)
        return found

    def applied(
        self, changes: Iterable[PlannedChange], before: Mapping[str, Before], formers: Mapping[str, Good] | None = None
    ) -> None:
        """Specs were applied: what replaces a version that was ready is on trial. `formers` are versions known otherwise."""
        for change in changes:
            known = (formers or {}).get(change.server)
            if change.change is Change.STOP:
                self._trials.pop(change.server, None)
                self._good.pop(change.server, None)
            elif known is not None or change.change is not Change.KEEP:
                self._changed(change, before.get(change.server), known)
        self._woken.set()

    def _changed(self, change: PlannedChange, before: Before | None, known: Good | None) -> None:
        name = change.server
        spec = self._supervisor.spec(name)
        if spec is None:
            return
        trial: Trial | None
        if known is not None:
            self._good[name] = known
            trial = Trial(candidate=spec, former=known.spec, former_at=known.at, patient=change.change is Change.START)
        else:
            trial = self._trials.get(name) or self._trial_after(name, before, spec)
        if trial is None or not spec.rollback or not spec.enabled or change_between(trial.former, spec).change in _SAME_SESSION:
            self._trials.pop(name, None)
        else:
            self._trials[name] = trial.edited(spec, restarts=change.change is not Change.UPDATE)
        self._look(name)

    def _trial_after(self, name: str, before: Before | None, spec: ServerSpec) -> Trial | None:
        """A trial against the version that was in force, where its server was up with it and had been ready."""
        good = self._good.get(name)
        if (
            good is None
            or before is None
            or not before.is_up
            or change_between(good.spec, before.spec).change not in _SAME_SESSION
        ):
            return None
        return Trial(candidate=spec, former=before.spec, former_at=good.at)

    def good(self, name: str) -> Good | None:
        """The version that a server was last ready with; None while it was not."""
        return self._good.get(name)

    def view(self, name: str) -> dict[str, Any] | None:
        """Until when a version is on trial, as `reload --json` says it; None where none is."""
        trial = self._trials.get(name)
        if trial is None or self._verdict(name) in (Verdict.GOOD, Verdict.STANDS):  # its end may not have been seen to yet
            return None
        until = None if trial.until is None else time.time() + trial.until - anyio.current_time()
        return {"within": trial.candidate.start_timeout, "until": until}

    def under_way(self) -> list[dict[str, Any]]:
        """Every trial, with its server."""
        views = ((name, self.view(name)) for name in list(self._trials))
        return [{"server": name, **view} for name, view in views if view is not None]

    # What is seen

    def _told(self, event: Event) -> None:
        if isinstance(event, OperatorOrdered) and event.order == Order.RESTART.value:
            self._ordered[event.server] = None
            self._woken.set()
        elif isinstance(event, _TELLING):
            self._look(event.server)

    def _look(self, name: str) -> None:
        try:
            status, spec = self._supervisor.status(name), self._supervisor.spec(name)
        except UnknownServer:  # it is on its way out, and what becomes of it is nobody's version any more
            return
        sight = Sight.of(status)
        if spec is not None and sight.coming is State.READY:
            known = self._good.get(name)
            if known is None or known.spec != spec:
                self._good[name] = Good(spec, time.time())
                self._on_good(name)
        trial = self._trials.get(name)
        if trial is not None:
            self._trials[name] = trial.seen(sight, anyio.current_time())
            self._woken.set()

    # What follows

    async def run(self) -> None:
        """See to the trials until cancelled."""
        while True:
            self._woken = anyio.Event()
            ordered, self._ordered = self._ordered, {}
            for name in ordered:
                await self._let_go(name)
            for name in list(self._trials):
                await self._see_to(name)
            now = anyio.current_time()
            due = [one.until for one in self._trials.values() if one.until is not None and one.until > now]
            with anyio.move_on_at(min(due, default=math.inf)):
                await self._woken.wait()

    async def _see_to(self, name: str) -> None:
        match self._verdict(name):
            case Verdict.GOOD | Verdict.STANDS:
                self._trials.pop(name, None)
            case Verdict.ROLL_BACK:
                trial = self._trials[name]
                held = HeldBack(
                    written=trial.candidate,
                    former=trial.former,
                    former_at=trial.former_at,
                    since=time.time(),
                    why=Sight.of(self._supervisor.status(name)).reason,
                )
                await self._roll_back(held, lambda: self._verdict(name) is Verdict.ROLL_BACK)
                if self._verdict(name) is Verdict.ROLL_BACK and self._trials[name].candidate == trial.candidate:
                    del self._trials[name]  # nothing of it is in force any more that could be taken back
            case _:
                pass

    def _verdict(self, name: str) -> Verdict:
        trial = self._trials.get(name)
        try:
            status = self._supervisor.status(name)
        except UnknownServer:
            self._trials.pop(name, None)
            return Verdict.REST
        return Verdict.REST if trial is None else judge(trial, Sight.of(status), anyio.current_time())

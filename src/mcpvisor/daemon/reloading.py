"""Owns reloads from end to end: whoever asks, files in, servers changed, and systemd, metrics and the caller told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from mcpvisor.daemon.config.applied import Applied, decide, hold_back, let_go
from mcpvisor.daemon.config.held_back import HeldBack
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.reload import Reloader, ReloadReport
from mcpvisor.daemon.config.settings import changed_settings
from mcpvisor.daemon.control.drift import OrderedLevel, drift_between
from mcpvisor.daemon.control.reloading import ConfigState, LastChange, Plan
from mcpvisor.daemon.control.reloading import ReloadReport as ReloadAnswer
from mcpvisor.daemon.handlers.changes import HandlerChange
from mcpvisor.daemon.handlers.engine import HandlerEngine
from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.daemon.handlers.specs import HandlerSpec, known_in_handler
from mcpvisor.daemon.handlers.watching import watch
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.daemon.reload_telling import gone_files, state_of, under_way
from mcpvisor.daemon.systemd import Notifier
from mcpvisor.daemon.versions.shelf import Shelf
from mcpvisor.daemon.versions.trials import Good, Trials
from mcpvisor.metrics.recorder import MetricsRecorder, ReloadOutcome
from mcpvisor.supervisor.host_events import VersionRolledBack
from mcpvisor.supervisor.invalid import InvalidEntry
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.process.environment import known_in
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec
from mcpvisor.supervisor.supervisor import Supervisor


class DaemonReloading:
    """The daemon's answer to SIGHUP, to a changed file and to `mcpvisor reload`; see `control.reloading.Reloading`."""

    def __init__(
        self,
        reloader: Reloader,
        supervisor: Supervisor,
        *,
        handlers: HandlerEngine,
        notifier: Notifier,
        status_line: Callable[[], str],
        known_secrets: KnownSecrets,
        shelf: Shelf | None = None,
        ordered_level: Callable[[], OrderedLevel | None] = lambda: None,
    ) -> None:
        """`shelf` keeps versions for the next run of the daemon; None where nothing can be kept."""
        self._known_secrets = known_secrets
        self._ordered_level = ordered_level
        self._handlers = handlers
        self._reloader = reloader
        self._supervisor = supervisor
        self._notifier = notifier
        self._status_line = status_line
        self._shelf = shelf
        self._trials = Trials(supervisor, roll_back=self._roll_back, let_go=self._let_go, on_good=self._keep_one)
        self._last_change: LastChange | None = None
        self.is_stopping = False
        """Set by the daemon at its end: nothing is applied any more."""

    async def reload(self, trigger: str, wait: bool, timeout: float) -> ReloadAnswer:
        """Read and apply; with `wait`, then wait up to `timeout` seconds until every wanted server is ready, or rolled back."""
        before, former = self._reloader.applied, self._last_change
        report = await self.apply(trigger)
        others = self._under_way({change.server for change in report.changes})
        ready = await self._all_ready(timeout) if wait else None
        answer = report.as_json()
        held = {} if self.is_stopping else self._reloader.applied.held
        gone = gone_files(before, self._reloader.applied)
        changes = [
            {**self._told_of(one["server"], held), **one, "gone_file": gone.get(one["server"])} for one in answer["changes"]
        ]
        # All of them: what was edited may have been seen by the watcher before this reload, which then finds nothing new.
        taken_back = [one.problem() for one in held.values()]
        more = [one.rejection() for one in taken_back if one not in report.rejected]
        return ReloadAnswer(
            ok=answer["ok"] and not more,
            changes=changes,
            rejected=[*answer["rejected"], *more],
            hints=answer["hints"],
            needs_restart=answer["needs_restart"],
            ready=ready,
            handlers=answer["handlers"],
            routes_changed=answer["routes_changed"],
            waiting=[one.as_json() for one in report.waiting],
            removals=self.last_config().get("removals", []),
            under_way=[self._told_of(name, held) for name in others],
            last_change=former,
        )

    def _told_of(self, server: str, held: Mapping[str, HeldBack]) -> dict[str, Any]:
        """How the newest version of a server stands, its state aside."""
        return {"server": server, "trial": self._trials.view(server), "rolled_back": server in held}

    def _under_way(self, touched: Collection[str] = ()) -> list[str]:
        """Servers that an earlier edit, or their own end, has on their way."""
        statuses = [] if self.is_stopping else self._supervisor.statuses()
        return list(under_way(statuses, {one.name: self._trials.view(one.name) for one in statuses}, touched))

    async def apply(self, trigger: str) -> ReloadReport:
        """Read everything again and apply what is good; systemd sees a reload around it, whatever comes of it."""
        if self.is_stopping:
            told = Problem(file=None, message="the daemon is stopping: nothing is applied any more")
            return ReloadReport(trigger=trigger, ok=False, changes=(), rejected=(told,), hints=(), needs_restart=())
        self._notifier.reloading()
        try:
            report = await self._reloader.reload(trigger, self.apply_servers, self._apply_handlers)
            self._keep()
            self.show_invalid()
            if report.changes or report.handlers or report.routes_changed:
                servers = [change.server for change in report.changes]
                self._last_change = LastChange(at=time.time(), trigger=trigger, servers=servers)
        finally:
            self._notifier.ready(self._status_line())
        return report

    async def start(self) -> None:
        """Put in force what was read at the start."""
        formers = {name: Good(one.spec, one.at) for name, one in self._reloader.formers.items()}
        changes = await self._supervisor.apply(self._reloader.applied.specs.values())
        self._trials.applied(changes, {}, formers)
        self.show_invalid()
        self._keep()

    async def apply_servers(self, specs: Iterable[ServerSpec]) -> list[PlannedChange]:
        """Make these the servers; what replaces a version that was ready is on trial."""
        before = self._trials.before()
        changes = await self._supervisor.apply(specs)
        self._trials.applied(changes, before)
        return changes

    # Versions that do not become ready

    def _keep(self) -> None:
        """Keep what is good for the next run."""
        if self._shelf is not None:
            self._shelf.keep(self._reloader.applied, self._trials.good)

    def _keep_one(self, name: str) -> None:
        """The same of one server."""
        if self._shelf is not None:
            self._shelf.keep_server(self._reloader.applied, name, self._trials.good)

    async def watch_trials(self) -> None:
        """Take back what does not become ready, until cancelled."""
        await self._trials.run()

    async def _roll_back(self, held: HeldBack, still: Callable[[], bool]) -> None:
        """Put the former version in force, unless something else is wanted by now."""
        name = held.written.name

        def decide(applied: Applied) -> Applied | None:
            return hold_back(applied, held) if still() and not self.is_stopping else None

        async def apply(specs: Iterable[ServerSpec]) -> list[PlannedChange]:
            before = self._trials.before()
            changes = await self._supervisor.apply(specs, reason=f"rolled back to the version of {iso_time(held.former_at)}")
            self._trials.applied(changes, before)
            return changes

        if await self._reloader.change(decide, "rollback", apply) is not None:
            self._keep()
            self._supervisor.tell(
                VersionRolledBack(
                    at=held.since, server=name, origin=held.written.origin, reason=held.why, former_at=held.former_at
                )
            )

    async def _let_go(self, name: str) -> None:
        """An operator restarts a server of which a version is held back: it is tried once more."""
        held = self._reloader.applied.held.get(name)
        if held is None:
            return

        async def apply(specs: Iterable[ServerSpec]) -> list[PlannedChange]:
            before = self._trials.before()
            changes = await self._supervisor.apply(specs, reason="what was rolled back is tried again")
            self._trials.applied(changes, before, {name: Good(held.former, held.former_at)})
            return changes

        await self._reloader.change(partial(_let_go_of, held), "order", apply)
        self._keep()

    def _apply_handlers(self, specs: Mapping[str, HandlerSpec], routing: Routing) -> tuple[HandlerChange, ...]:
        learn_secrets(self._known_secrets, self._reloader.applied)
        changes = self._handlers.apply(specs, routing)
        watch(self._supervisor, routing)
        return changes

    def show_invalid(self) -> None:
        """Let entries that cannot be used, or have to wait, and have no last good version, be seen as failed servers."""
        applied = self._reloader.applied
        waiting = {
            one.server: InvalidEntry(name=one.server, reason=one.told, origin=one.where, waits=True) for one in applied.waiting
        }
        wrong = {
            one.server: InvalidEntry(name=one.server, reason=one.fault, origin=one.where) for one in reversed(applied.rejected)
        }
        entries = {**waiting, **wrong}
        self._supervisor.show_invalid(entry for name, entry in entries.items() if name and name not in applied.specs)

    async def plan(self, paths: Sequence[str]) -> Plan:
        """What a reload would do, from `paths` or from the daemon's own files. Changes nothing."""
        if not paths:
            applied = await self._reloader.preview()
            state = state_of(applied, self._reloader.removals(applied))
            plan = self._plan(applied, state, applied.needs_restart)
            held = self._reloader.applied.held
            gone = gone_files(self._reloader.applied, applied)
            touched = {one.server for one in plan.servers if one.change is not Change.KEEP}
            return replace(plan, under_way=[self._told_of(name, held) for name in self._under_way(touched)], gone_files=gone)
        read = partial(load, [Path(path) for path in paths], dict(os.environ))
        loaded = await anyio.to_thread.run_sync(read)
        found = decide(None, loaded, anyio.current_time())
        settings = changed_settings(self._reloader.applied.running, found.basis.settings) if found is not None else ()
        state = ConfigState(ok=not loaded.problems, rejected=[one.rejection() for one in loaded.problems])
        return self._plan(found, state, settings)

    def _plan(self, applied: Applied | None, state: ConfigState, settings: tuple[str, ...]) -> Plan:
        now = self._reloader.applied
        level = (applied or now).basis.settings.log.level
        routing = applied.routing if applied is not None else Routing()
        return Plan(
            servers=self._supervisor.plan(applied.specs.values() if applied is not None else ()),
            handlers=self._handlers.plan(applied.handlers if applied is not None else {}),
            routes_changed=routing != self._handlers.routing,
            config=state,
            needs_restart=settings,
            drift=drift_between(
                self._supervisor.statuses(), applied.specs if applied is not None else {}, self._ordered_level(), level
            ),
            routing=routing,
            routing_now=self._handlers.routing,
        )

    def is_on_trial(self, name: str) -> bool:
        """Whether the version of a server that is in force is on trial."""
        return self._trials.view(name) is not None

    def last_config(self) -> ConfigState:
        """The verdict on the configuration that was last read."""
        state = state_of(self._reloader.applied, self._reloader.removals())
        return {**state, "trials": self._trials.under_way()}

    async def _all_ready(self, timeout: float) -> bool:
        with anyio.move_on_after(timeout):
            for name in self._supervisor.names():
                await self._supervisor.wait_until(name, lambda status: status.is_settled)
            return True
        return False


def _let_go_of(held: HeldBack, applied: Applied) -> Applied | None:
    return let_go(applied, held.written.name) if applied.held.get(held.written.name) == held else None


def learn_secrets(known: KnownSecrets, applied: Applied) -> None:
    """Let what is in force be masked wherever it is told, whoever tells it."""
    known.learn(
        [
            *(value for spec in applied.specs.values() for value in known_in(spec, os.environ)),
            *(value for handler in applied.handlers.values() for value in known_in_handler(handler, os.environ)),
        ]
    )


def faults_in_status(applied: Applied) -> str:
    """What systemd's one line says of the configuration: how much is not in force, the oldest of it and since when."""
    if not applied.rejected:
        return ""
    count = len(applied.rejected)
    oldest = min(applied.rejected, key=lambda one: one.since or 0.0)
    first = ", the first" if count > 1 else ""
    since = f" since {iso_time(oldest.since)}" if oldest.since else ""
    told = f"; {count} configuration error{'s' if count > 1 else ''}{first} at {oldest.line_of_file}{since}"
    if waiting := len(applied.waiting):
        told += f", for which {waiting} more edit{'s wait' if waiting > 1 else ' waits'}"
    mains = {None, *applied.basis.mains}
    of_settings = [one for one in applied.rejected if not one.server and not one.handler and one.file in mains]
    return f"{told}, and settings that an earlier run has kept" if any(one.version_of for one in of_settings) else told


def count_reload(recorder: MetricsRecorder, report: ReloadReport) -> None:
    """Tell the metrics what came of a reload."""
    outcome: ReloadOutcome = "applied" if report.ok else "partial" if report.changes or report.handlers else "rejected"
    recorder.config_reloaded(report.trigger, outcome, time.time())
    recorder.rejected_entries(len(report.rejected) + len(report.waiting))

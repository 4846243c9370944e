"""Owns reloads from end to end: whoever asks, files in, servers changed, and systemd, metrics and the caller told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from mcpvisor.daemon.config.applied import Applied, decide
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.reload import Reloader, ReloadReport, rejected_json
from mcpvisor.daemon.config.settings import changed_settings
from mcpvisor.daemon.control.drift import OrderedLevel, drift_between
from mcpvisor.daemon.control.reloading import ConfigState, Plan
from mcpvisor.daemon.control.reloading import ReloadReport as ReloadAnswer
from mcpvisor.daemon.handlers.changes import HandlerChange
from mcpvisor.daemon.handlers.engine import HandlerEngine
from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.daemon.handlers.watching import watch
from mcpvisor.daemon.systemd import Notifier
from mcpvisor.metrics.recorder import MetricsRecorder, ReloadOutcome
from mcpvisor.supervisor.invalid import InvalidEntry
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
        ordered_level: Callable[[], OrderedLevel | None] = lambda: None,
    ) -> None:
        self._ordered_level = ordered_level
        self._handlers = handlers
        self._reloader = reloader
        self._supervisor = supervisor
        self._notifier = notifier
        self._status_line = status_line
        self.is_stopping = False
        """Set by the daemon at its end: nothing is applied any more."""

    async def reload(self, trigger: str, wait: bool, timeout: float) -> ReloadAnswer:
        """Read and apply; with `wait`, then wait up to `timeout` seconds until every wanted server is ready."""
        report = await self.apply(trigger)
        ready = await self._all_ready(timeout) if wait else None
        answer = report.as_json()
        return ReloadAnswer(
            ok=answer["ok"],
            changes=answer["changes"],
            rejected=answer["rejected"],
            hints=answer["hints"],
            needs_restart=answer["needs_restart"],
            ready=ready,
            handlers=answer["handlers"],
            routes_changed=answer["routes_changed"],
        )

    async def apply(self, trigger: str) -> ReloadReport:
        """Read everything again and apply what is good; systemd sees a reload around it, whatever comes of it."""
        if self.is_stopping:
            told = Problem(file=None, message="the daemon is stopping: nothing is applied any more")
            return ReloadReport(trigger=trigger, ok=False, changes=(), rejected=(told,), hints=(), needs_restart=())
        self._notifier.reloading()
        try:
            report = await self._reloader.reload(trigger, self._supervisor.apply, self._apply_handlers)
            self.show_invalid()
        finally:
            self._notifier.ready(self._status_line())
        return report

    def _apply_handlers(self, specs: Mapping[str, HandlerSpec], routing: Routing) -> tuple[HandlerChange, ...]:
        changes = self._handlers.apply(specs, routing)
        watch(self._supervisor, routing)
        return changes

    def show_invalid(self) -> None:
        """Let entries that cannot be used, and have no last good version, be seen as failed servers."""
        applied = self._reloader.applied
        invalid = {problem.server: problem for problem in reversed(applied.rejected) if problem.server not in applied.specs}
        self._supervisor.show_invalid(
            InvalidEntry(name=name, reason=problem.error, origin=problem.where) for name, problem in invalid.items() if name
        )

    async def plan(self, paths: Sequence[str]) -> Plan:
        """What a reload would do, from `paths` or from the daemon's own files. Changes nothing."""
        if not paths:
            applied = await self._reloader.preview()
            state = _state(applied.ok, rejected_json(applied.rejected))
            return self._plan(applied, state, applied.needs_restart)
        read = partial(load, [Path(path) for path in paths], dict(os.environ))
        loaded = await anyio.to_thread.run_sync(read)
        found = decide(None, loaded, anyio.current_time())
        settings = changed_settings(self._reloader.applied.running, found.basis.settings) if found is not None else ()
        state = _state(not loaded.problems, rejected_json(loaded.problems))
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

    def last_config(self) -> ConfigState:
        """The verdict on the configuration that was last read."""
        applied = self._reloader.applied
        return _state(applied.ok, rejected_json(applied.rejected))

    async def _all_ready(self, timeout: float) -> bool:
        with anyio.move_on_after(timeout):
            for name in self._supervisor.names():
                await self._supervisor.wait_until(name, lambda status: status.is_settled)
            return True
        return False


def count_reload(recorder: MetricsRecorder, report: ReloadReport) -> None:
    """Tell the metrics what came of a reload."""
    outcome: ReloadOutcome = "applied" if report.ok else "partial" if report.changes or report.handlers else "rejected"
    recorder.config_reloaded(report.trigger, outcome, time.time())
    recorder.rejected_entries(len(report.rejected))


def _state(ok: bool, rejected: list[dict[str, object]]) -> ConfigState:
    return ConfigState(
        ok=ok,
        rejected=[{"where": str(one["where"]), "error": str(one["error"]), "server": str(one["server"])} for one in rejected],
    )

"""Owns the configuration in force: reads it again when asked, one reload at a time, and hands the result on."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

from mcpvisor.daemon.config.applied import Applied, Removal, decide
from mcpvisor.daemon.config.load import Basis, Loaded, load
from mcpvisor.daemon.config.look import Fingerprint
from mcpvisor.daemon.config.past import Former, Past, decide_with_past
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.waiting import Waiting
from mcpvisor.daemon.handlers.changes import HandlerChange
from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec

_log = logging.getLogger(__name__)

T = TypeVar("T")

READ_WITHIN: Final = 30.0
"""Seconds that reading all files may take; a dead network file system must not hold the daemon."""

Apply = Callable[[Iterable[ServerSpec]], Awaitable[list[PlannedChange]]]
"""`Supervisor.apply`."""


ApplyHandlers = Callable[[Mapping[str, HandlerSpec], Routing], tuple[HandlerChange, ...]]
"""`HandlerEngine.apply`."""


def _no_handlers(specs: Mapping[str, HandlerSpec], routing: Routing) -> tuple[HandlerChange, ...]:
    del specs, routing
    return ()


class NoConfiguration(Exception):
    """There is nothing to run on; `problems` say why. The exit code for it is 78."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems) or "no configuration")
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What one reload did. `trigger` is a word of a closed set: `start`, `signal`, `command`, `watch`."""

    trigger: str
    ok: bool
    """Whether everything that is written is in force now."""
    changes: tuple[PlannedChange, ...]
    """What happens to each server that is not simply kept."""
    rejected: tuple[Problem, ...]
    hints: tuple[Problem, ...]
    needs_restart: tuple[str, ...]
    waiting: tuple[Waiting, ...] = ()
    """Edits that wait for what was rejected."""
    handlers: tuple[HandlerChange, ...] = ()
    """What happens to each handler that does not stay as it is."""
    routes_changed: bool = False

    def as_json(self) -> dict[str, Any]:
        """The report as the control API and `reload --json` give it."""
        return {
            "ok": self.ok,
            "changes": [{"server": c.server, "change": c.change.value, "fields": list(c.fields)} for c in self.changes],
            "rejected": [problem.rejection() for problem in self.rejected],
            "hints": [{"where": hint.where, "hint": hint.error} for hint in self.hints],
            "needs_restart": list(self.needs_restart),
            "handlers": [change.as_json() for change in self.handlers],
            "routes_changed": self.routes_changed,
        }


def _made(loaded: Loaded, *, previous: Basis | None = None) -> Loaded:  # noqa: ARG001 - as `load` is called
    return loaded


class Reloader:
    """Holds the last good configuration. `on_report` is called after every reload, for metrics, log and systemd."""

    def __init__(
        self,
        paths: Sequence[Path],
        environ: Mapping[str, str],
        *,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        uid: int | None = None,
        on_report: Callable[[ReloadReport], None] | None = None,
        read_within: float = READ_WITHIN,
        past: Callable[[Loaded], Past | None] = lambda _: None,
    ) -> None:
        """`past` finds what an earlier run has kept, where that is needed beside what was loaded; it may read files."""
        self.paths = tuple(paths)
        self._applied: Applied | None = None
        self._environ = dict(environ)
        self._load: Callable[..., Loaded] = partial(
            load, self.paths, self._environ, overrides=overrides, uid=os.geteuid() if uid is None else uid
        )
        self._gone: dict[Path, float] = {}
        self._past = past
        self.formers: Mapping[str, Former] = {}
        """By server the versions that were ready in an earlier run."""
        self._on_report = on_report
        self._told: frozenset[Problem] = frozenset()
        """What the last report had to say: the log has it already, and a reload of something else is no news of it."""
        self._told_waiting: tuple[str, ...] = ()
        self._told_needing: tuple[str, ...] = ()
        self._read_within = read_within
        self._lock = anyio.Lock()
        # Own workers: a read that hangs must not use up those of everybody else, and the next read is to find one free.
        self._workers = anyio.CapacityLimiter(4)

    @classmethod
    def of(cls, loaded: Loaded, *, on_report: Callable[[ReloadReport], None] | None = None) -> Self:
        """A reloader for a configuration that was made in code: there are no files, and every reload finds the same."""
        reloader = cls((), {}, on_report=on_report)
        reloader._load = partial(_made, loaded)
        return reloader

    @property
    def applied(self) -> Applied:
        """What is in force. Raises RuntimeError before `start`."""
        if self._applied is None:
            raise RuntimeError("nothing is loaded before start")
        return self._applied

    @property
    def contents(self) -> Fingerprint:
        """What was in the files when they were last read, for the watcher; nothing before `start`."""
        return self._applied.contents if self._applied is not None else Fingerprint()

    @property
    def recheck_at(self) -> float | None:
        """When a reload is due without any edit, on the clock of `anyio.current_time`; None when none is."""
        return self._applied.recheck_at if self._applied is not None else None

    def note_gone(self, since: Mapping[Path, float]) -> None:
        """Take note of which drop-ins are absent, and since when on the clock of `anyio.current_time`."""
        self._gone = dict(since)

    async def start(self) -> Applied:
        """Read everything for the first time; nothing is applied yet. Raises NoConfiguration."""
        async with self._lock:
            loaded = await self._read()
            if isinstance(loaded, Problem):
                raise NoConfiguration([loaded])
            past = await self._within(partial(self._recalled, loaded))
            if past is not None:
                again = await self._read(past.basis)
                loaded = loaded if isinstance(again, Problem) else again
            applied = decide_with_past(past, loaded, anyio.current_time(), time.time())
            if applied is None:
                raise NoConfiguration(loaded.problems)
            self.formers = past.ready if past is not None else {}
            self._applied = applied
            self._tell(self._report("start", [], applied))
            return applied

    async def preview(self) -> Applied:
        """What is written, as it would be in force once absent files have been waited for; nothing changes.

        Where files take too long, that is all it says.
        """
        loaded = await self._read()
        if isinstance(loaded, Problem):
            return _unread(self.applied, loaded)
        return decide(self.applied, loaded, anyio.current_time(), is_final=True, at=time.time()) or self.applied

    def removals(self, preview: Applied | None = None) -> tuple[Removal, ...]:
        """The servers that go by themselves, since their files are absent; with a `preview` also those that it finds so."""
        gone = dict(self._gone)
        if preview is not None:
            now = anyio.current_time()
            gone = {path: gone.get(path, now) for path in self.applied.files if path not in preview.files}
        return self.applied.removals(gone)

    async def reload(self, trigger: str, apply: Apply, apply_handlers: ApplyHandlers = _no_handlers) -> ReloadReport:
        """Read everything again and apply what is good. Reloads wait for each other; a bad file raises nothing."""
        async with self._lock:
            last = self.applied
            loaded = await self._read()
            if isinstance(loaded, Problem):
                self._applied = _unread(last, loaded)
                report = self._report(trigger, (), self._applied)
                self._tell(report)
                return report
            gone, self._gone = self._gone, {}
            applied = decide(last, loaded, anyio.current_time(), gone=gone, at=time.time()) or last
            changes = await apply(applied.specs.values())
            # Only now: a cancelled or failed apply leaves the old state to compare the next reload with.
            self._applied = applied
            _tell_removals(last, applied)
            handlers = apply_handlers(applied.handlers, applied.routing)
            report = replace(
                self._report(trigger, changes, applied),
                handlers=handlers,
                routes_changed=applied.routing != last.routing,
            )
            self._tell(report)
            return report

    async def change(self, decide: Callable[[Applied], Applied | None], trigger: str, apply: Apply) -> ReloadReport | None:
        """Put something else in force without reading anything: what `decide` makes of what is. None where it makes nothing.

        It waits for a reload that is under way, and is asked after that: what was edited meanwhile is known to it.
        """
        async with self._lock:
            applied = decide(self.applied)
            if applied is None:
                return None
            changes = await apply(applied.specs.values())
            self._applied = applied
            report = self._report(trigger, changes, applied)
            if self._on_report is not None:
                self._on_report(report)
            return report

    def _recalled(self, loaded: Loaded) -> Past | None:
        """What an earlier run has kept; whatever is wrong with it must not keep the daemon from its start."""
        try:
            return self._past(loaded)
        except Exception:  # noqa: BLE001 - a fault of ours, or a file that no mcpvisor has written
            _log.exception("what an earlier run has kept of the configuration cannot be used")
            return None

    async def _within(self, read: Callable[[], T]) -> T | None:
        """What a function returns that reads files, None where that takes too long."""
        with anyio.move_on_after(self._read_within):
            return await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._workers)
        return None

    async def _read(self, previous: Basis | None = None) -> Loaded | Problem:
        previous = self._applied.basis if self._applied is not None else previous
        loaded = await self._within(partial(self._load, previous=previous))
        if loaded is not None:
            return loaded
        message = f"reading the files took longer than {self._read_within:g} s"
        keeps, file = previous is not None, self.paths[0] if self.paths else None
        return Problem(file=file, message=message, keeps_running=keeps, keeps_servers=keeps)

    def _report(self, trigger: str, changes: Iterable[PlannedChange], applied: Applied) -> ReloadReport:
        return ReloadReport(
            trigger=trigger,
            ok=applied.ok,
            changes=tuple(change for change in changes if change.change is not Change.KEEP),
            rejected=applied.rejected,
            hints=applied.hints,
            needs_restart=applied.needs_restart,
            waiting=applied.waiting,
        )

    def _tell(self, report: ReloadReport) -> None:
        told, self._told = self._told, frozenset((*report.rejected, *report.hints))
        for problem in report.rejected:
            if problem not in told:
                _log.error("configuration: %s", problem)
        waiting, self._told_waiting = self._told_waiting, tuple(one.label for one in report.waiting)
        if self._told_waiting and self._told_waiting != waiting:
            edits = ", ".join(self._told_waiting)
            _log.error("configuration: edits of %s wait until %s is corrected", edits, report.waiting[0].fault.where)
        needing, self._told_needing = self._told_needing, report.needs_restart
        if self._told_needing and self._told_needing != needing:
            _log.warning("configuration: read when the daemon starts, and another by now: %s", ", ".join(self._told_needing))
        for hint in report.hints:
            if hint not in told:
                _log.info("configuration: %s", hint)
        if self._on_report is not None:
            self._on_report(report)


def _unread(last: Applied, problem: Problem) -> Applied:
    """What is in force after nothing could be read: all as it was, and whoever asks hears of it until the next reading."""
    return replace(last, rejected=(replace(problem, since=time.time()), *(one for one in last.rejected if one != problem)))


def _tell_removals(before: Applied, after: Applied) -> None:
    """Say which files took servers with them: an hour later nobody can see that any more."""
    for path, good in before.files.items():
        removed = [name for name in good.specs if name not in after.specs]
        if path not in after.files and removed:
            _log.warning("configuration: %s is gone, and with it %s", path, ", ".join(removed))

"""Owns the decision what a reload applies: which entries are new, which keep their last good version, which go.

Nothing here reads a file or a clock: what is written and what time it is are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcpvisor.daemon.config import meanwhile
from mcpvisor.daemon.config.absences import ABSENCE
from mcpvisor.daemon.config.ages import Ages
from mcpvisor.daemon.config.deciding import Deciding
from mcpvisor.daemon.config.good_files import GoodFile
from mcpvisor.daemon.config.held_back import HeldBack
from mcpvisor.daemon.config.load import Basis, Loaded
from mcpvisor.daemon.config.look import Fingerprint
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.settings import Settings, changed_settings
from mcpvisor.daemon.config.waiting import Goal, Waiting, dated, waiting_between
from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.daemon.handlers.specs import OPERATOR, HandlerSpec
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(frozen=True, slots=True)
class Removal:
    """A server whose drop-in is away: since when, and when it goes unless the file comes back; both on the clock of `now`."""

    server: str
    file: Path
    since: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What is in force after a reload; also what the next one falls back on."""

    basis: Basis
    running: Settings
    """The settings that the daemon was started with."""
    files: Mapping[Path, GoodFile]
    specs: Mapping[str, ServerSpec]
    """The goal of every server, for the supervisor."""
    handlers: Mapping[str, HandlerSpec] = field(default_factory=dict[str, HandlerSpec])
    routing: Routing = field(default_factory=Routing)
    held: Mapping[str, HeldBack] = field(default_factory=dict[str, HeldBack])
    """By server the versions that did not become ready; `specs` has the former one of each."""
    rejected: tuple[Problem, ...] = ()
    """Everything that is wrong and not in force; each says whether a last good version keeps running, and since when."""
    waiting: tuple[Waiting, ...] = ()
    """Everything that is right and not in force, since it waits for what is wrong."""
    ages: Ages = field(default_factory=Ages)
    """Of what an earlier run of the daemon has kept, and is in force in the place of what is wrong."""
    hints: tuple[Problem, ...] = ()
    contents: Fingerprint = field(default_factory=Fingerprint)
    """What was in the files when they were last read, good or bad."""
    recheck_at: float | None = None
    """When an absence becomes a removal, on the clock that `now` was read from; None when nothing is pending."""

    @property
    def written(self) -> dict[str, ServerSpec]:
        """The last good version of every server as it is written: what is held back is in force by its former one."""
        return {name: self.held[name].written if name in self.held else spec for name, spec in self.specs.items()}

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """Settings, as `section.key`, that are written otherwise than the daemon was started with."""
        return changed_settings(self.running, self.basis.settings)

    @property
    def ok(self) -> bool:
        """Whether everything that is written is in force."""
        return not self.rejected

    def removals(self, gone: Mapping[Path, float]) -> tuple[Removal, ...]:
        """The servers that go by themselves when the time of their files is up; of `gone` files no reload knows yet."""
        found: list[Removal] = []
        written = self.written
        waiting = {one.server for one in self.waiting}
        for path, good in self.files.items():
            since = good.gone_since if good.gone_since is not None else gone.get(path)
            if since is not None and not good.is_named:
                names = [name for name, spec in good.specs.items() if written.get(name) is spec and name not in waiting]
                found += [Removal(name, path, since, since + ABSENCE) for name in names]
        return tuple(found)


def decide(
    last: Applied | None,
    loaded: Loaded,
    now: float,
    *,
    gone: Mapping[Path, float] | None = None,
    is_final: bool = False,
    at: float = 0.0,
) -> Applied | None:
    """What to apply of what was loaded. None when there is nothing to run on: no settings, and none from before.

    `now` is a monotonic time in seconds, `at` the same on the clock of the wall; `gone` are drop-ins of which it is known since
    when they are absent. With `is_final` an absence is a removal at once, which shows what is to come.
    """
    basis = loaded.basis or (last.basis if last is not None else None)
    if basis is None:
        return None
    files = last.files if last is not None else {}
    deciding = Deciding(files, loaded, now, gone or {}, is_final=is_final)
    would = _decided(last, loaded, basis, deciding, at)
    if last is None or not basis.settings.daemon.strict or not loaded.problems:
        return would
    later = _decided(last, loaded, basis, Deciding(files, loaded, now, {}, is_final=True), at)
    gone_since = {path: would.files[path].gone_since if path in would.files else now - ABSENCE for path in files}
    kept = _kept(last, later, loaded, at, deciding.extra)
    return replace(kept, files={path: replace(good, gone_since=gone_since[path]) for path, good in files.items()})


def _decided(last: Applied | None, loaded: Loaded, basis: Basis, deciding: Deciding, at: float) -> Applied:
    """What is applied where no fault holds back what is right."""
    files = deciding.files()
    written = deciding.merged(files)
    known = last.held if last is not None else {}
    # With the very spec of the file in it: what is kept of an entry is known by it.
    held = {name: replace(one, written=written[name]) for name, one in known.items() if written.get(name) == one.written}
    specs = {name: held[name].former if name in held else spec for name, spec in written.items()}
    handlers = deciding.handlers(files)
    before = last.written if last is not None else None
    rejected = deciding.rejected(written, handlers, before, last.handlers if last is not None else {})
    ages = last.ages if last is not None else Ages()
    ages = ages.after(rejected, [name for name, spec in written.items() if (before or {}).get(name) is spec])
    gone_since = [good.gone_since for good in files.values() if good.gone_since is not None]
    return Applied(
        basis=basis,
        running=last.running if last is not None else basis.settings,
        files=files,
        specs=specs,
        handlers=handlers,
        routing=deciding.routing(files).only({**handlers, OPERATOR: None}),
        held=held,
        rejected=(*_since(ages.dated(rejected), last, at), *(one.problem() for one in held.values())),
        ages=ages,
        hints=loaded.hints,
        contents=loaded.contents,
        recheck_at=min(gone_since) + ABSENCE if gone_since else None,
    )


def _kept(last: Applied, would: Applied, loaded: Loaded, at: float, others: Iterable[Problem]) -> Applied:
    """All as it was, and what waits for the faults that were found; `would` be in force without them, all absences included.

    `others` are problems that hold back nothing.
    """
    kept = [replace(one, keeps_running=True, keeps_servers=True, meanwhile=meanwhile.STRICT) for one in loaded.problems]
    faults = _since(last.ages.dated(kept), last, at)
    before = Goal(servers=last.written, handlers=last.handlers, routing=last.routing)
    settings = changed_settings(last.basis.settings, would.basis.settings)
    after = Goal(servers=would.written, handlers=would.handlers, routing=would.routing, settings=settings)
    return replace(
        last,
        rejected=(*faults, *_since(others, last, at), *(one.problem() for one in last.held.values())),
        waiting=dated(waiting_between(before, after, faults), last.waiting, at),
        hints=loaded.hints,
        contents=loaded.contents,
        recheck_at=None,
    )


def _since(problems: Iterable[Problem], last: Applied | None, at: float) -> tuple[Problem, ...]:
    """The problems with the time since when each subject has had one: from before, or `at`."""
    known = {_subject(one): one.since for one in last.rejected} if last is not None else {}
    return tuple(replace(one, since=known.get(_subject(one), at)) for one in problems)


def _subject(problem: Problem) -> tuple[str, ...]:
    """What a problem is about, whatever is wrong with it now."""
    if problem.server or problem.handler:
        return problem.server, problem.handler
    return str(problem.file or ""), problem.source, problem.key_path


def hold_back(applied: Applied, held: HeldBack) -> Applied | None:
    """Put the former version of a server in force. None where another one than `held.written` is wanted by now, or none."""
    name = held.written.name
    if name not in applied.specs or applied.specs[name] != held.written:
        return None
    held = replace(held, written=applied.specs[name])
    return replace(
        applied,
        specs={**applied.specs, name: held.former},
        held={**applied.held, name: held},
        rejected=(*applied.rejected, held.problem()),
    )


def let_go(applied: Applied, name: str) -> Applied | None:
    """Put the version that is written in force again. None where none is held back."""
    held = applied.held.get(name)
    if held is None:
        return None
    return replace(
        applied,
        specs={**applied.specs, name: held.written},
        held={server: one for server, one in applied.held.items() if server != name},
        rejected=tuple(problem for problem in applied.rejected if problem != held.problem()),
    )

"""Owns the decision what a reload applies: which entries are new, which keep their last good version, which go.

Nothing here reads a file or a clock: what is written and what time it is are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcpvisor.daemon.config import meanwhile
from mcpvisor.daemon.config.absences import ABSENCE
from mcpvisor.daemon.config.ages import Ages
from mcpvisor.daemon.config.held_back import HeldBack
from mcpvisor.daemon.config.load import Basis, FileLoad, Loaded
from mcpvisor.daemon.config.look import Fingerprint
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.settings import Settings, changed_settings
from mcpvisor.daemon.config.written import Written
from mcpvisor.daemon.handlers.routing import Route, Routing, RoutingOptions
from mcpvisor.daemon.handlers.specs import OPERATOR, HandlerSpec
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodHandlers:
    """The last good handlers and routes of one file; routes count together, since their order says what they mean."""

    handlers: Mapping[str, HandlerSpec] = field(default_factory=dict[str, HandlerSpec])
    routes: tuple[Route, ...] = ()
    options: RoutingOptions | None = None


@dataclass(frozen=True, slots=True)
class GoodFile:
    """The last good entries of one file. `gone_since` is set while a drop-in is absent and its time is not up."""

    specs: Mapping[str, ServerSpec]
    is_named: bool
    gone_since: float | None = None
    handlers: GoodHandlers = field(default_factory=GoodHandlers)
    written: Mapping[str, Written] = field(default_factory=dict[str, Written])
    """The same entries as they are written."""
    sections: Written | None = None
    ways: Written | None = None
    """The last good settings, and the last good handlers and routes, as they are written; None where there were none yet."""


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
    """Everything that is written and not in force; each says whether a last good version keeps running."""
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


def decide(last: Applied | None, loaded: Loaded, now: float, *, gone: Mapping[Path, float] | None = None) -> Applied | None:
    """What to apply of what was loaded. None when there is nothing to run on: no settings, and none from before.

    `now` is a monotonic time in seconds; `gone` are drop-ins of which it is known since when they are absent.
    """
    basis = loaded.basis or (last.basis if last is not None else None)
    if basis is None:
        return None
    if last is not None and basis.settings.daemon.strict and loaded.problems:
        kept = tuple(
            replace(one, keeps_running=True, keeps_servers=True, meanwhile=meanwhile.STRICT) for one in loaded.problems
        )
        kept = (*last.ages.dated(kept), *(one.problem() for one in last.held.values()))
        return replace(last, rejected=kept, hints=loaded.hints, contents=loaded.contents, recheck_at=None)
    deciding = _Deciding(last.files if last is not None else {}, loaded, now, gone or {})
    files = deciding.files()
    written = deciding.merged(files)
    known = last.held if last is not None else {}
    # With the very spec of the file in it: what is kept of an entry is known by it.
    held = {name: replace(one, written=written[name]) for name, one in known.items() if written.get(name) == one.written}
    specs = {name: held[name].former if name in held else spec for name, spec in written.items()}
    handlers = deciding.handlers(files)
    rejected = deciding.rejected(written, handlers, last)
    ages = last.ages if last is not None else Ages()
    before = last.written if last is not None else {}
    ages = ages.after(rejected, [name for name, spec in written.items() if before.get(name) is spec])
    waiting = [good.gone_since for good in files.values() if good.gone_since is not None]
    return Applied(
        basis=basis,
        running=last.running if last is not None else basis.settings,
        files=files,
        specs=specs,
        handlers=handlers,
        routing=deciding.routing(files).only({**handlers, OPERATOR: None}),
        held=held,
        rejected=(*ages.dated(rejected), *(one.problem() for one in held.values())),
        ages=ages,
        hints=loaded.hints,
        contents=loaded.contents,
        recheck_at=min(waiting) + ABSENCE if waiting else None,
    )


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


@dataclass(slots=True)
class _Deciding:
    """One decision in the making."""

    last: Mapping[Path, GoodFile]
    loaded: Loaded
    now: float
    gone: Mapping[Path, float]
    extra: list[Problem] = field(default_factory=list[Problem])

    def files(self) -> dict[Path, GoodFile]:
        """The good entries of each file: first those kept of files that are absent, then the files in order."""
        present = {load.file.path: self._present(load) for load in self.loaded.loads}
        absent = {path: self._absent(path, before) for path, before in self.last.items() if path not in present}
        return {**{path: good for path, good in absent.items() if good is not None}, **present}

    def _present(self, load: FileLoad) -> GoodFile:
        before = self.last.get(load.file.path)
        old = before.specs if before is not None else {}
        if load.failure is not None:
            nothing = GoodFile({}, load.file.is_named)
            return replace(before or nothing, is_named=load.file.is_named, gone_since=None)
        kept = {name: old[name] for name in load.rejected if name in old}
        known = before.written if before is not None else {}
        return GoodFile(
            {**kept, **load.specs},
            load.file.is_named,
            handlers=_good_handlers(load, before),
            written={**{name: known[name] for name in kept if name in known}, **load.written},
            sections=load.sections or (before.sections if before is not None else None),
            ways=load.ways or (before.ways if before is not None else None),
        )

    def _absent(self, path: Path, before: GoodFile) -> GoodFile | None:
        """What stays of a file that is not there; None when it is given up."""
        if not before.is_named and path.parent in self.loaded.listed:
            since = self.gone.get(path, self.now) if before.gone_since is None else before.gone_since
            is_given_up = self.now >= since + ABSENCE or self._is_elsewhere(before)
            return None if is_given_up else replace(before, gone_since=since)
        if before.specs or before.is_named or before.handlers != GoodHandlers():
            what = "the file is gone" if before.is_named else "the folder of the file is gone or cannot be listed"
            self.extra.append(Problem(file=path, message=what, keeps_running=True, keeps_servers=bool(before.specs)))
        return replace(before, gone_since=None)

    def _is_elsewhere(self, before: GoodFile) -> bool:
        """Whether other files say by now all that a file said: it was given another name, and there is nothing to wait for."""
        handlers = before.handlers
        return (
            before.specs.keys() <= self.loaded.specs.keys()
            and handlers.handlers.keys() <= self.loaded.handlers.keys()
            and not handlers.routes
            and handlers.options is None
        )

    def merged(self, files: Mapping[Path, GoodFile]) -> dict[str, ServerSpec]:
        """One spec for each name: files that are there before absent ones, so that a renamed file is no conflict."""
        specs: dict[str, ServerSpec] = {}
        known = {(problem.file, problem.server) for problem in self.loaded.problems}
        for path, good in _present_first(files):
            for name, spec in good.specs.items():
                owner = specs.setdefault(name, spec)
                if owner is not spec and good.gone_since is None and (path, name) not in known:
                    message = f"a server of this name is kept from {owner.origin}; the first one counts"
                    self.extra.append(Problem(file=path, message=message, server=name))
        return specs

    def handlers(self, files: Mapping[Path, GoodFile]) -> dict[str, HandlerSpec]:
        """One spec for each handler, by the rule for servers."""
        found: dict[str, HandlerSpec] = {}
        known = {(problem.file, problem.handler) for problem in self.loaded.problems}
        for path, good in _present_first(files):
            for name, spec in good.handlers.handlers.items():
                owner = found.setdefault(name, spec)
                if owner is not spec and good.gone_since is None and (path, name) not in known:
                    message = f"a handler of this name is kept from {owner.origin}; the first one counts"
                    self.extra.append(Problem(file=path, message=message, handler=name))
        return found

    def routing(self, files: Mapping[Path, GoodFile]) -> Routing:
        """The routes of all files in their order, and the first `[routing]`."""
        routes = [route for good in files.values() for route in good.handlers.routes]
        options = (good.handlers.options for good in files.values() if good.handlers.options is not None)
        return Routing(routes=tuple(routes), options=next(options, RoutingOptions()))

    def rejected(
        self, specs: Mapping[str, ServerSpec], handlers: Mapping[str, HandlerSpec], last: Applied | None
    ) -> tuple[Problem, ...]:
        """Everything that is not in force, each with the word whether something older runs in its place."""
        before = last.written if last is not None else {}
        older = last.handlers if last is not None else {}
        of_routes = {problem for load in self.loaded.loads for problem in load.handlers.faults_of_routes}
        failed = {load.file.path: load.file for load in self.loaded.loads if load.failure is not None}
        marked: list[Problem] = []
        for problem in self.loaded.problems:
            keeps_servers = False
            if problem.server:
                keeps = problem.server in specs and problem.server in before and before[problem.server] is specs[problem.server]
                owner = specs[problem.server].origin if problem.server in specs else ""
                words = meanwhile.of_server(problem, keeps, owner)
            elif problem.handler:
                keeps = problem.handler in older and handlers.get(problem.handler) is older[problem.handler]
                owner = handlers[problem.handler].origin if problem.handler in handlers else ""
                words = meanwhile.of_handler(problem, keeps, owner)
            elif problem.file is not None and problem.file in failed:
                known = [good for path, good in self.last.items() if problem.file in (path, *path.parents)]
                keeps = bool(known)
                keeps_servers = any(good.specs for good in known)
                words = meanwhile.of_file(_counts(known), is_main=failed[problem.file].is_main)
            elif problem in of_routes:
                keeps = problem.file in self.last
                words = meanwhile.of_routes(keeps)
            else:
                keeps = last is not None
                words = meanwhile.of_the_rest(problem, keeps)
            marked.append(replace(problem, keeps_running=keeps, keeps_servers=keeps_servers, meanwhile=words))
        return (*marked, *self.extra)


def _present_first(files: Mapping[Path, GoodFile]) -> list[tuple[Path, GoodFile]]:
    return sorted(files.items(), key=lambda item: item[1].gone_since is not None)


def _counts(known: Sequence[GoodFile]) -> dict[str, int] | None:
    """What a file, or all of a folder, held when it was good; None when it never was."""
    if not known:
        return None
    return {
        "server": sum(len(good.specs) for good in known),
        "handler": sum(len(good.handlers.handlers) for good in known),
        "route": sum(len(good.handlers.routes) for good in known),
    }


def _good_handlers(load: FileLoad, before: GoodFile | None) -> GoodHandlers:
    """What a file that can be read says of handlers, with what was good before in the place of what is not."""
    found, old = load.handlers, before.handlers if before is not None else GoodHandlers()
    kept = {name: old.handlers[name] for name in found.rejected if name in old.handlers}
    keeps_routes = found.faults_of_routes and before is not None
    return GoodHandlers(
        handlers={**kept, **found.handlers},
        routes=old.routes if keeps_routes else tuple(found.routes),
        options=old.options if keeps_routes else found.options,
    )

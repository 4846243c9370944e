"""Owns how what is written is joined with what was good before: file by file, entry by entry, with what is told of it.

Nothing here reads a file or a clock: what is written and what time it is are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcpvisor.daemon.config import meanwhile
from mcpvisor.daemon.config.absences import ABSENCE
from mcpvisor.daemon.config.companions import Spec, problem_of, unread
from mcpvisor.daemon.config.good_files import GoodFile, GoodHandlers
from mcpvisor.daemon.config.load import FileLoad, Loaded
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.handlers.routing import Routing, RoutingOptions
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(slots=True)
class Deciding:
    """One decision in the making. `last` are the files as they were good before."""

    last: Mapping[Path, GoodFile]
    loaded: Loaded
    now: float
    gone: Mapping[Path, float]
    is_final: bool = False
    """Whether an absence is a removal at once."""
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
            {**kept, **self._as_they_were(old, load.specs)},
            load.file.is_named,
            handlers=self._handlers_of(load, before),
            written={**{name: known[name] for name in kept if name in known}, **load.written},
            sections=load.sections or (before.sections if before is not None else None),
            ways=load.ways or (before.ways if before is not None else None),
        )

    def _as_they_were(self, old: Mapping[str, Spec], new: Mapping[str, Spec]) -> dict[str, Spec]:
        """What is written, but as it was for what names a file that cannot be read now."""
        found, seen = dict(new), dict(self.loaded.contents.secrets)
        for name, spec in new.items():
            missed = unread(old[name], spec, seen) if name in old else None
            if missed is not None:
                found[name] = old[name]
                self.extra.append(problem_of(spec, missed))
        return found

    def _handlers_of(self, load: FileLoad, before: GoodFile | None) -> GoodHandlers:
        """What a file that can be read says of handlers, with what was good before in the place of what is not."""
        found, old = load.handlers, before.handlers if before is not None else GoodHandlers()
        kept = {name: old.handlers[name] for name in found.rejected if name in old.handlers}
        keeps_routes = found.faults_of_routes and before is not None
        return GoodHandlers(
            handlers={**kept, **self._as_they_were(old.handlers, found.handlers)},
            routes=old.routes if keeps_routes else tuple(found.routes),
            options=old.options if keeps_routes else found.options,
        )

    def _absent(self, path: Path, before: GoodFile) -> GoodFile | None:
        """What stays of a file that is not there; None when it is given up."""
        if not before.is_named and path.parent in self.loaded.listed:
            since = self.gone.get(path, self.now) if before.gone_since is None else before.gone_since
            is_given_up = self.is_final or self.now >= since + ABSENCE or self._is_elsewhere(before)
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
        self,
        specs: Mapping[str, ServerSpec],
        handlers: Mapping[str, HandlerSpec],
        written: Mapping[str, ServerSpec] | None,
        older: Mapping[str, HandlerSpec],
    ) -> tuple[Problem, ...]:
        """Everything that is not in force, each with the word whether something older runs in its place.

        `written` are the last good versions of before, None at the first time, and `older` the handlers.
        """
        before = written or {}
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
            elif not problem.key_path and problem.file is not None:
                keeps = any(problem.file in (path, *path.parents) for path in self.last)
                words = meanwhile.of_the_rest(problem, keeps)
            else:
                keeps = written is not None
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

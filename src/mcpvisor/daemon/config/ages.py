"""Owns how old that is which runs in the place of what is wrong, where an earlier run of the daemon has kept it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.local_time import iso_time


@dataclass(frozen=True, slots=True)
class Ages:
    """When versions of an earlier run that are in force were found to be good, in wall-clock seconds."""

    servers: Mapping[str, float] = field(default_factory=dict[str, float])
    files: Mapping[Path, float] = field(default_factory=dict[Path, float])
    """By file, when the newest part of it was."""

    def dated(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The problems, each with the age of what runs in its place."""
        return tuple(self._dated(problem) for problem in problems)

    def _dated(self, problem: Problem) -> Problem:
        if not problem.keeps_running:
            return problem
        at = self.servers.get(problem.server) if problem.server else None
        if at is None and (problem.file is not None or not problem.server):
            at = max((at for file, at in self.files.items() if _concerns(problem, file)), default=None)
        return problem if at is None else replace(problem, version_of=f"{iso_time(at)}, which an earlier run has kept")

    def after(self, problems: Iterable[Problem], kept: Collection[str]) -> Ages:
        """What of it still holds: of servers that are `kept` as they were, and of files in which something is wrong."""
        faults = [problem for problem in problems if problem.keeps_running]
        return Ages(
            servers={name: at for name, at in self.servers.items() if name in kept},
            files={file: at for file, at in self.files.items() if any(_concerns(problem, file) for problem in faults)},
        )


def _concerns(problem: Problem, file: Path) -> bool:
    """Whether a problem is of a file, of a folder that it is in, or of no file at all."""
    return problem.file is None or problem.file in (file, *file.parents)

"""Owns the control group of one generation of a server: its limits, what the kernel did about them, and its end."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcpvisor.supervisor.process.delegation import Subtree, empty
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.spec import ResourceLimits

CPU_PERIOD: Final = 100_000
"""Microseconds over which the kernel counts the share of the processors."""

_LEAST_QUOTA: Final = 1000
_ADOPTIONS: Final = 10
_LEFT_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """One line that is written for a limit: into which file, by leave of which controller."""

    limit: str
    controller: str
    file: str
    text: str


def settings_for(limits: ResourceLimits) -> list[Setting]:
    """What is written for the limits that the kernel holds a whole group to; open files are not among them."""
    found: list[Setting] = []
    if limits.memory is not None:
        # The whole group dies together: a server that has lost a part of itself is in no state that anybody has tested.
        found.append(Setting("memory", "memory", "memory.oom.group", "1"))
        found.append(Setting("memory", "memory", "memory.max", str(limits.memory)))
    if limits.tasks is not None:
        found.append(Setting("tasks", "pids", "pids.max", str(limits.tasks)))
    if limits.cpu is not None:
        quota = max(_LEAST_QUOTA, round(limits.cpu * CPU_PERIOD))
        found.append(Setting("cpu", "cpu", "cpu.max", f"{quota} {CPU_PERIOD}"))
    return found


class ServerGroup:
    """The control group of one generation, from before its first process until after its last."""

    def __init__(self, folder: Path, limits: ResourceLimits) -> None:
        self.folder = folder
        self._limits = limits

    @property
    def entrance(self) -> Path:
        """The file into which a process writes its number to be in the group."""
        return self.folder / "cgroup.procs"

    def adopt(self, pid: int) -> None:
        """Take in a process that runs already, with the children that it has had meanwhile. Raises OSError."""
        with suppress(ProcessLookupError):  # it has ended already
            self.entrance.write_text(str(pid))
        for _ in range(_ADOPTIONS):  # a child of one that was still outside is outside, too
            inside = set(_numbers(self.entrance))
            outside = [child for parent in inside for child in _children(parent) if child not in inside]
            if not outside:
                return
            for child in outside:
                with suppress(ProcessLookupError):
                    self.entrance.write_text(str(child))

    def why_killed(self) -> str:
        """Why the kernel has killed processes of the group, in a clause; empty where it has killed none."""
        counts = _counts(self.folder / "memory.events")
        if not counts.get("oom_kill"):
            return ""
        if counts.get("oom") and self._limits.memory is not None:
            return f"over its memory limit of {_bytes(self._limits.memory)}"
        return "memory was short around it, not by its own limit"

    def empty(self) -> bool:
        """Kill what is in it and take it away; false where a process hangs in the kernel. Blocks, a second at most."""
        return empty(self.folder)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What became of a wish for limits: the group, None where there is none, and which limits do not hold, for which reason."""

    group: ServerGroup | None
    lacking: tuple[str, ...] = ()
    why: str = ""


def enclose(subtree: Subtree, marker: Marker, limits: ResourceLimits) -> Enclosure:
    """Make the control group of a generation and set its limits. Never raises: what cannot be had is in the result."""
    settings = settings_for(limits)
    if subtree.path is None:
        return Enclosure(None, _limits_of(settings), subtree.why_not)
    folder = subtree.path / f"{marker.server}-{marker.generation}"
    try:
        if folder.exists():  # of a server of the same name that was removed, and had something that hung in the kernel
            empty(folder, _LEFT_SECONDS)
        folder.mkdir()
    except OSError as error:
        return Enclosure(None, _limits_of(settings), f"the control group {folder} cannot be made: {error.strerror}")
    absent = [one for one in settings if one.controller not in subtree.controllers]
    refused, why = _apply(folder, [one for one in settings if one not in absent])
    if absent:
        names = ", ".join(dict.fromkeys(one.controller for one in absent))
        why = f"{subtree.path} has no {names} controller: it was not delegated, or version 1 of control groups holds it"
    return Enclosure(ServerGroup(folder, limits), _limits_of([*absent, *refused]), why)


def _apply(folder: Path, settings: list[Setting]) -> tuple[list[Setting], str]:
    refused: list[Setting] = []
    why = ""
    for setting in settings:
        try:
            (folder / setting.file).write_text(setting.text)
        except OSError as error:
            refused.append(setting)
            why = f"{folder / setting.file} does not take {setting.text!r}: {error.strerror}"
    return refused, why


def _limits_of(settings: list[Setting]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(setting.limit for setting in settings))


def _counts(file: Path) -> dict[str, int]:
    try:
        return {name: int(count) for name, _, count in (line.partition(" ") for line in file.read_text().splitlines())}
    except OSError:  # no memory controller, or the group is gone
        return {}


def _numbers(file: Path) -> list[int]:
    try:
        return [int(number) for number in file.read_text().split()]
    except OSError:  # ended meanwhile
        return []


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - names, not paths
    except OSError:  # ended meanwhile
        return []
    return [child for thread in threads for child in _numbers(Path(f"/proc/{pid}/task/{thread}/children"))]


def _bytes(number: int) -> str:
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if number % size == 0:
            return f"{number // size}{unit}"
    return f"{number} bytes"

"""Owns the measuring of what servers' processes use, in one pass over /proc for all servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcpvisor.supervisor.process.sweep import SERVER_VARIABLE, carries_mark, pids

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

# Fields of /proc/PID/stat, counted from the state, which follows the name in brackets.
_STATE, _SESSION, _USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM, _RESIDENT = 0, 3, 11, 12, 13, 14, 21


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of one server use together. CPU seconds include those of children that have ended."""

    processes: int = 0
    resident_bytes: int = 0
    cpu_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.processes + other.processes,
            self.resident_bytes + other.resident_bytes,
            self.cpu_seconds + other.cpu_seconds,
        )


def sample(instance: str, servers: Mapping[str, int]) -> dict[str, Usage]:
    """What each server uses; `servers` has the pid of the running process under each `Marker.label`.

    Counts the session of that process, and whatever carries the mark elsewhere. Blocks for some 30 us for each process of
    the machine: to be called in a worker thread.
    """
    labels = {pid: label for label, pid in servers.items()}
    usages = dict.fromkeys(servers, Usage())
    for pid in pids():
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if len(fields) <= _RESIDENT or fields[_STATE] in (b"Z", b"X"):
            continue
        label = labels.get(int(fields[_SESSION])) or _label_in_environment(pid, instance)
        if label in usages:
            usages[label] += _usage(fields)
    return usages


def _usage(fields: list[bytes]) -> Usage:
    ticks = sum(int(fields[index]) for index in (_USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM))
    return Usage(1, int(fields[_RESIDENT]) * _PAGE, ticks / _TICKS)


def _label_in_environment(pid: int, instance: str) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # ended meanwhile, or somebody else's
        return None
    if not carries_mark(environment, instance):
        return None
    prefix = f"{SERVER_VARIABLE}=".encode()
    return next((v[len(prefix) :].decode() for v in environment.split(b"\0") if v.startswith(prefix)), None)

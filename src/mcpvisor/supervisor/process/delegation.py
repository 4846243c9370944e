"""Owns which control groups are this process's own: where it is, whether the subtree there was handed to it, its own leaf.

Control groups of version 2 only. The subtree is ours where systemd or a container runtime has delegated it, and nobody else
is in it; the groups of others are never touched.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEAF: Final = "supervisor"
"""The group that we move into ourselves: where controllers are enabled for groups below, processes may be in leaves only."""

CONTROLLERS: Final = ("memory", "pids", "cpu")
"""The controllers that our limits need."""

EMPTY_SECONDS: Final = 1.0
"""How long killed processes may take to leave a group; one that hangs in the kernel keeps it for the next run to take away."""

_MARKS: Final = ("user.delegate", "trusted.delegate")
"""What systemd writes on a group that it has delegated; the second can be read by root only."""

_OF_A_SERVER: Final = re.compile(r"[A-Za-z0-9_-]+-\d+")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtree:
    """Where each generation of a server gets a control group of its own, and which controllers hold there.

    `path` is None where there is no such place, and `why_not` then says why in one clause. `name` is the subtree as
    /proc/PID/cgroup has it.
    """

    path: Path | None = None
    name: str = ""
    controllers: frozenset[str] = frozenset()
    why_not: str = ""

    def holds(self, groups: str) -> bool:
        """Whether a process is in the group of one of our servers; `groups` is the text of its /proc/PID/cgroup."""
        below = f"{self.name}/"
        own = _own_group(groups) or ""
        return self.path is not None and own.startswith(below) and _is_of_a_server(own.removeprefix(below).partition("/")[0])


NOT_TAKEN: Final = Subtree(why_not="the program that runs the supervisor has taken no control groups")


class NotDelegated(Exception):
    """The control group that we are in is not ours; the text says why."""


def take_subtree() -> Subtree:
    """Make the subtree below our control group the place of the servers' groups, where it is ours; never raises.

    We move into the leaf `supervisor`, what a former run has left is ended, and the controllers are enabled. To be called
    before anything is started, and by a program that speaks for its whole process. Blocks for some milliseconds.
    """
    try:
        folder = group_folder(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
        if folder.name == LEAF and _is_marked(folder.parent):  # systemd's DelegateSubgroup=, or we were here before
            folder = folder.parent
        _demand_own(folder)
        _move_into_leaf(folder)
        _end_leftovers(folder)
        name = (_own_group(Path("/proc/self/cgroup").read_text()) or "").removesuffix(f"/{LEAF}")
        return Subtree(path=folder, name=name, controllers=_enable_controllers(folder))
    except NotDelegated as refusal:
        return Subtree(why_not=str(refusal))
    except OSError as error:
        return Subtree(why_not=f"control groups cannot be used here: {error.strerror} ({error.filename})")


def group_folder(groups: str, mounts: str) -> Path:
    """The folder of our control group, from the texts of /proc/self/cgroup and /proc/self/mountinfo. Raises NotDelegated."""
    own = _own_group(groups)
    if own is None:
        raise NotDelegated("this machine has control groups of version 1 only")
    mounted = list(_mounts(mounts))
    if not mounted:
        raise NotDelegated("no cgroup2 file system is mounted")
    for root, point in mounted:
        if own == root or own.startswith(root.rstrip("/") + "/"):
            return Path(point, own[len(root) :].lstrip("/"))
    raise NotDelegated(f"our control group {own} is not below what is mounted")


def _own_group(groups: str) -> str | None:
    """The group in the text of a /proc/PID/cgroup; None where there are those of version 1 only."""
    return next((line.removeprefix("0::") for line in groups.splitlines() if line.startswith("0::")), None)


def _is_of_a_server(name: str) -> bool:
    return _OF_A_SERVER.fullmatch(name) is not None


def empty(folder: Path, seconds: float = EMPTY_SECONDS) -> bool:
    """Kill whatever is in a group or below it, and take the group away; false where something hangs in the kernel.

    Blocks until the processes are gone, `seconds` at most.
    """
    deadline = time.monotonic() + seconds
    while not _is_taken_away(folder):
        kill_all(folder)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def kill_all(folder: Path) -> None:
    """Send SIGKILL to every process of a group and of the groups below it; a group that is gone is no error."""
    try:
        _write(folder / "cgroup.kill", "1")
    except FileNotFoundError:  # a kernel before 5.14, or no group any more
        for group in [folder, *folder.rglob("*/")] if folder.is_dir() else []:
            for pid in _members(group):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _mounts(mounts: str) -> Iterator[tuple[str, str]]:
    """The root and the place of each cgroup2 mount."""
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if tail.startswith("cgroup2 ") and len(fields) > 4:
            yield _plain(fields[3]), _plain(fields[4])


def _plain(escaped: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), escaped)


def _demand_own(folder: Path) -> None:
    if not folder.is_dir():
        raise NotDelegated(f"our control group {folder} is not there")
    if not (folder / "cgroup.type").exists():
        raise NotDelegated(
            "we are in the root of all control groups, which is nobody's own; Delegate=yes in a unit gives us ours"
        )
    if not _is_handed_over(folder):
        raise NotDelegated(f"the control group {folder} was not delegated to us; Delegate=yes in the unit does that")
    if not all(os.access(path, os.W_OK) for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control")):
        raise NotDelegated(f"the control group {folder} may not be written by this user")
    others = [pid for group in (folder, folder / LEAF) for pid in _members(group) if pid != os.getpid()]
    if others:
        raise NotDelegated(f"other processes are in our control group {folder}, the first of {len(others)} is {others[0]}")


def _is_handed_over(folder: Path) -> bool:
    of_user = os.geteuid() != 0 and folder.stat().st_uid == os.geteuid()
    # The root of a namespace that is not the root of all: a container's own.
    of_container = "0::/" in Path("/proc/self/cgroup").read_text().splitlines()
    return of_user or of_container or _is_marked(folder)


def _is_marked(folder: Path) -> bool:
    for name in _MARKS:
        with suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _members(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except FileNotFoundError:
        return []


def _move_into_leaf(folder: Path) -> None:
    leaf = folder / LEAF
    leaf.mkdir(exist_ok=True)
    try:
        _write(leaf / "cgroup.procs", str(os.getpid()))
    except OSError:
        with suppress(OSError):  # what counts is why we could not move
            leaf.rmdir()
        raise


def _end_leftovers(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir() and _is_of_a_server(child.name):
            empty(child)


def _enable_controllers(folder: Path) -> frozenset[str]:
    """Enable what can be had, each by itself: one that is missing must not cost the others."""
    control = folder / "cgroup.subtree_control"
    for name in CONTROLLERS:
        with suppress(OSError):  # what is not enabled then is told with each limit that needs it
            _write(control, f"+{name}")
    return frozenset(CONTROLLERS) & frozenset(control.read_text().split())


def _is_taken_away(folder: Path) -> bool:
    try:
        for below, _, _ in os.walk(folder, topdown=False):
            Path(below).rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # not empty yet
        return False
    return True


def _write(file: Path, text: str) -> None:
    # One write, and no making of a file: in a folder that is no group any more there must be none.
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)

"""Owns how leftover processes are found and killed: by the mark in their environment, or by their session.

Standard library only, and no import of ours: the guardian runs this file by its path, as a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time

INSTANCE_VARIABLE = "MCPVISOR_INSTANCE"
SERVER_VARIABLE = "MCPVISOR_SERVER"

ROUNDS = 20
"""Passes over /proc at most: one that forks as fast as it is killed is given up in the end."""

EXEC_ROUNDS = 3
EXEC_SECONDS = 0.002
"""A pass is made again, so often and so much later, while a process is in the midst of an exec, with no environment yet."""

QUIET_ROUNDS = 3
ROUND_SECONDS = 0.05
"""The guardian is content after this many passes that found nothing, so far apart: a child may be between fork and exec."""


def kill_marked(instance: str, server: str | None = None, session: int | None = None) -> list[int]:
    """Kill every process that carries the mark, or belongs to the session; the pids that were killed.

    `server` narrows the mark to one label. `session` is the pid of a session leader that is not reaped yet, so that its number
    cannot have passed to another. Repeats until a pass finds nothing. Blocks for some 20 us for each process of the machine.
    """
    killed: list[int] = []
    unsure = 0
    for _ in range(ROUNDS):
        found, is_sure = _pass(instance, server, session)
        killed += found
        if found:
            continue
        if is_sure or unsure == EXEC_ROUNDS:
            break
        unsure += 1
        time.sleep(EXEC_SECONDS)
    return list(dict.fromkeys(killed))


def find_marked(instance: str, server: str | None = None) -> list[int]:
    """The pids of the living processes that carry the mark."""
    marks = _marks(instance, server)
    return [pid for pid in pids() if pid != os.getpid() and _carries(pid, marks)]


def kill_once(instance: str, server: str | None = None, session: int | None = None) -> list[int]:
    """One pass over /proc; the pids that were killed in it."""
    return _pass(instance, server, session)[0]


def _pass(instance: str, server: str | None, session: int | None) -> tuple[list[int], bool]:
    """One pass over /proc: the pids that were killed in it, and whether it was seen of all others that they are not ours."""
    marks = _marks(instance, server)
    killed: list[int] = []
    is_sure = True
    for pid in pids():
        if pid in (os.getpid(), session):
            continue
        environment = _environment(pid)
        if (session is not None and _session(pid) == session and not _is_zombie(pid)) or _has(environment, marks):
            killed += [pid] if _kill(pid, marks, session) else []
        elif not environment and _has_memory(pid):
            is_sure = False
    return killed, is_sure


def pids() -> list[int]:
    """Every process of the machine that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - pathlib would triple the guardian's memory


def carries_mark(environment: bytes, instance: str, server: str | None = None) -> bool:
    """Whether the text of /proc/PID/environ has the mark in it."""
    return _has(environment, _marks(instance, server))


def _marks(instance: str, server: str | None) -> tuple[bytes, ...]:
    marks = [(INSTANCE_VARIABLE, instance)] + ([(SERVER_VARIABLE, server)] if server is not None else [])
    return tuple(f"\0{name}={value}\0".encode() for name, value in marks)


def _carries(pid: int, marks: tuple[bytes, ...]) -> bool:
    return _has(_environment(pid), marks)


def _has(environment: bytes | None, marks: tuple[bytes, ...]) -> bool:
    if environment is None:
        return False
    text = b"\0" + environment  # once for all marks: this is done for each process of the machine
    return all(mark in text for mark in marks)


def _environment(pid: int) -> bytes | None:
    """What /proc/PID/environ holds; None of a process that is gone, or somebody else's."""
    try:
        # A plain read: no buffering, no decoding, for this runs once for each process of the machine.
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        environment = b""
        while piece := os.read(fd, 65536):
            environment += piece
    except OSError:
        return None
    finally:
        os.close(fd)
    return environment


def _has_memory(pid: int) -> bool:
    """Whether a process has memory of its own: threads of the kernel and zombies have none."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123 - see `pids`
            return not file.read().startswith(b"0 ")
    except OSError:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - see `pids`
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except (OSError, IndexError):
        return True


def _kill(pid: int, marks: tuple[bytes, ...], session: int | None) -> bool:
    """Kill exactly the process that was looked at: what is looked at again through a pidfd cannot be another by now."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not (_carries(pid, marks) or (session is not None and _session(pid) == session)):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:  # gone by itself, or not ours to kill
        return False
    else:
        return True
    finally:
        os.close(pidfd)


def guard(instance: str, fd: int) -> None:
    """Wait until the other end of the pipe `fd` is closed, then kill what carries the mark until nothing is left of it."""
    while os.read(fd, 4096):
        pass
    quiet = 0
    for _ in range(ROUNDS * QUIET_ROUNDS):
        quiet = 0 if kill_once(instance) else quiet + 1
        if quiet >= QUIET_ROUNDS:
            return
        time.sleep(ROUND_SECONDS)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # the pipe alone says when it is time
    os.chdir("/")
    guard(sys.argv[1], 0)

"""Owns one process of a stdio server from its start until it is reaped: its pipes, its limits, its exit.

All servers start through `launch`: the one place where what a server may do is set.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Final, NoReturn

import anyio

from mcpvisor.supervisor.process.cgroup import ServerGroup
from mcpvisor.supervisor.process.diagnosis import explain_failure
from mcpvisor.supervisor.process.entering import through_shell
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import ResourceLimits, StdioLaunch
from mcpvisor.supervisor.transports.wire import OpenFailed, WireEnd

SOFT_FILES: Final = 1024
"""The soft limit of open files for servers: what programs that use select() can stand, however high the daemon's own is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended: exactly one of `exit_code` and `signal` is set. `seconds` is how long it lived.

    Both are None where another part of this program has reaped the process, and so knows alone. `why` is the kernel's reason
    where it has killed the process for want of memory, in a clause; else empty.
    """

    pid: int
    exit_code: int | None
    signal: int | None
    seconds: float
    why: str = ""

    def __str__(self) -> str:
        if self.exit_code is None and self.signal is None:
            return f"ended after {self.seconds:.1f} s, and its exit status was taken by another part of this program"
        if self.why:
            return f"was killed by the kernel after {self.seconds:.1f} s: {self.why}"
        if self.signal is None:
            return f"exited with code {self.exit_code} after {self.seconds:.1f} s"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:  # a real-time signal has no name
            name = f"signal {self.signal}"
        return f"was killed by {name} after {self.seconds:.1f} s"


class ServerProcess:
    """A running server. Its number stays taken until `reap`, so that signals can never reach a stranger."""

    def __init__(self, popen: subprocess.Popen[bytes], pidfd: int, group: ServerGroup | None = None) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._popen = popen
        self._pidfd = pidfd
        self._stdin: IO[bytes] = popen.stdin
        self.group = group
        """The control group that it and all it starts are in, None where there are none."""
        self._started = time.monotonic()
        self.pid = popen.pid
        self.stdin_fd = popen.stdin.fileno()
        self.stdout_fd = popen.stdout.fileno()
        self.stderr_fd = popen.stderr.fileno()
        self.exit: ProcessExit | None = None
        for fd in (self.stdin_fd, self.stdout_fd, self.stderr_fd):
            os.set_blocking(fd, False)

    async def wait(self) -> ProcessExit:
        """Wait until the process has ended; what is left of its group is killed at that moment. May be called by several."""
        if (known := self.poll()) is not None:
            return known
        pidfd = os.dup(self._pidfd)  # each waiter needs a descriptor of its own
        try:
            while (known := self.poll()) is None:
                await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)
        return known

    def poll(self) -> ProcessExit | None:
        """How the process ended, None while it runs. At its end its group is killed."""
        if self.exit is None:
            try:
                found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._popen.poll()  # notes that the number is not ours any more, so that nothing is sent to it
                self.exit = self._ended(None, None)
                return self.exit
            if found is not None:
                by_exit = found.si_code == os.CLD_EXITED
                self.exit = self._ended(found.si_status if by_exit else None, None if by_exit else found.si_status)
                self.signal_group(signal.SIGKILL)
        return self.exit

    def _ended(self, exit_code: int | None, number: int | None) -> ProcessExit:
        seconds = time.monotonic() - self._started
        why = self.group.why_killed() if self.group is not None and number == signal.SIGKILL else ""
        return ProcessExit(pid=self.pid, exit_code=exit_code, signal=number, seconds=seconds, why=why)

    @property
    def session(self) -> int | None:
        """The number of the server's session and group, None once it may be another's."""
        return self.pid if self._popen.returncode is None else None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the server's process group; members that are gone or not ours are no error."""
        if self.session is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.session, number)

    def close_stdin(self) -> None:
        """Let the server see the end of its input, its cue to leave."""
        self._stdin.close()

    def reap(self) -> None:
        """Give the number back and close every descriptor; the last thing that is done with a process."""
        self._popen.poll()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        os.close(self._pidfd)


def launch(spec: StdioLaunch, environment: Mapping[str, str], group: ServerGroup | None = None) -> ServerProcess:
    """Start a server in a session and group of its own, and in its control group. Blocks for fork and exec, below 1 ms.

    Raises OpenFailed with `no_such_program`, `permission` or `bad_cwd` where the entry has to be edited, with
    `connect_failed` where the machine has no room at the moment.
    """
    if spec.cwd is not None and not Path(spec.cwd).is_dir():
        _refuse("bad_cwd", f"cwd {spec.cwd!r} is no folder that can be entered: edit the key `cwd`")
    program = reveal(spec.command)
    arguments = [program, *(reveal(argument) for argument in spec.args)]
    entering = through_shell(group.entrance, arguments, environment, spec.cwd) if group is not None else None
    try:
        with _ordinary_signals():
            popen = subprocess.Popen(
                entering or arguments,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=spec.cwd,
                env=environment,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise OpenFailed(explain_failure(spec, environment.get("PATH", ""), error)) from error
    try:
        if group is not None and entering is None:
            group.adopt(popen.pid)
        pidfd = os.pidfd_open(popen.pid)
    except OSError as error:
        popen.kill()
        popen.communicate()
        raise OpenFailed(WireEnd(cause="connect_failed", detail=f"the process cannot be held: {error}")) from error
    _limit(popen.pid, spec.limits)
    return ServerProcess(popen, pidfd, group)


def _refuse(cause: str, detail: str) -> NoReturn:
    raise OpenFailed(WireEnd(cause=cause, detail=detail))


def _limit(pid: int, limits: ResourceLimits) -> None:
    """Set what the kernel can hold one process to.

    Memory, tasks and cpu of a whole tree are the business of its control group: an address-space limit breaks runtimes that
    reserve much and use little, and a task limit counts the processes of the user, not of the server.
    """
    # Set on the running child: a preexec function is unsafe beside threads, and would make the fork copy our page tables.
    with suppress(ProcessLookupError, PermissionError):  # it ended already, or has other rights than we
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        ceiling = hard if limits.files is None else limits.files
        if hard != resource.RLIM_INFINITY:
            ceiling = hard if ceiling == resource.RLIM_INFINITY else min(ceiling, hard)
        soft = SOFT_FILES if limits.files is None else ceiling
        soft = soft if ceiling == resource.RLIM_INFINITY else min(soft, ceiling)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, ceiling))


def _take_no_notice(number: int, frame: FrameType | None) -> None:
    """A handler in place of SIG_IGN: exec resets handlers, and keeps what is ignored."""


@contextmanager
def _ordinary_signals() -> Generator[None]:
    """Let children start with default dispositions: what we ignore would be ignored by them, what we handle would not."""
    if threading.current_thread() is not threading.main_thread():  # only there can handlers be set
        yield
        return
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited from a careless parent; the kernel would eat exit codes
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ignored = [
        n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM) if signal.getsignal(n) is signal.SIG_IGN
    ]
    try:
        for number in ignored:
            signal.signal(number, _take_no_notice)
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

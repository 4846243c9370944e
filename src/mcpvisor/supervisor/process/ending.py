"""Owns how a server's processes are ended for certain: the ladder from a hint to SIGKILL, and the sweep behind it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.launch import ProcessExit, ServerProcess
from mcpvisor.supervisor.process.sweep import kill_marked
from mcpvisor.supervisor.spec import StopGraces

KILL_SECONDS: Final = 5.0
"""How long a killed process may take to be gone; one that hangs in the kernel is then left to the next sweep."""

SWEEPS_AT_ONCE: Final = 2
"""Passes over /proc that run at one time, in threads of their own; many servers may end in one moment."""

_ORPHAN_SECONDS: Final = 0.5
_limiter: Final = anyio.lowlevel.RunVar[anyio.CapacityLimiter]("mcpvisor_sweeps")


async def end_process(
    process: ServerProcess,
    marker: Marker,
    graces: StopGraces,
    meanwhile: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
    at_last: Callable[[], None] = lambda: None,
) -> ProcessExit | None:
    """End a server and everything it has started; returns how it ended, None where even SIGKILL did not end it in time.

    Stdin is closed, then after `graces.stdin` seconds the group gets SIGTERM, then after `graces.term` seconds SIGKILL. On
    every end, also one of the server's own making, what is left of its control group, of its group and session, and whatever
    carries the mark in a session of its own, is killed; then the control group is taken away. `meanwhile` are run until the
    process is gone, to keep its pipes from filling up; `at_last` is called before the pipes are closed. Cannot be cancelled;
    takes the graces and `KILL_SECONDS` at most.
    """
    ended: ProcessExit | None = None
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as tasks:
            for drain in meanwhile:
                tasks.start_soon(drain)
            await _descend(process, graces)
            tasks.cancel_scope.cancel()
        killed = await _sweep(process, marker)
        ended = process.poll()
        at_last()
        process.reap()
        await _reap_orphans(process.pid, killed)
    return ended


async def _descend(process: ServerProcess, graces: StopGraces) -> None:
    process.close_stdin()
    for seconds, number in ((graces.stdin, signal.SIGTERM), (graces.term, signal.SIGKILL)):
        with anyio.move_on_after(seconds):
            await process.wait()
        if process.poll() is not None:
            return
        process.signal_group(number)
    with anyio.move_on_after(KILL_SECONDS):
        await process.wait()


async def _sweep(process: ServerProcess, marker: Marker) -> list[int]:
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(SWEEPS_AT_ONCE)
        _limiter.set(limiter)
    sweep = partial(_kill_rest, process, marker)
    return await anyio.to_thread.run_sync(sweep, limiter=limiter)


def _kill_rest(process: ServerProcess, marker: Marker) -> list[int]:
    if process.group is not None:
        process.group.empty()
    return kill_marked(marker.instance, marker.label, process.session)


async def _reap_orphans(group: int, pids: list[int]) -> None:
    """Reap those of the killed that came to us: where we are the init of a container, or a subreaper, nobody else does.

    Only members of the server's own group and pids that the sweep has killed: never a child that somebody here waits for.
    """
    with anyio.move_on_after(_ORPHAN_SECONDS):
        while not _are_reaped(group, pids):  # noqa: ASYNC110 - the kernel has no event for a group
            await anyio.sleep(0.01)


def _are_reaped(group: int, pids: list[int]) -> bool:
    left = [kind for kind in ((os.P_PGID, group), *((os.P_PID, pid) for pid in pids)) if not _is_reaped(*kind)]
    return not left


def _is_reaped(kind: int, number: int) -> bool:
    with suppress(ChildProcessError):  # none of that kind is a child of ours
        while os.waitid(kind, number, os.WEXITED | os.WNOHANG) is not None:
            pass
        return False
    return True

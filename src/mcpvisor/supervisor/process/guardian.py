"""Owns the guardian: a tiny process that outlives a killed daemon for as long as it takes to kill the daemon's servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc

from mcpvisor.supervisor.error_groups import end_tasks
from mcpvisor.supervisor.process import sweep

END_SECONDS: Final = 5.0
"""How long the guardian may take to leave once its pipe is closed: it sweeps once more."""

_FIRST_DELAY: Final = 1.0
_MAX_DELAY: Final = 60.0


class Guardian:
    """While it is entered, the death of this process means the death of every process that carries the instance id.

    It must be entered before the first server is started and left after the last one has ended. A guardian that dies is
    started again, and `lost` is told. Raises OSError on entering where no process can be started.
    """

    def __init__(self, instance: str, *, lost: Callable[[], None] = lambda: None) -> None:
        self._instance = instance
        self._lost = lost
        self._tasks: anyio.abc.TaskGroup
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The guardian's process, None while there is none."""
        return self._process.pid if self._process is not None else None

    async def __aenter__(self) -> Self:
        self._process = self._start()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._watch)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            await end_tasks(self._tasks, kind, value, tb)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        # An empty environment: no mark, and nothing that could change the interpreter. The pipe's other end is ours alone.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", sweep.__file__, self._instance],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )

    async def _watch(self) -> None:
        delay = _FIRST_DELAY
        while True:
            if self._process is not None:
                began = anyio.current_time()
                await _exit_of(self._process)
                _close(self._process)
                self._process = None
                self._lost()
                if anyio.current_time() - began > _MAX_DELAY:
                    delay = _FIRST_DELAY
                else:
                    await anyio.sleep(delay)
                    delay = min(delay * 2, _MAX_DELAY)
            try:
                self._process = self._start()
            except OSError:  # no room for a process just now: `lost` has been told, and it is tried again
                await anyio.sleep(delay)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with anyio.move_on_after(END_SECONDS):
            await _exit_of(process)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            await _exit_of(process)
        _close(process)


async def _exit_of(process: subprocess.Popen[bytes]) -> None:
    pidfd = os.pidfd_open(process.pid)
    try:
        while process.poll() is None:
            await anyio.wait_readable(pidfd)
    finally:
        os.close(pidfd)


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()

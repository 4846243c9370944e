"""Owns what has been ordered of the daemon by signals: to read its configuration, to end, to end at once."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.abc
import structlog

_log = structlog.get_logger("mcpvisor.daemon")

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_OF_NO_MEANING: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""What other daemons rotate their logs or print their state by; unheard it would end us without any order."""


class Orders:
    """The end, once it is ordered; a second signal that ends makes it hurried."""

    def __init__(self) -> None:
        self.stopping = anyio.Event()
        self.hurried = anyio.Event()
        """Set by the second signal."""

    def stop(self) -> None:
        """Begin the end; a second call changes nothing."""
        self.stopping.set()

    async def take(
        self, reload: Callable[[], Awaitable[object]], *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Take signals until cancelled; `reload` is what SIGHUP asks for."""
        with anyio.open_signal_receiver(*_ENDING, signal.SIGHUP, *_OF_NO_MEANING) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    await reload()
                elif number in _OF_NO_MEANING:
                    _log.warning(
                        "a signal that means nothing here: SIGHUP reloads, SIGTERM ends", signal=signal.Signals(number).name
                    )
                elif self.stopping.is_set():
                    _log.warning("stopping at once: calls in flight are given no more time")
                    self.hurried.set()
                else:
                    self.stop()

"""Owns the one line that systemd shows of the daemon: how many servers are ready, and which edits are not in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from mcpvisor.daemon.config.reload import Reloader
from mcpvisor.daemon.control.tally import tally
from mcpvisor.daemon.control.views import ready_and_total
from mcpvisor.daemon.reloading import faults_in_status
from mcpvisor.daemon.systemd import Notifier
from mcpvisor.supervisor.supervisor import Supervisor

STATUS_SECONDS: Final = 1.0
"""How often at the most the line is written anew."""


class StatusLine:
    """The line as it is now, and as systemd was told it last."""

    def __init__(self, supervisor: Supervisor, reloader: Reloader, notifier: Notifier) -> None:
        self._supervisor = supervisor
        self._reloader = reloader
        self._notifier = notifier

    def text(self) -> str:
        """The line as it is now."""
        servers = self._supervisor.outlines()
        count = tally(*ready_and_total(servers), (server.wanted for server in servers), "servers")
        return f"{count}{faults_in_status(self._reloader.applied)}"

    async def keep(self, is_stopping: Callable[[], bool]) -> None:
        """Keep what systemd shows true until cancelled; the line that is told while the daemon ends is another one."""
        told = self.text()
        with self._supervisor.bus.subscribe(size=64) as events:
            async for _ in events:
                await anyio.sleep(STATUS_SECONDS / 2)
                line = self.text()
                if line != told and not is_stopping():
                    told = line
                    self._notifier.status(line)

"""Owns the way of progress from calls to handlers: past the bus, like all that happens once per call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcpvisor.supervisor.observer import CallObserver

OnProgress = Callable[[str, "str | None", dict[str, Any]], None]
"""Takes the server, the tool that was called, and what the server has told; must be quick and free of failure."""


class ProgressObserver:
    """A `CallObserver` that lets another one count, and tells `on_progress` of progress."""

    def __init__(self, counts: CallObserver) -> None:
        self.call_started = counts.call_started
        self.call_ended = counts.call_ended
        self.notification_received = counts.notification_received
        self.message_refused = counts.message_refused
        self.noise_received = counts.noise_received
        self.on_progress: OnProgress = counts.call_progressed

    def call_progressed(self, server: str, tool: str | None, progress: dict[str, Any]) -> None:
        """See `CallObserver`."""
        self.on_progress(server, tool, progress)

"""Owns how much the present process of each server, or its last one, has written to stderr beyond its rate."""

from __future__ import annotations

from collections import Counter

from mcpvisor.supervisor.events import Event, ProcessStarted, ServerRemoved, StderrWritten


class StderrFloods:
    """An inline subscriber of the event bus."""

    def __init__(self) -> None:
        self._dropped: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """Count the event, where it is one of those."""
        if isinstance(event, StderrWritten) and event.dropped:
            self._dropped[event.server] += event.dropped
        elif isinstance(event, ProcessStarted | ServerRemoved):  # what was before says nothing of what runs now
            self._dropped.pop(event.server, None)

    def dropped(self, server: str) -> int:
        """How many lines of the server were over its rate, and dropped."""
        return self._dropped[server]

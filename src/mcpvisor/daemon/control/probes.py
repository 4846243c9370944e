"""Owns which servers do not answer their probes at present."""

from __future__ import annotations

from mcpvisor.supervisor.events import (
    ConnectEnded,
    Event,
    ProbeAnswered,
    ProbeMissed,
    ServerEvent,
    ServerRemoved,
    ServerRestarted,
    SessionLost,
    SessionOpened,
)

_ENDS = (ConnectEnded, ProbeAnswered, ServerRemoved, ServerRestarted, SessionLost, SessionOpened)
"""After one of these the misses before it say nothing of the server as it is now."""


class MissedProbes:
    """An inline subscriber of the event bus."""

    def __init__(self) -> None:
        self._newest: dict[str, ProbeMissed] = {}

    def __call__(self, event: Event) -> None:
        """Note the event, where it is about probes or sessions."""
        if isinstance(event, ProbeMissed):
            self._newest[event.server] = event
        elif isinstance(event, ServerEvent) and isinstance(event, _ENDS):
            self._newest.pop(event.server, None)

    def of(self, server: str) -> ProbeMissed | None:
        """The newest miss of a session that has not answered since; None where all is answered."""
        return self._newest.get(server)

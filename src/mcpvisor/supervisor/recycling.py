"""Owns when a server is replaced because it uses too much memory: in good order, and not again and again. Pure."""

from __future__ import annotations

from mcpvisor.supervisor.aftermath import over_ceiling
from mcpvisor.supervisor.spec import RestartPolicy


class Recycling:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._at = float("-inf")
        """When it was replaced last for this."""
        self.reason = ""
        """Why it is to be replaced as soon as it may be; empty where it is not."""

    def weigh(self, resident_bytes: int, policy: RestartPolicy, now: float) -> str:
        """Why it is to be replaced at once, given what it uses; empty where it is not, or not yet."""
        reason = over_ceiling(resident_bytes, policy)
        if not reason or now - self._at < policy.stable_after:
            self.reason = reason
            return ""
        self._at, self.reason = now, ""
        return reason

    def forget(self) -> None:
        """What was weighed is no more what serves."""
        self.reason = ""

    def due(self, policy: RestartPolicy) -> float:
        """From when on it may be replaced again."""
        return self._at + policy.stable_after

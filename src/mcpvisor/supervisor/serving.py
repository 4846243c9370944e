"""Owns what is known of the generation that serves, or is on its way to: its spec, what it lacks, how long it has been up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mcpvisor.supervisor.lifecycle_messages import Ended
from mcpvisor.supervisor.spec import RestartPolicy, ServerSpec

SERVED_AFTER: Final = 5.0
"""Seconds of being ready after which an end is followed by an immediate restart, even if nobody had asked anything."""


@dataclass(slots=True)
class Serving:
    """One generation. Times are monotonic seconds."""

    number: int
    spec: ServerSpec
    """What it was opened with."""
    ready_since: float | None = None
    """Since when its handshake is done; None before that."""
    lacking: str = ""
    """What does not work besides calls."""

    def has_served(self, end: Ended, now: float) -> bool:
        """Whether it had been of use when it ended, so that the next one need not wait."""
        # Who is never heard of after its handshake has served nobody, however long that went unnoticed.
        return end.served or (end.cause != "probe" and self._has_been_up(SERVED_AFTER, now))

    def is_stable(self, policy: RestartPolicy, now: float) -> bool:
        """Whether it has been up for so long that ends before it are forgotten."""
        return self._has_been_up(policy.stable_after, now)

    def stable_at(self, policy: RestartPolicy) -> float | None:
        """When it will be; None before its handshake."""
        return None if self.ready_since is None else self.ready_since + policy.stable_after

    def _has_been_up(self, seconds: float, now: float) -> bool:
        return self.ready_since is not None and now - self.ready_since >= seconds

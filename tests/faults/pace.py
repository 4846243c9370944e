"""Owns the pace of a fault run: the one policy of its servers, many times as fast as the real one, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from mcpvisor.supervisor import lifecycle, replacing, restoring
from mcpvisor.supervisor.spec import ProbePolicy, RestartPolicy, StopGraces
from mcpvisor.supervisor.subscriptions import listening, outcome, wanted
from mcpvisor.supervisor.transports import push


@dataclass(frozen=True)
class Pace:
    """The policy of all servers of a run; in seconds."""

    probe: ProbePolicy = field(default_factory=lambda: ProbePolicy(interval=0.6, timeout=0.5, failures=2))
    # No window: a server of a run ends more often in a minute than any other in a year. `crash_loop` has a test of its own.
    restart: RestartPolicy = field(
        default_factory=lambda: RestartPolicy(delay=0.05, max_delay=0.5, intensity=None, stable_after=1.0)
    )
    stop: StopGraces = field(default_factory=lambda: StopGraces(stdin=0.15, term=0.15))
    start_timeout: float = 4.0
    wait_ready: float = 1.0
    again: float = 0.2
    """The first delay of what is tried again beside calls: the push stream, `subscriptions/listen`, lists."""
    again_max: float = 1.0
    slow_retry: float = 0.5
    """What waits for other credentials, or an edit, is tried again so soon."""
    retry_after: float = 1.0
    """The most that puppets ask for by Retry-After."""
    slack: float = 0.35
    """What the machine may take on top of anything: two cores, and twenty processes on them."""

    @property
    def noticed(self) -> float:
        """Within this a server that is dead or stopped is no longer shown ready."""
        return self.probe.interval + self.probe.timeout

    @property
    def recovered(self) -> float:
        """Within this a server is ready again after any fault: noticed for certain, ended, waited for, started, restored."""
        probe = self.probe
        certain = self.noticed + (probe.failures - 1) * (probe.timeout + min(probe.interval, probe.timeout))
        ended = self.stop.stdin + self.stop.term
        waited = max(self.restart.max_delay, self.slow_retry, self.retry_after)
        return certain + ended + waited + self.start_timeout + self.again_max

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Set what is a constant of the program, and no key of an entry."""
        patch.setattr(lifecycle, "SLOW_RETRY", self.slow_retry)
        patch.setattr(replacing, "SLOW_RETRY", self.slow_retry)
        patch.setattr(push, "FIRST_DELAY", self.again)
        patch.setattr(push, "MAX_DELAY", self.again_max)
        patch.setattr(push, "MIN_ASKED_DELAY", self.again)
        patch.setattr(restoring, "LIST_RETRY", self.again)
        patch.setattr(restoring, "LIST_RETRY_MAX", self.again_max)
        patch.setattr(listening, "LISTEN_RETRY", self.again)
        patch.setattr(listening, "LISTEN_RETRY_MAX", self.again_max)
        patch.setattr(listening, "PROBATION", self.again)
        patch.setattr(listening, "SLOW_RETRY", self.slow_retry)
        patch.setattr(outcome, "RETRY", self.again)
        patch.setattr(outcome, "RETRY_MAX", self.again_max)
        patch.setattr(outcome, "SLOW_RETRY", self.slow_retry)
        patch.setattr(wanted, "COALESCE", 0.0)  # each change is told by an update of its own, so that none can hide another

"""Owns when an ended server may be tried again: the delay curve and the intensity window, as pure arithmetic.

The rules are those of OTP's supervisors (intensity and period) with full jitter on the delays, so that many servers which
ended together do not come back together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mcpvisor.supervisor.spec import RestartPolicy

Jitter = Callable[[], float]
"""A number in [0, 1), new at each call."""


def delay_before(attempt: int, policy: RestartPolicy, jitter: Jitter) -> float:
    """Seconds to wait before the restart number `attempt` of a row, counted from 0: 0, then a random part of 1, 2, 4, ...

    The random part is between half and the whole of the step, so that a delay is never next to nothing.
    """
    if attempt <= 0:
        return 0.0
    step = min(policy.max_delay, policy.delay * 2.0 ** min(attempt - 1, 30))
    return step * (0.5 + 0.5 * jitter())


@dataclass(slots=True)
class RestartHistory:
    """What is remembered of one server's ends. Times are monotonic seconds."""

    ends: deque[float] = field(default_factory=deque[float])
    row: int = 0
    """Failed tries in a row; the exponent of the delay curve."""

    def count_end(self, now: float, policy: RestartPolicy) -> bool:
        """Count an end towards the window; True when there were too many in it, which is a crash loop."""
        if policy.intensity is None:
            return False
        self.ends.append(now)
        while self.ends and self.ends[0] <= now - policy.intensity.within:
            self.ends.popleft()
        return len(self.ends) > policy.intensity.ends

    def forget(self) -> None:
        """Start afresh: after real uptime, or by an operator's order."""
        self.ends.clear()
        self.row = 0

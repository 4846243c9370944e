"""Owns when an ended server may be tried again: the delay curve and the intensity window, as pure arithmetic.

The rules are those of OTP's supervisors (intensity and period) with full jitter on the delays, so that many servers which
ended together do not come back together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcpvisor.supervisor.lifecycle_messages import Ended
from mcpvisor.supervisor.spec import RestartPolicy

Jitter = Callable[[], float]
"""A number in [0, 1), new at each call."""


FIRST_AFTER_REFUSAL: Final = 10.0
"""Seconds until refused credentials are tried once more; then twice as long each time, so that nobody is hammered."""


def delay_before(attempt: int, policy: RestartPolicy, jitter: Jitter) -> float:
    """Seconds to wait before the restart number `attempt` of a row, counted from 0: 0, then a random part of 1, 2, 4, ...

    Any part of the step is as likely as any other: servers that ended together come back spread over the whole of it.
    """
    if attempt <= 0:
        return 0.0
    return _step(attempt - 1, policy) * jitter()


def _step(doublings: int, policy: RestartPolicy) -> float:
    """The delay, doubled so many times, up to the longest: seconds."""
    return min(policy.max_delay, policy.delay * 2.0 ** min(doublings, 30))


@dataclass(frozen=True, slots=True)
class NextTry:
    """When a server is tried again, and whether it is in a crash loop until then; `reason` is for people."""

    at: float
    is_looping: bool
    reason: str


@dataclass(slots=True)
class RestartHistory:
    """What is remembered of one server's ends. Times are monotonic seconds."""

    jitter: Jitter
    ends: deque[float] = field(default_factory=deque[float])
    ended: int = 0
    """Ends that may have been crashes since all of it was forgotten last; `ends` are those of the window alone."""
    first_end: float | None = None
    """When the first of these was."""
    row: int = 0
    """Failed tries in a row; the exponent of the delay curve."""
    start_timeouts: int = 0
    """Starts in a row that timed out; each gives the next one twice the time."""
    is_looping: bool = False
    """Whether the server was in a crash loop and has not been up for long since."""
    refusals: int = 0
    """Tries in a row that were refused for their credentials."""
    woken: int = 0
    """Tries in this crash loop that calls have asked for."""
    not_before: float = float("-inf")
    """The time before which the server itself does not want to be tried, as it said."""

    def next_try(self, end: Ended, policy: RestartPolicy, now: float, *, served: bool, counts: bool) -> NextTry:
        """When to try again after an end; `served` generations are followed at once, `counts` is whether it may be a crash."""
        if end.cause == "start_timeout":
            self.start_timeouts += 1
        if end.retry_after_s is not None:
            self.not_before = now + end.retry_after_s
        if counts and (self.count_end(now, policy) or self.is_looping):
            self.is_looping = True
            return NextTry(now + policy.crash_loop_retry, True, _crash_loop_reason(end, policy))
        self.row = 0 if served else self.row + 1
        delay = delay_before(self.row, policy, self.jitter)
        return NextTry(now + max(delay, end.retry_after_s or 0.0), False, end.detail)

    def after_refusal(self, longest: float) -> float:
        """Seconds until credentials that were refused are tried again: a proxy that starts may refuse all for a moment."""
        delay = min(longest, FIRST_AFTER_REFUSAL * 2.0 ** min(self.refusals, 30))
        self.refusals += 1
        return delay

    def waking_at(self, tried_at: float, policy: RestartPolicy) -> float:
        """From when on a call may ask for a try, after the last one at `tried_at`.

        A delay later; in a crash loop twice as much after each try that a call has asked for, or a client that calls all the
        time would have a broken program started every second for as long as it is broken.
        """
        return max(self.not_before, tried_at + _step(self.woken if self.is_looping else 0, policy))

    def count_waking(self) -> None:
        """A call has asked for a try."""
        self.woken += self.is_looping

    def count_end(self, now: float, policy: RestartPolicy) -> bool:
        """Count an end towards the window; True when there were too many in it, which is a crash loop."""
        self.ended += 1
        self.first_end = now if self.first_end is None else self.first_end
        if policy.intensity is None:
            return False
        self.ends.append(now)
        while self.ends and self.ends[0] <= now - policy.intensity.within:
            self.ends.popleft()
        return len(self.ends) > policy.intensity.ends

    def forget(self) -> None:
        """Start afresh: after real uptime, or by an operator's order."""
        self.ends.clear()
        self.ended, self.first_end = 0, None
        self.row = 0
        self.is_looping = False
        self.woken = 0
        self.refusals = 0


def _crash_loop_reason(end: Ended, policy: RestartPolicy) -> str:
    window = policy.intensity
    ends, within = (window.ends, window.within) if window else (0, 0.0)
    return f"ended more than {ends} times in {within:g} s; last: {end.detail}"

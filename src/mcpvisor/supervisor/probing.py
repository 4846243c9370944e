"""Owns the question whether a session is alive: probes when it is quiet, at once when it is suspect, one at a time."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, Protocol

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.spec import ProbePolicy

SLOW_ROW: Final = 3
"""So many probes in a row have to be slower than `probe.slow` for a server to be slow, and faster for it to be so no more."""

BUSY_MAX: Final = 300.0
"""Seconds for which a server is obeyed at the most that does not want to be probed (`Retry-After`)."""

NOWHERE: Final = "not_found"
"""The cause of a refusal by which nothing of MCP is at the address: no sign of life, whoever has said it."""

NOWHERE_AFTER: Final = 2
"""A session is given up after so many of these in a row: the usual question, and another one that it must know."""

DEAF_AFTER: Final = 2
"""A server that did not answer the usual question as it should so many times, and the other one, is only asked the other."""

_METHOD_NOT_FOUND: Final = -32601


class Sign(StrEnum):
    """What an answer to a probe shows of a session."""

    SERVES = "serves"
    """It answers as it should."""
    REFUSES = "refuses"
    """It lives and is kept, and there is no reason to think that a call would be answered."""
    NOTHING = "nothing"
    """There was nothing to ask with, which says nothing of it."""
    MISSED = "missed"
    """No sign of life."""


def sign_of(failure: RequestFailed | None) -> Sign:
    """What a probe shows that ended with this failure; None where it was answered with a result."""
    if failure is None:
        return Sign.SERVES
    if failure.cause == "auth_unavailable":
        return Sign.NOTHING
    is_answer = failure.outcome is Outcome.PEER_ERROR and failure.cause != NOWHERE
    if is_answer and failure.code == _METHOD_NOT_FOUND:
        return Sign.SERVES  # nobody has to know the question
    return Sign.REFUSES if is_answer or failure.cause == "busy" else Sign.MISSED


def _is_of_one_question(failure: RequestFailed | None) -> bool:
    """Whether it may be this question alone that is not taken: one that has no room wants no other."""
    return sign_of(failure) is Sign.REFUSES and failure is not None and failure.outcome is Outcome.PEER_ERROR


class Verdicts(Protocol):
    """Who is told how a probe went."""

    def probe_answered(self, seconds: float, slow: str) -> None:
        """The session serves. `slow` says so where it answers too slowly, else empty."""
        ...

    def probe_refused(self, seconds: float, refusal: RequestFailed, *, otherwise: bool) -> None:
        """The session lives, and refuses what it is asked; `otherwise`: by the other question than the usual one."""
        ...

    def probe_missed(self, misses: int, *, busy: bool, dead: bool, cause: RequestFailed) -> None:
        """No answer, `misses` times in a row. `busy`: requests are inside their own time; `dead`: enough is enough."""
        ...

    def probe_withheld(self, cause: RequestFailed) -> None:
        """There were no credentials to probe with, which says nothing about the session."""
        ...


class Latency:
    """Whether a server answers too slowly: decided by several answers in a row, so that it does not flap."""

    def __init__(self) -> None:
        self.is_slow = False
        self._row = 0
        """Answers in a row that speak against what is thought."""

    @property
    def is_open(self) -> bool:
        """Whether the newest answers speak against what is thought; the next one is then wanted soon."""
        return self._row > 0

    def answered(self, seconds: float, limit: float) -> None:
        """Take how long an answer took."""
        self._row = self._row + 1 if (seconds > limit) is not self.is_slow else 0
        if self._row >= SLOW_ROW:
            self.is_slow, self._row = not self.is_slow, 0


class Prober:
    """Probes one session. Any answer to anything postpones the next probe."""

    def __init__(
        self,
        policy: ProbePolicy,
        probe: Callable[[bool], Awaitable[object]],
        verdicts: Verdicts,
        busy: Callable[[float], bool],
    ) -> None:
        """`probe` asks the server; true: by another question than the usual one, which it may never answer.

        `busy` tells whether a request that began before the given time is still inside its own deadline.
        """
        self.policy = policy
        self._probe = probe
        self._verdicts = verdicts
        self._busy = busy
        self._misses = 0
        self._silent_since: float | None = None
        """When the first probe of a row of misses was sent."""
        self._due = anyio.current_time() + policy.interval
        self._hastened = anyio.Event()
        self.not_before = float("-inf")
        """When the server wants to be probed again, as it has said: only a session in doubt is probed before that.

        An answer to anything lifts it: there is room again.
        """
        self._held = False
        self._running: anyio.Event | None = None
        self._failure: RequestFailed | None = None
        self._latency = Latency()
        self._deafness = 0
        """How many times in a row the usual question was not answered as it should be, and the other one was."""

    @property
    def due(self) -> float:
        """When the next probe is sent by itself, in monotonic seconds."""
        return self._due

    def answered(self) -> None:
        """Something was answered: the session serves."""
        self.not_before = float("-inf")
        self._postpone(anyio.current_time() + self.policy.interval)

    def _postpone(self, at: float) -> None:
        """The session lives, and is probed again at that time."""
        self._misses, self._silent_since = 0, None
        was, self._due = self._due, at
        if at < was:
            self._hastened.set()

    def hasten(self, at: float) -> None:
        """Have the next probe at that time, or earlier; not before the time that the server itself has named."""
        at = max(at, self.not_before)
        if at < self._due:
            self._due = at
            self._hastened.set()

    def hold(self, *, held: bool) -> None:
        """Whether regular probes are to wait: the server waits for us itself. A session in doubt is asked all the same."""
        if self._held and not held:
            self._due = max(anyio.current_time() + self.policy.interval, self.not_before)
            self._hastened.set()
        self._held = held

    async def run(self) -> None:
        """Probe for as long as the caller's scope lasts."""
        while True:
            self._hastened = anyio.Event()
            with anyio.move_on_at(math.inf if self._held else self._due):
                await self._hastened.wait()
            if anyio.current_time() >= self._due and not self._held:
                await self.check()

    async def inquire(self) -> None:
        """Probe now, unless the server has said that it wants to be left alone: it has answered then, and is not silent."""
        if anyio.current_time() >= self.not_before:
            await self.check()

    async def check(self) -> RequestFailed | None:
        """Probe now, or wait for the probe that is under way; the failure, or None when the session answered."""
        if self._running is not None:
            await self._running.wait()
            return self._failure
        self._running = anyio.Event()
        try:
            self._failure = await self._round()
        finally:
            self._running.set()
            self._running = None
        return self._failure

    async def reassure(self) -> None:
        """Return when the session answers a probe. Raises RequestFailed (`not_sent`) when it does not."""
        failure = await self.check()
        if failure is not None:
            raise RequestFailed(
                Outcome.NOT_SENT,
                failure.cause,
                f"the session is in doubt: {failure.message}",
                retry_after_s=failure.retry_after_s,
            )

    async def _round(self) -> RequestFailed | None:
        started = anyio.current_time()
        self._due = started + self.policy.interval + self.policy.timeout
        otherwise = self._misses > 0 or self._deafness >= DEAF_AFTER or self.policy.failures == 1
        is_second = self._misses > 0
        failure: RequestFailed | None = None
        self.not_before = float("-inf")
        with anyio.move_on_after(self.policy.timeout) as scope:
            failure = await self._ask(otherwise)
            if not otherwise and _is_of_one_question(failure):
                otherwise = is_second = True
                failure = await self._ask(otherwise)
        if scope.cancelled_caught and failure is None:
            failure = RequestFailed(Outcome.TIMEOUT, "silence", f"no answer to a probe within {self.policy.timeout:g} s")
        sign = sign_of(failure)
        if failure is None or sign is Sign.SERVES:
            self._deafness = self._deafness + 1 if is_second else self._deafness if otherwise else 0
            self._took(anyio.current_time() - started, is_busy=self._busy(started))
            return None
        if sign is Sign.REFUSES:
            self._refused(failure, started, otherwise=otherwise)
            return None
        if sign is Sign.NOTHING:
            self._verdicts.probe_withheld(failure)
        else:
            self._missed(failure, started)
        return failure

    async def _ask(self, otherwise: bool) -> RequestFailed | None:
        try:
            await self._probe(otherwise)
        except RequestFailed as failure:
            return failure
        return None

    def _refused(self, refusal: RequestFailed, started: float, *, otherwise: bool) -> None:
        """It is looked at again when it said, and no sooner than the pause between two misses; else as usual."""
        now, pause = anyio.current_time(), self.policy.interval
        if refusal.retry_after_s is not None:
            self.not_before = started + min(refusal.retry_after_s, BUSY_MAX)
            pause = min(self.policy.interval, self.policy.timeout)
        self._postpone(max(now + pause, self.not_before))
        self._verdicts.probe_refused(now - started, refusal, otherwise=otherwise)

    def _took(self, seconds: float, *, is_busy: bool) -> None:
        self.answered()
        if not is_busy:  # whoever works on a call may answer late
            self._latency.answered(seconds, self.policy.slow)
        if self._latency.is_open:
            self.hasten(anyio.current_time() + min(self.policy.interval, self.policy.timeout))
        limit = self.policy.slow
        slow = f"slow: it takes {seconds:.1f} s for a probe (probe.slow is {limit:g} s)" if self._latency.is_slow else ""
        self._verdicts.probe_answered(seconds, slow)

    def _missed(self, failure: RequestFailed, started: float) -> None:
        if self._silent_since is None:
            self._silent_since = started
        # Only what was under way before the silence can be its cause: later requests are met by it, and are no excuse.
        busy = self._busy(self._silent_since)
        self._misses = self._misses if busy else self._misses + 1
        # A dial that is refused needs no second opinion: nobody is there.
        is_nowhere = failure.cause == NOWHERE
        allowed = min(self.policy.failures, NOWHERE_AFTER) if is_nowhere else self.policy.failures
        dead = failure.cause == "connect_failed" or self._misses >= allowed
        if not dead and is_nowhere and not busy:
            self.hasten(anyio.current_time())
        elif not dead:
            pause = self.policy.timeout if busy else 0.0
            self.hasten(max(started + self.policy.timeout, anyio.current_time() + pause))
        self._verdicts.probe_missed(self._misses, busy=busy, dead=dead, cause=failure)

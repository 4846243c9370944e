"""Owns the question whether a session is alive: probes when it is quiet, at once when it is suspect, one at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.spec import ProbePolicy


class Verdicts(Protocol):
    """Who is told how a probe went."""

    def probe_answered(self, seconds: float) -> None:
        """The session lives; an error answer is a sign of life too."""
        ...

    def probe_missed(self, misses: int, *, busy: bool, dead: bool, cause: RequestFailed) -> None:
        """No answer, `misses` times in a row. `busy`: requests are inside their own time; `dead`: enough is enough."""
        ...

    def probe_withheld(self, cause: RequestFailed) -> None:
        """There were no credentials to probe with, which says nothing about the session."""
        ...


class Prober:
    """Probes one session. Any answer to anything postpones the next probe."""

    def __init__(
        self,
        policy: ProbePolicy,
        probe: Callable[[], Awaitable[object]],
        verdicts: Verdicts,
        busy: Callable[[float], bool],
    ) -> None:
        """`busy` tells whether a request that began before the given time is still inside its own deadline."""
        self.policy = policy
        self._probe = probe
        self._verdicts = verdicts
        self._busy = busy
        self._misses = 0
        self._silent_since: float | None = None
        """When the first probe of a row of misses was sent."""
        self._last_answer = anyio.current_time()
        self._running: anyio.Event | None = None
        self._failure: RequestFailed | None = None

    def answered(self) -> None:
        """Something was answered: the session lives."""
        self._last_answer = anyio.current_time()
        self._misses, self._silent_since = 0, None

    async def run(self) -> None:
        """Probe for as long as the caller's scope lasts."""
        while True:
            due = self._last_answer + self.policy.interval
            wait = due - anyio.current_time()
            if wait > 0:
                await anyio.sleep(wait)
                continue
            await self.check()
            if self._failure is not None:
                await anyio.sleep(min(self.policy.interval, self.policy.timeout))

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
        failure: RequestFailed | None = None
        with anyio.move_on_after(self.policy.timeout) as scope:
            try:
                await self._probe()
            except RequestFailed as error:
                failure = error if error.outcome is not Outcome.PEER_ERROR else None
        if scope.cancelled_caught:
            failure = RequestFailed(Outcome.TIMEOUT, "silence", f"no answer to a probe within {self.policy.timeout:g} s")
        if failure is None:
            self.answered()
            self._verdicts.probe_answered(anyio.current_time() - started)
            return None
        if failure.cause == "auth_unavailable":
            self._verdicts.probe_withheld(failure)
            return failure
        if self._silent_since is None:
            self._silent_since = started
        # Only what was under way before the silence can be its cause: later requests are met by it, and are no excuse.
        busy = self._busy(self._silent_since)
        self._misses = self._misses if busy else self._misses + 1
        # A dial that is refused needs no second opinion: nobody is there.
        dead = failure.outcome is Outcome.NOT_SENT or self._misses >= self.policy.failures
        self._verdicts.probe_missed(self._misses, busy=busy, dead=dead, cause=failure)
        return failure

"""Owns how often the source of a credential is asked: ever more rarely while it fails, or gives what is refused. Pure."""

from __future__ import annotations

from collections.abc import Callable

from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.auth.token import delay_after

_NEVER_ASKED = float("-inf")


class Patience:
    """What one source has done of late. Times are monotonic seconds; `chance` gives random numbers in [0, 1)."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self.failure: CredentialsMissing | None = None
        """What failed last; None once something has come."""
        self._failures = 0
        self._refusals = 0
        """Fetched credentials in a row that the server has refused."""
        self.not_before = _NEVER_ASKED
        """Before then the source is not asked again after a failure."""
        self._renewable_at = _NEVER_ASKED
        """The same after a refusal of what is held."""

    @property
    def is_tried(self) -> bool:
        """Whether there has been a failure or a refusal that nothing has mended yet."""
        return bool(self._refusals or self._failures)

    def afresh(self) -> None:
        """Whatever failed may be asked for at once; what failed last stays known until something comes."""
        self._failures = self._refusals = 0
        self.not_before = self._renewable_at = _NEVER_ASKED

    def failed(self, failure: CredentialsMissing, now: float) -> float:
        """The source gave nothing; returns for how many seconds it is left alone."""
        self._failures += 1
        delay = max(delay_after(self._failures, self._chance()), failure.retry_after_s or 0.0)
        self.failure, self.not_before = failure, now + delay
        return delay

    def told(self, now: float) -> CredentialsMissing:
        """The failure that is shared until the source is asked again, with the time that is left."""
        assert self.failure is not None
        left = max(0.0, self.not_before - now)
        retry = self.failure.retry_after_s if self.failure.cause == "auth" else left
        return CredentialsMissing(self.failure.cause, self.failure.detail, retry)

    def came(self) -> None:
        """The source gave something."""
        self.failure, self._failures = None, 0

    def held(self, now: float) -> None:
        """Something is held; after a refusal the next one is only fetched when this one had some time to be accepted."""
        self._renewable_at = now + (delay_after(self._refusals, self._chance()) if self._refusals else 0.0)

    def may_renew(self, now: float) -> bool:
        """Whether what is held, and was refused, may be given up for another one yet."""
        return now >= self._renewable_at

    def refused(self) -> None:
        """The server refused what was held."""
        self._refusals += 1

    def accepted(self) -> None:
        """The server takes what is held."""
        if self._refusals:
            self._refusals, self._renewable_at = 0, _NEVER_ASKED

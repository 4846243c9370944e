"""Owns what is known of one fetched credential: until when it is good, and from when on it should be renewed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mcpvisor.supervisor.auth.credential import Credential

LEAST_LIFE: Final = 5.0
"""Seconds for which what was just fetched is used at least, whatever its source says: no life so short asks for a storm."""

LONGEST_LIFE: Final = 10 * 365 * 86_400.0
"""Seconds after which a credential is renewed at the latest; more is a mistake, such as milliseconds."""

MARGIN: Final = 60.0
"""Seconds before its expiry from which on a credential is renewed, while it is still used; a tenth of a short life."""

JITTER: Final = 0.5
"""The part of the margin that is left to chance, so that clients which began together do not renew together."""

FIRST_DELAY: Final = 1.0
MAX_DELAY: Final = 60.0
"""Seconds after a failure, doubled from the one to the other, before a source is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obtained:
    """What a source gave. `expires_at` in wall-clock seconds, None where it did not say: good until it is refused."""

    credential: Credential
    secrets: tuple[str, ...]
    expires_at: float | None
    renew_at: float | None
    """When a new one is asked for beside it."""

    def is_good(self, now: float) -> bool:
        """Whether it can be sent."""
        return self.expires_at is None or now < self.expires_at

    def is_due(self, now: float) -> bool:
        """Whether it is time to renew it."""
        return self.renew_at is not None and now >= self.renew_at


def obtained(credential: Credential, secrets: tuple[str, ...], expires_at: float | None, now: float, chance: float) -> Obtained:
    """A credential that was given at `now`; `chance` is a random number in [0, 1)."""
    if expires_at is None:
        return Obtained(credential=credential, secrets=secrets, expires_at=None, renew_at=None)
    expires_at = min(expires_at, now + LONGEST_LIFE)
    margin = min(MARGIN, (expires_at - now) / 10)
    renew_at = expires_at - margin * (1.0 - JITTER * chance)
    return Obtained(credential=credential, secrets=secrets, expires_at=expires_at, renew_at=renew_at)


def lasting(held: Obtained, now: float, chance: float) -> Obtained:
    """What was fetched at `now`, good for the least life; where that is too long, the server refuses it and tells so."""
    if held.expires_at is None or held.expires_at >= now + LEAST_LIFE:
        return held
    longer = obtained(held.credential, held.secrets, now + LEAST_LIFE, now, chance)
    return replace(held, expires_at=longer.expires_at, renew_at=longer.renew_at)


def delay_after(failures: int, chance: float) -> float:
    """Seconds to wait after so many failures in a row: 1, 2, 4 up to 60, of which a random half is left out."""
    return min(FIRST_DELAY * 2.0 ** min(failures - 1, 10), MAX_DELAY) * (0.5 + 0.5 * chance)

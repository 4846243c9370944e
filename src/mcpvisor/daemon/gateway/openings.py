"""Owns the pace at which each client opens sessions: opening one is the dearest thing that can be asked for."""

from __future__ import annotations

import anyio


class Openings:
    """A pace for each principal: `burst` at once, then `per_second`; what is above waits its time, and is never refused.

    It is kept as the moment at which a principal's next opening is due (the generic cell rate algorithm of ITU-T I.371),
    so that those that wait are spread evenly and nobody else meets several of them in a row.
    """

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._interval = 1 / per_second
        self._ahead = burst * self._interval
        self._due: dict[str, float] = {}

    async def take(self, principal: str) -> None:
        """Return when the principal may open its next session: first come, first served."""
        now = anyio.current_time()
        due = max(self._due.get(principal, now), now)
        self._due[principal] = due + self._interval
        if due + self._interval - now > self._ahead:
            await anyio.sleep_until(due + self._interval - self._ahead)

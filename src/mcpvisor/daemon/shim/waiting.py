"""Owns how long the shim waits for a gateway that is away, and at which pace it looks whether it is back."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 30.0
"""Seconds for which a message waits for the gateway before it counts as not sent: the daemon may be starting again."""

_FIRST: Final = 0.1
_LONGEST: Final = 2.0


class Backoff:
    """The pauses between tries of one message: doubled, and never beyond its patience."""

    def __init__(self, now: float, patience: float = PATIENCE) -> None:
        """`now` is in monotonic seconds."""
        self._until = now + patience
        self._pause = _FIRST

    def next(self, now: float, wanted: float | None = None) -> float | None:
        """How long to wait before the next try, `wanted` seconds where the gateway said so; None where it would be too late."""
        pause = self._pause if wanted is None else max(wanted, _FIRST)
        self._pause = min(self._pause * 2, _LONGEST)
        return pause if now + pause <= self._until else None


def retry_after(value: str) -> float | None:
    """The seconds of a `Retry-After`; None where it is none."""
    return float(value) if value.isascii() and value.isdigit() and len(value) < 6 else None

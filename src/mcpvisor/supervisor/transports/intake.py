"""Owns how much a server may say unasked: a token bucket for what is no answer to a request of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

UNASKED_PER_SECOND: Final = 500
UNASKED_BURST: Final = 2000

ALWAYS_PASSED: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/updated",
    }
)
"""What must not be lost, since nobody would ask again; the generation merges them."""

_WANTED_ABOVE_RATE: Final = (b'"result"', b'"error"', b"list_changed", b"resources/updated")
"""Bytes with none of these in them are neither an answer nor a notification that is always passed."""

_REPORT_SECONDS: Final = 1.0
_RECOVERED: Final = UNASKED_PER_SECOND / 2
"""Tokens after which a dry bucket gives again: in a flood long stretches can then be dropped unread."""


class Intake:
    """The bucket of one wire. `report` gets one sentence a second while messages are being dropped."""

    def __init__(self, report: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._tokens = float(UNASKED_BURST)
        self._is_dry = False
        self._counted_at = clock()
        self._reported_at: float | None = None
        self._dropped = 0
        self.overruns = 0
        """How many messages have come above the rate, dropped or not."""

    def is_dry(self) -> bool:
        """Whether the next unasked message is above the rate. Once dry, it stays so until it has filled to `_RECOVERED`."""
        if self._is_dry or self._tokens < 1:
            self._refill()
            self._is_dry = self._tokens < _RECOVERED
        return self._is_dry

    def drops_unread(self, data: bytes) -> bool:
        """Whether bytes need not be parsed, as nothing that they could say is handled above the rate."""
        return self.is_dry() and not any(word in data for word in _WANTED_ABOVE_RATE)

    def admits(self, method: str = "") -> bool:
        """Whether one more unasked message may be handled; takes a token."""
        if not self.is_dry():
            if self._dropped:  # the flood may be over, so that no drop would come any more to report the last ones
                self._refill()
            self._tokens -= 1
            return True
        if method in ALWAYS_PASSED:
            self.overruns += 1
            return True
        self.dropped(1)
        return False

    def dropped(self, count: int) -> None:
        """So many messages above the rate were dropped."""
        self.overruns += count
        self._dropped += count
        self._report_dropped(at_most_every=_REPORT_SECONDS)

    def close(self) -> None:
        """Report what was dropped and is not reported yet."""
        self._report_dropped(at_most_every=0.0)

    def _refill(self) -> None:
        # Looked at only when the bucket is empty: the clock costs more than the count.
        now = self._clock()
        self._tokens = min(float(UNASKED_BURST), self._tokens + (now - self._counted_at) * UNASKED_PER_SECOND)
        self._counted_at = now
        if self._tokens >= _RECOVERED:
            self._report_dropped(at_most_every=_REPORT_SECONDS)

    def _report_dropped(self, *, at_most_every: float) -> None:
        if not self._dropped:
            return
        now = self._counted_at
        if self._reported_at is not None and now - self._reported_at < at_most_every:
            return
        self._reported_at = now
        self._report(f"{self._dropped} messages over the rate of {UNASKED_PER_SECOND} a second were dropped")
        self._dropped = 0

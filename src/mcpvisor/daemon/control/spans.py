"""Owns how a length of time reads."""

from __future__ import annotations

from typing import Final

_AGES: Final = 1e10
"""Seconds from which on a length is no length of anything, and only its order of magnitude is shown."""

_ROUNDING: Final = 0.001
"""Seconds below nothing that are none: two readings of one moment need not agree in their last digits."""


def seconds(duration: float) -> str:
    """A duration in the largest unit that says enough: `350 ms`, `12 s`, `3 min`, `5 h`, `2 d`.

    One below nothing is of two times of a clock that was set back in between, and reads `unknown`.
    """
    if duration < -_ROUNDING:
        return "unknown"
    if duration < 1:
        return f"{max(duration, 0) * 1000:.0f} ms"
    if duration >= _AGES:
        return f"{duration / 86400:.3g} d"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if duration >= 2 * size:
            return f"{duration / size:.0f} {unit}"
    return f"{duration:.0f} s"

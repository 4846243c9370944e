"""Owns how a moment is told to people, whatever number it is: what is no date of a calendar must not break what shows it."""

from __future__ import annotations

from datetime import datetime


def local_time(at: float) -> datetime | None:
    """The moment, in seconds since the epoch, on the machine's own clock; None where no calendar goes so far."""
    try:
        return datetime.fromtimestamp(at).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(at: float) -> str:
    """The moment in ISO 8601, to the second; where no calendar goes so far, the number."""
    moment = local_time(at)
    return moment.isoformat(timespec="seconds") if moment is not None else far_away(at)


def far_away(at: float) -> str:
    """A moment that has no date."""
    return f"{at:.3g} s after 1970"

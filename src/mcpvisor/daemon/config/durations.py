"""Owns the written forms of durations, sizes and restart windows, and what an error says was expected instead."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from mcpvisor.supervisor.spec import Intensity

DURATION_EXPECTED: Final = 'seconds as a number, or a text such as "500ms", "30s", "1.5m", "2h", "1d"'
SIZE_EXPECTED: Final = 'bytes as a whole number, or a text such as "512KiB", "64MiB", "1GB"'
INTENSITY_EXPECTED: Final = 'ends within a duration such as "5/60s", or "off"'

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
UNITS_OF_TIME: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)", re.ASCII)
UNITS_OF_SIZE: Final = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
}
_LONGEST: Final = 10_000 * 86400.0
"""Longer times are nobody's, and no clock of the system takes them all."""
_LARGEST: Final = 2**63 - 1
"""The largest number of bytes that the kernel counts."""
_TOO_LARGE: Final = "a size is at most 8 EiB"
_INTENSITY = re.compile(r"(\d{1,6})\s*/\s*(\S+)", re.ASCII)


def seconds(value: Any) -> float:
    """A duration in seconds. Raises ValueError for anything that is none, saying what was wrong with it."""
    if isinstance(value, bool):
        raise ValueError("true and false are no durations")  # noqa: TRY004 - the promise is one error for any bad value
    if isinstance(value, int | float):
        if value < 0 or not (isinstance(value, int) or math.isfinite(value)):
            raise ValueError("a duration is a finite number that is not negative")
        return float(_bounded(value))
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a duration")
    number = float(match[1])
    return _bounded(number / 1000 if match[2] == "ms" else number * UNITS_OF_TIME[match[2]])


def _bounded(duration: float) -> float:
    # A whole number may be too large for a float: it is compared as it is.
    if duration > _LONGEST:
        raise ValueError("a duration is at most 10000d")
    return duration


def size(value: Any) -> int:
    """A size in bytes. Raises ValueError for anything that is none."""
    if isinstance(value, bool):
        raise ValueError("true and false are no sizes")  # noqa: TRY004 - the promise is one error for any bad value
    if isinstance(value, int):
        if value < 0:
            raise ValueError("a size is not negative")
        return _countable(value)
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a size")
    if len(match[1]) > len(str(_LARGEST)):  # before it is made a number: there are longer texts than numbers
        raise ValueError(_TOO_LARGE)
    return _countable(
        int(float(match[1]) * UNITS_OF_SIZE[match[2]]) if "." in match[1] else int(match[1]) * UNITS_OF_SIZE[match[2]]
    )


def _countable(number: int) -> int:
    if number > _LARGEST:
        raise ValueError(_TOO_LARGE)
    return number


def intensity(value: Any) -> Intensity | None:
    """A restart window such as "5/60s"; None for "off". Raises ValueError for anything else."""
    if value == "off":
        return None
    match = _INTENSITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a restart window")
    within = seconds(match[2])
    if int(match[1]) < 1 or within <= 0:
        raise ValueError('a restart window needs at least one end and a time; "off" turns it off')
    return Intensity(ends=int(match[1]), within=within)

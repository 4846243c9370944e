"""Owns how the count of the servers reads: the same in `status` and in the line that systemd shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_AT_REST: Final = ("stopped", "disabled")


def tally(ready: int, total: int, wanted: Iterable[str], what: str = "") -> str:
    """The count in words, as `1/3 ready, 1 stopped`; `wanted` is what each server is wanted to be, `what` their word."""
    known = list(wanted)
    at_rest = "".join(f", {number} {word}" for word in _AT_REST if (number := known.count(word)))
    return f"{ready}/{total}{what and ' ' + what} ready{at_rest}"

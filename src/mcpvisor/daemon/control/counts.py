"""Owns how a number of things reads."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """A number with its word: `1 entry`, `2 entries`; `several` where an `s` does not make it."""
    return f"{number} {one if number == 1 else several or one + 's'}"

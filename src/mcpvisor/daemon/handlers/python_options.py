"""Owns what can be said of a handler that is an object of Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonOptions:
    """`type = "python"`: exactly one of the two says which object takes the events."""

    object: str | None = None
    """As `module:object`."""
    entry_point: str | None = None
    """A name in the entry-point group `mcpvisor.handlers`."""

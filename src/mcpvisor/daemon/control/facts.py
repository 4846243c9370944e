"""Owns what the control socket says of the daemon itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The daemon as its operators see it. `started_at` is wall-clock seconds since the epoch."""

    version: str
    started_at: float
    pid: int
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Where the daemon listens, by listener: `gateway`, `metrics`."""
    handlers: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """How each handler is."""
    stopping: Callable[[], str] = str
    """What is going on at the daemon's end, in words; empty while it has not been told to stop."""

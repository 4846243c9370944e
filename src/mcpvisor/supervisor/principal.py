"""Owns who asks: the identity that every request, limit and audit line is keyed by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is made for. `name` is the identity (`uid:1000`, `token:default`), `session` one conversation of it."""

    name: str
    session: str | None = None


SUPERVISOR: Final = Principal("supervisor")
"""The supervisor itself: handshakes, lists, probes."""

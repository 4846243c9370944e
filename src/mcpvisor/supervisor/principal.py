"""Owns who asks: the identity that every request, limit and audit line is keyed by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is made for. `name` is the identity (`uid:1000`, `token:default`), `session` one conversation of it."""

    name: str
    session: str | None = None
    is_operator: bool = field(default=False, compare=False)
    """Whether an operator asks by the control socket: about the server itself, whatever clients have of their own."""


SUPERVISOR: Final = Principal("supervisor")
"""The supervisor itself: handshakes, lists, probes."""

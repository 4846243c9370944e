"""Owns the mark on every HTTP request to a server, by which a daemon knows a request of its own that came back to it."""

from __future__ import annotations

import hashlib
from typing import Final

HOP_HEADER: Final = "mcpvisor-hop"


def hop_mark(instance: str) -> str:
    """The mark of an instance: the same for all its requests, and nothing that tells the instance id."""
    return hashlib.sha256(f"hop {instance}".encode()).hexdigest()[:16]

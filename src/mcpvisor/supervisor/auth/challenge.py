"""Owns the reading of WWW-Authenticate: what a server says of the credentials that it refuses. Pure."""

from __future__ import annotations

import re
from typing import Final

from mcpvisor.supervisor.cleaning import clip

_PARAMETER: Final = re.compile(r'(?<![A-Za-z0-9_-])([A-Za-z_][A-Za-z0-9_-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s",]++))')
"""It never goes back, and begins at the beginnings of words only: what a server says may not cost more than its length."""

MAX_READ: Final = 1024
"""Characters that are read of a challenge; real ones have a few hundred."""
_SHOWN: Final = 200
"""Characters of a scope or a description that are shown."""


def challenge_parameters(challenge: str) -> dict[str, str]:
    """The parameters of a challenge, names in lower case; of one that is written twice the first counts."""
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(clip(challenge, MAX_READ)):
        found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else plain)
    return found


def challenge_words(challenge: str) -> str:
    """What a challenge says, in a clause; empty where it says nothing of use."""
    told = challenge_parameters(challenge)
    error, scope = told.get("error", ""), clip(told.get("scope", ""), _SHOWN)
    if error == "insufficient_scope":
        wanted = f" {scope}" if scope else ""
        return f"it wants the scope{wanted} (insufficient_scope): add it to auth.scope, or have it granted"
    parts = [f"error {clip(error, _SHOWN)}"] if error else []
    if description := clip(told.get("error_description", ""), _SHOWN):
        parts.append(f'"{description}"')
    if scope:
        parts.append(f"scope {scope}")
    return f"it says {', '.join(parts)}" if parts else ""

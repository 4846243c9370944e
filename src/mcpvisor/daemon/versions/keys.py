"""Owns how kept versions are named in the state store: which kind of part, and of what."""

from __future__ import annotations

from typing import Final

SERVER: Final = "server"
HELD: Final = "held"
SETTINGS: Final = "settings"
HANDLERS: Final = "handlers"


def key_of(kind: str, name: str) -> str:
    """The key of a part: of a server by its name, of a file by its path."""
    return f"{kind}:{name}"


def named_by(key: str) -> tuple[str, str]:
    """The kind and the name that a key is made of."""
    kind, _, name = key.partition(":")
    return kind, name

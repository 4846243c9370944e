"""Owns the rule by which a server's names become public ones."""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from typing import Final

MAX_LENGTH: Final = 64
"""What the strictest model APIs take as the name of a tool."""

MAX_OWN_LENGTH: Final = 128
"""What the protocol allows; enough where a server is shown on its own."""

SEPARATOR: Final = "__"

_HASH_LENGTH: Final = 10
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_FOREIGN_ALONE: Final = re.compile(r"[^A-Za-z0-9_.-]")


def public_name(server: str, original: str) -> str:
    """The name of a tool or prompt where all servers are shown together.

    It depends on the server and the original alone, so it is stable whatever else is connected. Server names hold no
    `__` and do not end in `_`, so what stands before the first `__` is always the server: no server can take a name of
    another's.
    """
    plain = _FOREIGN.sub("_", original)
    prefix = server + SEPARATOR
    if plain and plain == original and len(prefix) + len(plain) <= MAX_LENGTH:
        return prefix + plain
    return prefix + _cut(plain, MAX_LENGTH - len(prefix), server, original)


def own_name(server: str, original: str) -> str:
    """The name where the server is shown alone: its own, unless the protocol does not allow that."""
    plain = _FOREIGN_ALONE.sub("_", original)
    if plain and plain == original and len(plain) <= MAX_OWN_LENGTH:
        return plain
    return _cut(plain, MAX_OWN_LENGTH, server, original)


def _cut(plain: str, room: int, server: str, original: str) -> str:
    digest = hashlib.sha256(f"{server}\0{original}".encode("utf-8", "surrogatepass")).digest()
    suffix = "_" + b32encode(digest).decode().lower()[:_HASH_LENGTH]
    return plain[: room - len(suffix)] + suffix

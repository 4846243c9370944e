"""Owns the words people write for a transport: one table of synonyms for all files."""

from __future__ import annotations

from enum import Enum
from typing import Final

from mcpvisor.supervisor.spec import HttpTransport


class Kind(Enum):
    """What a word asks for: a program to start, or an address to call."""

    STDIO = "stdio"
    HTTP = "http"


Meaning = tuple[Kind, HttpTransport]

_STDIO: Final[Meaning] = (Kind.STDIO, HttpTransport.AUTO)
_AUTO: Final[Meaning] = (Kind.HTTP, HttpTransport.AUTO)
_STREAMABLE: Final[Meaning] = (Kind.HTTP, HttpTransport.STREAMABLE_HTTP)
_SSE: Final[Meaning] = (Kind.HTTP, HttpTransport.SSE)

EXPECTED: Final = '"stdio", "http" (also "streamable-http") or "sse"'

_MEANINGS: Final[dict[str, Meaning]] = {
    "stdio": _STDIO,
    "local": _STDIO,
    "http": _STREAMABLE,
    "streamablehttp": _STREAMABLE,
    "sse": _SSE,
    "remote": _AUTO,
}

WORDS: Final = ("stdio", "http", "streamable-http", "sse")
"""The words of our own; what `nearest` proposes."""


SYNONYMS: Final = tuple(_MEANINGS)
"""All words that mean a transport, in small letters and without joints."""


def meaning_of(word: str) -> Meaning | None:
    """What a word for a transport means, whatever its case and joints; None for an unknown word."""
    return _MEANINGS.get(word.lower().replace("-", "").replace("_", "").replace(" ", ""))

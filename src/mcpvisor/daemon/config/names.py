"""Owns the rule for names of servers, and how a name from another program's file is carried over."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from typing import Final

MAX_LENGTH: Final = 32
EXPECTED: Final = f"letters, digits and -, in words joined by single _, at most {MAX_LENGTH} characters"

PATTERN: Final = "[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*"

_NAME = re.compile(PATTERN, re.ASCII)
_HASH_LENGTH: Final = 8


def is_name(text: str) -> bool:
    """Whether a text is a name as it stands."""
    return len(text) <= MAX_LENGTH and _NAME.fullmatch(text) is not None


def carried_over(original: str) -> str:
    """The name for a server that another program calls `original`: the same one wherever the rule allows it.

    NFC; every other character becomes `-`; runs of `_` become one, and none stays at either end; what is longer than
    32 is cut and ends with a hash of the original. Empty when nothing is left.
    """
    text = unicodedata.normalize("NFC", original)
    if is_name(text):
        return text
    text = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "-", text, flags=re.ASCII)).strip("_")
    if len(text) <= MAX_LENGTH:
        return text
    digest = hashlib.sha256(unicodedata.normalize("NFC", original).encode("utf-8", "surrogatepass")).digest()
    tail = base64.b32encode(digest).decode("ascii").lower()[:_HASH_LENGTH]
    return f"{text[: MAX_LENGTH - _HASH_LENGTH - 1].rstrip('_')}-{tail}"

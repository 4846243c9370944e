"""Owns in which writings a secret comes back: as it is, escaped in JSON and in addresses, and within base64."""

from __future__ import annotations

import base64
import json
import re
from typing import Final
from urllib.parse import quote, quote_plus

LEAST_OF_BASE64: Final = 8
"""Characters of the shortest piece of base64 that is looked for."""
LEAST_OF_LINES: Final = 8
"""Characters of the shortest line that counts by itself, of a secret of several lines."""

_SAFE: Final = ("", "/")
"""What is left as it is in an address, by those who write all of it and by those who write a path."""

_HEX: Final = re.compile("%[0-9A-F]{2}")


def forms(secret: str) -> set[str]:
    """A secret as it is, and as it comes back where some of its characters, or all of them, are written otherwise.

    That is in JSON texts, forms, addresses and base64, whatever stands before it there. Of a secret of several lines, such as
    a key, each line is one.
    """
    found: set[str] = set()
    for text in (secret, *_lines(secret)):
        quoted = {json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]}
        encoded = {quote(text, safe=safe, errors="surrogateescape") for safe in _SAFE}
        encoded |= {quote_plus(text, safe=safe, errors="surrogateescape") for safe in _SAFE}
        lower = {_HEX.sub(lambda found: found.group().lower(), form) for form in encoded}
        found |= {text, *quoted, *(form.replace("/", "\\/") for form in quoted), *encoded, *lower, *_within_base64(text)}
    return found


def _lines(secret: str) -> list[str]:
    lines = [line.strip() for line in secret.splitlines()]
    return [line for line in lines if len(line) >= LEAST_OF_LINES and not line.startswith("-----")] if len(lines) > 1 else []


def _within_base64(secret: str) -> set[str]:
    """What base64 makes of a secret in the middle of a text: the characters that depend on nothing beside it."""
    data = secret.encode("utf-8", "surrogateescape")
    found: set[str] = set()
    for before in range(3):
        padded = b"\0" * before + data
        first = -(-before * 8 // 6)
        middle = base64.b64encode(padded)[first : len(padded) * 8 // 6].decode()
        if len(middle) >= LEAST_OF_BASE64:
            found |= {middle, middle.replace("+", "-").replace("/", "_")}
    return found

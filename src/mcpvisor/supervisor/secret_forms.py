"""Owns in which writings a secret comes back: as it is, escaped in JSON, in addresses and on pages, and within base64."""

from __future__ import annotations

import base64
import html
import json
import re
from typing import Final
from urllib.parse import quote, quote_plus

LEAST_OF_BASE64: Final = 8
"""Characters of the shortest piece of base64 that is looked for."""
LEAST_OF_LINES: Final = 8
"""Characters of the shortest line that counts by itself, of a secret of several lines."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]*")
"""What nobody writes otherwise, but in base64."""

_SAFE: Final = (
    *("", "/"),  # what Python leaves as it is in addresses: of all of it, and of a path
    *("!'()*", ";,/?:@&=+$-_.!~*'()#"),  # encodeURIComponent and encodeURI
    *("!$&'()*+,;=:@", "!$&'()*+,;=:@/?"),  # what may stand in a path, and in a query
    "*-._",  # forms, as browsers and Java write them
)
"""What is left as it is, by those who write addresses; `~` is left by all but the last."""

_HEX: Final = re.compile("%[0-9A-F]{2}")


def forms(secret: str) -> set[str]:
    """A secret as it is, and as it comes back where some of its characters, or all of them, are written otherwise.

    That is in JSON texts, forms, addresses, pages, reprs and base64, whatever stands before it there, and in JSON and addresses
    that stand in others. Of a secret of several lines, such as a key, each line is one.
    """
    found: set[str] = set()
    for text in (secret, *_lines(secret)):
        found |= {text, *_within_base64(text)}
        if not _PLAIN.fullmatch(text):
            encoded = _encoded(text)
            found |= {*_quoted(text), *_on_pages(text), *encoded, *_within_base64(quote_plus(text, errors="surrogateescape"))}
    return found


def _quoted(text: str) -> set[str]:
    """In JSON, in JSON within JSON, on a page that shows JSON, and as Python writes a text."""
    once = {json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]}
    found = {*once, repr(text)[1:-1], *(page for form in once for page in _on_pages(form))}
    found |= {json.dumps(form)[1:-1] for form in once}
    return found | {form.replace("/", "\\/") for form in once}


def _on_pages(text: str) -> set[str]:
    """As text of a page, where quotes may be numbers."""
    escaped = html.escape(text)
    decimal = escaped.replace("&#x27;", "&#39;")
    return {html.escape(text, quote=False), escaped, decimal, decimal.replace("&quot;", "&#34;")}


def _encoded(text: str) -> set[str]:
    """In addresses and forms, and in addresses that are parameters of others."""
    once: set[str] = set()
    for safe in _SAFE:
        for write in (quote, quote_plus):
            form = write(text, safe=safe, errors="surrogateescape")
            once.add(form.replace("~", "%7E") if safe == "*-._" else form)
    once |= {_HEX.sub(lambda found: found.group().lower(), form) for form in once}
    return once | {quote(form, safe="") for form in once}


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

"""Owns the one way in which text of a server becomes fit to be shown: decoded, stripped of control sequences, cut."""

from __future__ import annotations

import json
import re
from typing import Final

_ELLIPSIS: Final = "…"
BYTES_PER_CHARACTER: Final = 16
"""How many bytes are looked at for each character that may be shown: room for escapes, and a bound for the work."""

_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor movement
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|\x1b[ -/]*[0-~]?"  # every other escape
)
_SPACES: Final = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")
_FORMAT: Final = (
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
"""Format characters, all of them: they turn the direction of what follows, or hide text, or text within text."""
_UNSEEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f{_FORMAT}]")
_UNSEEN_IN_JSON: Final = re.compile(f"[\x7f-\x9f\u2028\u2029{_FORMAT}]")
"""What JSON leaves as it is in its texts, and a terminal or a reader of lines does not."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean_text(raw: bytes | str, limit: int) -> str:
    """The text on one line, of at most `limit` characters, with nothing in it that could steer a terminal or a page.

    Bytes that are no UTF-8 become U+FFFD. The work is bounded by `limit`, whatever the length of `raw`.
    """
    head = raw[: limit * BYTES_PER_CHARACTER]
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else head
    if not text.isprintable():
        text = _ESCAPES.sub("", text)
        text = _SPACES.sub(" ", text)
        text = _UNSEEN.sub("", text)
        text = _SURROGATES.sub("\ufffd", text)
    if len(text) > limit or len(raw) > len(head):
        text = text[: limit - 1] + _ELLIPSIS
    return text


def marked(text: str) -> str:
    """The text as it is, but for U+FFFD in place of whatever cannot be seen; tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\t" else "\ufffd" for one in text)


def clip(text: str, limit: int) -> str:
    """The text, of at most `limit` characters; one that was cut shows it, by which the begin of a secret in it is known."""
    return text if len(text) <= limit else text[: limit - 1] + _ELLIPSIS


def escape_json(text: str) -> str:
    """The same JSON, with everything in its texts written as an escape that could steer a terminal or end a line."""
    return text if text.isascii() and "\x7f" not in text else _UNSEEN_IN_JSON.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1] if found.group() != "\x7f" else "\\u007f"

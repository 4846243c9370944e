"""Owns how a server's words reach a person: clean, on one line, cut, and under that server's name and no other's."""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from mcpvisor.supervisor.cleaning import clean_text

MESSAGE: Final = 4000
"""The most characters of a message."""
TITLE: Final = 200
DESCRIPTION: Final = 1000

_MARKS: Final = 3
"""How many combining marks may stand on one letter: writing systems need no more, and a pile of them covers other lines."""

_SPACES: Final = re.compile(r"\s+")
_ROUND: Final = str.maketrans(
    dict.fromkeys("[\uff3b\u3010\u3014\u3016\u3018\u301a\u27e6\u2045\u2772\u23a1\u2e22\u300c\u300e\ufe47", "(")
    | dict.fromkeys("]\uff3d\u3011\u3015\u3017\u3019\u301b\u27e7\u2046\u2773\u23a4\u2e23\u300d\u300f\ufe48", ")")
)
"""Square brackets and what looks like them: around a name they are the mark of this program, and a server cannot write them."""
_BLANK: Final = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Letters and marks that are seen by nobody."""
_NOBODYS: Final = frozenset({"Cn", "Co", "Cs"})
"""The categories of what stands for no letter, and may look like anything."""
_UNSEEN: Final = re.compile(f"[{_BLANK}]")
_SUSPECT: Final = re.compile(rf"[{_BLANK}]|[^\w\s\x00-\x7f]{{{_MARKS + 1}}}")
"""What has to be looked at letter by letter."""


def under_name(server: str, text: str, limit: int = MESSAGE) -> str:
    """What the server says, after `[server] `, by which a person knows who asks."""
    return f"[{server}] {shown(text, limit) or 'asks without a word'}"


def shown(text: Any, limit: int) -> str:
    """Words of a server, fit to stand in a question; empty for anything that is no text.

    Square brackets become round ones, so that no server can write another's name as this program does; whatever is
    invisible or turns the direction of writing is left out, joiners included; runs of white space are one space.
    """
    if not isinstance(text, str):
        return ""
    cleaned = clean_text(text, limit).translate(_ROUND)
    if not cleaned.isascii():
        cleaned = _seen(cleaned)
    return _SPACES.sub(" ", cleaned).strip()


def is_clean(text: str) -> bool:
    """Whether a text that has to stay as it is may be shown as it is: one line, with nothing hidden in it."""
    return text.isprintable() and (text.isascii() or _seen(text) == text)


def _seen(text: str) -> str:
    if text.isprintable() and _SUSPECT.search(text) is None:
        return text
    kept: list[str] = []
    marks = 0
    for one in _UNSEEN.sub("", text):
        category = unicodedata.category(one)
        if category == "Cf":
            continue
        marks = marks + 1 if category in {"Mn", "Me"} else 0
        if marks <= _MARKS:
            kept.append("\ufffd" if category in _NOBODYS else one)
    return "".join(kept)

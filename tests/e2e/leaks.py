"""Owns how a canary is found in whatever came out of a program: as it is, cut, percent-encoded, in JSON, in base64."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Final

from tests.e2e.canaries import CANARY, END

BEGIN: Final = CANARY[:9]
"""So much of a secret that was cut is still one."""

_AROUND: Final = 160


def writings(text: str) -> set[str]:
    """A text as it may be found again, whatever stands before and behind it."""
    found = {text, urllib.parse.quote(text, safe=""), json.dumps(text)[1:-1], json.dumps(json.dumps(text))[3:-3]}
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + text.encode()).decode()
        whole = coded[-(-before * 8 // 6) : (before + len(text.encode())) * 8 // 6]
        found |= {whole, whole.replace("+", "-").replace("/", "_")}
    return {one.lower() for one in found}


Passed = Mapping[str, Iterable[str]]


def leaks(shown: Mapping[str, str], more: Iterable[str] = (), passed: Passed | None = None) -> dict[str, str]:
    """Where what was shown has a canary, or one of `more` secrets, in it; `passed` are texts that may stand in a place."""
    marks = set().union(*(writings(text) for text in (BEGIN, END[-8:], CANARY[-8:], *more)))
    found: dict[str, str] = {}
    for place, text in shown.items():
        low = text.lower()
        for one in (passed or {}).get(place, ()):
            low = low.replace(one.lower(), "...")
        at = min((at for mark in marks if (at := low.find(mark)) >= 0), default=None)
        if at is not None:
            found[place] = low[max(0, at - _AROUND) : at + _AROUND]
    return found

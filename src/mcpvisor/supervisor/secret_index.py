"""Owns how many secrets are found in a text at once, in all their writings, whole or cut with the text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_forms import forms

SHORTEST: Final = 8
"""Characters of the shortest value that is masked everywhere; a shorter one would mask ordinary words."""

ELLIPSIS: Final = "…"
"""Stands where a text was cut."""

Span = tuple[int, int]
"""Where something stands in a text: its first character, and the first one behind it."""

_CUT: Final = re.compile(ELLIPSIS)

_NEAR: Final = 64
"""Characters that are compared first: a secret may be as long as a file."""

_GRAM: Final = 4
_STRIDE: Final = SHORTEST - _GRAM + 1
"""Where one piece of so many characters is looked at in every so many places, none that begins a value can be missed."""


class _Alike:
    """The forms that begin with the same characters, in order: what stands in a text is found among them by halves.

    A server that repeats a begin of one makes nobody read all of them, or to the end of any, again and again.
    """

    __slots__ = ("_forms", "_longest")

    def __init__(self, found: Iterable[str]) -> None:
        self._forms = sorted(found)
        self._longest = max(map(len, self._forms))

    def and_also(self, form: str) -> _Alike:
        """The same, and one more."""
        return _Alike({*self._forms, form})

    def length(self, text: str, at: int, cut: int) -> int:
        """How much of any of them stands in a text there: all of it, or what is left of it at the next cut; else 0."""
        window = text[at : at + _NEAR]
        if self._longest > _NEAR and self._goes_on(window):
            window = text[at : at + self._longest]
        rest = text[at:cut] if cut - at < len(window) else window
        is_cut = cut - at <= len(window) and self._goes_on(rest)
        return max(self._whole(window), cut - at if is_cut else 0)

    def _goes_on(self, begin: str) -> bool:
        place = bisect_left(self._forms, begin)
        return place < len(self._forms) and self._forms[place].startswith(begin)

    def _whole(self, window: str) -> int:
        """The length of the longest that the window begins with: the last one before it, or within what both have alike."""
        place = bisect_right(self._forms, window)
        while place:
            form = self._forms[place - 1]
            if window.startswith(form):
                return len(form)
            window = window[: _alike(form, window)]
            place = bisect_right(self._forms, window, 0, place)
        return 0


def _alike(one: str, other: str) -> int:
    """How many characters two texts have alike at their begin."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one.startswith(other[:middle]):
            least = middle
        else:
            most = middle - 1
    return least


class SecretIndex:
    """Every form of every value, made ready to be found. One thread adds, whatever others look for meanwhile.

    The cost of a text grows with its length, not with how many values there are.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        by_head: dict[str, set[str]] = {}
        for form in (form for value in values for form in forms(value)):
            if len(form) >= SHORTEST:
                by_head.setdefault(form[:SHORTEST], set()).add(form)
        self._by_head = {head: _Alike(found) for head, found in by_head.items()}
        """The forms, by the characters that they begin with."""
        self._offsets: dict[str, dict[int, None]] = {}
        """How far into one of those beginnings a piece of it may stand."""
        self._begins: set[str] = set()
        """The first characters of them, fewer than a piece has."""
        for head in by_head:
            self._note(head)

    def add(self, value: str) -> None:
        """Find this value, too."""
        for form in forms(value):
            if len(form) >= SHORTEST:
                head = form[:SHORTEST]
                others = self._by_head.get(head)
                self._by_head[head] = _Alike([form]) if others is None else others.and_also(form)
                self._note(head)

    def _note(self, head: str) -> None:
        self._begins.update(head[:length] for length in range(1, _GRAM))
        for before in range(_STRIDE):
            self._offsets.setdefault(head[before : before + _GRAM], {})[before] = None

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def spans(self, text: str) -> list[Span]:
        """Where values stand in a text, also one that was cut with it; one may begin within another."""
        heads, offsets = self._by_head, self._offsets
        looked = [at for at in range(0, len(text) - _GRAM + 1, _STRIDE) if text[at : at + _GRAM] in offsets]
        if not looked:
            return []
        # Copied at one stroke, since more may come at any moment.
        begins = sorted({at - before for at in looked for before in list(offsets[text[at : at + _GRAM]])})
        found = [(at, alike) for at in begins if at >= 0 and (alike := heads.get(text[at : at + SHORTEST])) is not None]
        cuts = [*(found.start() for found in _CUT.finditer(text)), len(text)]
        spans = [(at, at + alike.length(text, at, cuts[bisect_left(cuts, at)])) for at, alike in found]
        return [(begin, end) for begin, end in spans if end > begin]

    def may_begin(self, begin: str) -> bool:
        """Whether a value may go on behind so few characters, at the end of a text."""
        if len(begin) < _GRAM:
            return begin in self._begins
        offsets = self._offsets.get(begin[:_GRAM])
        return offsets is not None and 0 in offsets


def masked(text: str, spans: Iterable[Span]) -> str:
    """The text with a mask in place of each span; those that overlap are one."""
    pieces: list[str] = []
    done = begun = ended = 0
    for begin, end in sorted(spans):
        if begin >= ended:
            pieces += [text[done:begun], MASK] if ended else []
            done, begun = ended, begin
        ended = max(ended, end)
    return "".join([*pieces, text[done:begun], MASK, text[ended:]]) if ended else text

"""Owns what a pattern of a route matches, in time that grows with the text alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_PATTERN: Final = 1024
"""Characters of a pattern: it is read into the bits of one number."""

_WILD: Final = frozenset("*?")


class Glob:
    """A pattern: `*` is anything but `/`, `**` is anything, `?` is one character but `/`; all else is itself.

    No pattern and no text makes it slow: all ways to match are followed at one time, a character of the text after the other.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        head = next((n for n, c in enumerate(pattern) if c in _WILD), len(pattern))
        self._prefix = pattern[:head]
        self._is_literal = head == len(pattern)
        self._letters: dict[str, int] = {}
        """For each letter of the pattern, the bits of the places where it may stand."""
        self._any_letter = 0
        """The places of `?`."""
        self._stays = 0
        """The places before which a `**` stands, so that whatever comes leads nowhere else."""
        self._stays_within = 0
        """The same of `*`."""
        self._end = 1
        if not self._is_literal:
            self._compile(pattern)

    def _compile(self, pattern: str) -> None:
        place = 1
        at = 0
        while at < len(pattern):
            letter = pattern[at]
            stars = len(pattern[at:]) - len(pattern[at:].lstrip("*"))
            if stars:
                if stars > 1:
                    self._stays |= place
                else:
                    self._stays_within |= place
                at += stars
                continue
            if letter == "?":
                self._any_letter |= place
            else:
                self._letters[letter] = self._letters.get(letter, 0) | place
            place <<= 1
            at += 1
        self._end = place

    def matches(self, text: str) -> bool:
        """Whether the whole text is one that the pattern means."""
        if self._is_literal:
            return text == self.pattern
        if not text.startswith(self._prefix):
            return False
        places = 1
        letters, stays = self._letters, self._stays
        within, anything = stays | self._stays_within, self._any_letter
        for letter in text:
            if letter == "/":
                places = (places & letters.get(letter, 0)) << 1 | places & stays
            else:
                places = (places & (letters.get(letter, 0) | anything)) << 1 | places & within
            if not places:
                return False
        return bool(places & self._end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glob) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"Glob({self.pattern!r})"


def any_matches(globs: Iterable[Glob], text: str) -> bool:
    """Whether one of several patterns means a text."""
    return any(glob.matches(text) for glob in globs)

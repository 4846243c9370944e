"""Owns how a secret is found that a program has folded over lines, as libraries do that write for a terminal of 80 characters.

Each line is told when it comes, so what a line begins with is compared with what the one before it has ended with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_index import SHORTEST, Span, masked

_TAIL: Final = SHORTEST - 1
"""Characters of a line that may begin a secret without being known as one by themselves."""


class Known(Protocol):
    """Whoever knows secrets."""

    def spans(self, text: str) -> Sequence[Span]:
        """Where they stand in a text, also the begin of one that is cut at its end."""
        ...

    def begun_by(self, tail: str) -> str:
        """What of the end of a text may be the begin of one that is too short to be told from ordinary words."""
        ...


def unfolded(line: str, before: str, known: Known) -> tuple[str, str]:
    """A line without secrets, and what the next line is to be given as `before`; the first one is given nothing."""
    text = line.strip()
    begun, gone = _going_on(before, text, known) if before and text else ("", 0)
    rest = text[gone:]
    found = known.spans(rest)
    at = line.find(text)
    shown = f"{line[:at]}{MASK if gone else ''}{masked(rest, found)}{line[at + len(text) :]}"
    if gone and not rest:
        return shown, begun
    cut = min((begin for begin, end in found if end == len(rest)), default=None)
    return shown, known.begun_by(rest[-_TAIL:]) if cut is None else rest[cut:]


def _going_on(before: str, text: str, known: Known) -> tuple[str, int]:
    """The secret that was begun before, as far as it is known now, and how many characters of the text belong to it."""
    border = len(before)
    joined = before + text
    begin, end = max(_across(known.spans(joined), border), key=lambda span: (span[1], -span[0]), default=(0, border))
    return joined[begin:], end - border


def _across(found: Sequence[Span], border: int) -> list[Span]:
    return [(begin, end) for begin, end in found if begin < border < end]

"""Owns what is known to be secret whoever tells it: the values that went into any entry, for all that leaves the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_forms import forms

SHORTEST: Final = 8
"""Characters of the shortest value that is masked everywhere; a shorter one would mask ordinary words."""

ELLIPSIS: Final = "…"
"""Stands where a text was cut."""

Span = tuple[int, int]
"""Where something stands in a text: its first character, and the first one behind it."""

MAX_KNOWN: Final = 4096
"""Values that are remembered, the newest ones: one that was replaced may still be in somebody's mouth."""


_GRAM: Final = 4
_STRIDE: Final = SHORTEST - _GRAM + 1
"""Where one piece of so many characters is looked at in every so many places, none that begins a value can be missed."""


@dataclass(frozen=True, slots=True)
class _Arranged:
    """Every form of every value, made ready to be found."""

    by_head: Mapping[str, list[str]] = field(repr=False)
    """The longest first, by the characters that they begin with."""
    offsets: Mapping[str, set[int]] = field(repr=False)
    """How far into one of those beginnings a piece of it may stand."""


class KnownSecrets:
    """Masks the secrets of all entries. From every thread; the cost of a text grows with its length, not with their number."""

    def __init__(self) -> None:
        self._own: tuple[str, ...] = ()
        self._known: dict[str, None] = {}
        self._arranged = _Arranged({}, {})
        self._lock = threading.Lock()

    def learn(self, values: Iterable[str]) -> None:
        """Mask these, too. What is in force has to be among them each time, lest it count as old."""
        fresh = dict.fromkeys(value for value in values if len(value) >= SHORTEST)
        with self._lock:
            known = {value: None for value in self._known if value not in fresh} | fresh
            known = dict.fromkeys(list(known)[-max(MAX_KNOWN, len(fresh)) :])
            if known.keys() != self._known.keys():
                self._arranged = _arranged([*self._own, *known])
            self._known = known

    def learn_own(self, value: str) -> None:
        """Mask a secret of the daemon itself for good."""
        with self._lock:
            self._own = (*self._own, value)
            self._arranged = _arranged([*self._own, *self._known])

    def text(self, text: str) -> str:
        """The text with every known secret masked, also one that was cut with the text."""
        return masked(text, self.spans(text))

    def spans(self, text: str) -> list[Span]:
        """Where known secrets stand in a text; one may begin within another."""
        known = self._arranged
        looked = [at for at in range(0, len(text) - _GRAM + 1, _STRIDE) if text[at : at + _GRAM] in known.offsets]
        if not looked:
            return []
        heads = known.by_head
        begins = sorted({at - before for at in looked for before in known.offsets[text[at : at + _GRAM]]})
        found = [at for at in begins if at >= 0 and text[at : at + SHORTEST] in heads]
        spans = [(at, at + max(_length(form, text, at) for form in heads[text[at : at + SHORTEST]])) for at in found]
        return [(begin, end) for begin, end in spans if end > begin]

    def value(self, value: Any) -> Any:
        """A plain value, not deep, with every known secret in its texts and keys masked; the same one while none is known."""
        if not self._arranged.by_head:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key) if isinstance(key, str) else key: self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value


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


def _arranged(known: Iterable[str]) -> _Arranged:
    by_head: dict[str, list[str]] = {}
    for form in sorted({form for value in known for form in forms(value) if len(form) >= SHORTEST}, key=len, reverse=True):
        by_head.setdefault(form[:SHORTEST], []).append(form)
    offsets: dict[str, set[int]] = {}
    for head in by_head:
        for before in range(_STRIDE):
            offsets.setdefault(head[before : before + _GRAM], set()).add(before)
    return _Arranged(by_head, offsets)


def _length(form: str, text: str, at: int) -> int:
    """How much of a form stands in a text there: all of it, or what was left of it where the text was cut; else 0."""
    if text.startswith(form, at):
        return len(form)
    cut = text.find(ELLIPSIS, at, at + len(form))
    rest = text[at : cut if cut >= 0 else None]
    return len(rest) if (cut >= 0 or at + len(form) > len(text)) and form.startswith(rest) else 0

"""Owns how the secrets of one server are taken out of what is told of it: servers and proxies repeat what they were given."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, AnyStr, Final, Literal, Self

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_forms import forms
from mcpvisor.supervisor.secret_index import ELLIPSIS, Span, masked
from mcpvisor.supervisor.transports.codec import encode, is_too_deep

SHORTEST_SECRET: Final = 6
"""A shorter value than this would mask ordinary words."""

MAX_CUTS: Final = 8
"""Where a text was cut is looked at from its end; ours have no more cuts, a server's may be all cuts."""

MAX_LASTING: Final = 256
"""Secrets of the entry that are remembered, the newest ones, and however many are in force: a file may rotate every hour."""

MAX_PASSING: Final = 32
"""Secrets of a short life that are remembered, the newest ones of each kind."""

Passing = Literal["credential", "session", "answer"]
"""What was fetched for a server; what it has given to be known again by, such as the id of a session; what it got as an answer.

Each kind is remembered by itself: many of one must not make that be forgotten which is in force of another.
"""

MAX_DEPTH: Final = 100
"""Levels that are kept of a value that is too deep to be written at once."""

_MASK_BYTES: Final = MASK.encode()
_ELLIPSIS_BYTES: Final = ELLIPSIS.encode()


@dataclass(frozen=True, slots=True)
class _Written:
    """How a form of a secret stands in bytes, and in those of JSON, and whether cleaning would make another text of it."""

    raw: bytes = field(repr=False)
    quoted: bytes = field(repr=False)
    is_changed: bool

    @classmethod
    def of(cls, form: str) -> Self:
        """As a form is written."""
        raw, quoted = (text.encode("utf-8", "surrogateescape") for text in (form, json.dumps(form, ensure_ascii=False)[1:-1]))
        return cls(raw, quoted, " ".join(clean_text(form, len(form) + 1).split()) != form)


class Mask:
    """Masks the secrets that a server was given; one that was rotated may still be in its mouth.

    In texts those of others are masked too, as far as they are `known`.
    """

    def __init__(self, secrets: Iterable[str] = (), known: KnownSecrets | None = None) -> None:
        self._known = known or KnownSecrets()
        self._lasting: dict[str, None] = {}
        self._passing: dict[Passing, deque[str]] = {}
        self._forms_of: dict[str, set[str]] = {}
        self._written: dict[str, _Written] = {}
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these, too: all that are in force."""
        fresh = dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        lasting = [secret for secret in self._lasting if secret not in fresh] + list(fresh)
        self._lasting = dict.fromkeys(lasting[-max(MAX_LASTING, len(fresh)) :])
        self._arrange()

    def learn_passing(self, secrets: Iterable[str], kind: Passing = "credential") -> None:
        """Mask these until `MAX_PASSING` newer ones of their kind have come: tokens are fetched as long as the daemon runs."""
        passing = self._passing.setdefault(kind, deque(maxlen=MAX_PASSING))
        fresh = [secret for secret in dict.fromkeys(secrets) if len(secret) >= SHORTEST_SECRET and secret not in passing]
        if fresh:
            passing.extend(fresh)
            self._arrange()

    def learn_fetched(self, secrets: Sequence[str]) -> None:
        """Mask these as `learn_passing` does, and in what any other server tells as well."""
        self.learn_passing(secrets)
        self._known.learn_passing(secrets)

    def _arrange(self) -> None:
        known = {*self._lasting, *(secret for passing in self._passing.values() for secret in passing)}
        # What is known already is not made anew: a server may set another cookie with each answer.
        self._forms_of = {secret: self._forms_of.get(secret) or forms(secret) for secret in known}
        # Longest first: one may be a part of another.
        self._forms = sorted({form for of in self._forms_of.values() for form in of}, key=lambda form: (-len(form), form))
        self._heads: dict[str, list[str]] = {}
        for form in self._forms:
            self._heads.setdefault(form[:SHORTEST_SECRET], []).append(form)
        self._begins = {head[:length] for head in self._heads for length in range(1, SHORTEST_SECRET)}
        self._written = {form: self._written.get(form) or _Written.of(form) for form in self._forms}
        self._changed = [(form, written.raw) for form, written in self._written.items() if written.is_changed]

    def raw(self, data: AnyStr) -> AnyStr:
        """What is to be cleaned, with those secrets masked of which cleaning would make another text; all others come after it.

        A part of a secret must not be masked before it: escapes within the whole may be gone by it, and then it is found.
        """
        for text, raw in self._changed:
            data = data.replace(text, MASK) if isinstance(data, str) else data.replace(raw, _MASK_BYTES)
        return data

    def text(self, text: str) -> str:
        """The text with every secret masked, also one that was cut with the text. Linear in the length of the text."""
        return masked(text, self.spans(text))

    def spans(self, text: str) -> list[Span]:
        """Where secrets stand in a text, of this server and of others, also the begin of one that was cut with the text."""
        there = self._candidates(text)
        begun = [span for cut in _cuts(text) for form in there if (span := _begin_at(text, form, cut)) is not None]
        return [*begun, *self._known.spans(text), *(span for form in there for span in _spans_of(text, form))]

    def begun_by(self, tail: str) -> str:
        """What of the end of a text may be the begin of a secret that is too short to be told from ordinary words."""
        begins = (tail[at:] for at in range(len(tail)))
        return next((begin for begin in begins if begin in self._begins or self._known.may_begin(begin)), "")

    def _candidates(self, text: str) -> list[str]:
        """The forms of which at least the begin stands in the text: a look for each, and most have none."""
        return [form for head, forms_of in self._heads.items() if head in text for form in forms_of]

    def _without(self, text: str, found: Iterable[str], cuts: Sequence[int], of_others: Sequence[Span] = ()) -> str:
        """The text without secrets: those that were found, begins of any at a cut, and what is known of others."""
        there = self._candidates(text) if cuts else []
        spans = [span for cut in cuts for form in there if (span := _begin_at(text, form, cut)) is not None]
        spans += of_others
        there = [form for form in found if form in text]
        if len(there) == 1 and not spans:
            return text.replace(there[0], MASK)
        return masked(text, [*spans, *(span for form in there for span in _spans_of(text, form))])

    def value(self, value: Any) -> Any:
        """A JSON value with every secret in its texts and keys masked; the same one where there is none. Never raises.

        Numbers stay. Of a value that is too deep to be written or read, what is below `MAX_DEPTH` levels is replaced.
        """
        return self._in_texts(value, lambda text, found: self._without(text, found, _cuts(text, at_end=False)))

    def told(self, value: Any) -> Any:
        """As `value`, without the secrets of others as well."""

        def without(text: str, found: Sequence[str]) -> str:
            return self._without(text, found, _cuts(text, at_end=False), self._known.spans(text))

        walked = self._in_texts(value, without)
        if walked is not value:
            return walked
        try:
            return self._known.value(value)
        except RecursionError:
            return self._known.value(_upper(value, MAX_DEPTH))

    def _in_texts(self, value: Any, mask: Callable[[str, Sequence[str]], str]) -> Any:
        """A copy of the value with `mask` done to each of its texts and keys; the same one where no secret of ours is in it."""
        if value is None or not self._forms:
            return value
        try:
            data = encode(value)
            # A look at the whole text is cheap, but it is no text to change: a secret may read like a part of JSON itself.
            found = [form for form, written in self._written.items() if written.quoted in data]
            if not found and _ELLIPSIS_BYTES not in data:
                return value
            return _walked(_upper(value, MAX_DEPTH) if is_too_deep(data) else value, lambda text: mask(text, found))
        except (ValueError, RecursionError):
            # How deep may be written depends on the Python, how deep may be read does not.
            return self._upper_levels(value, lambda text: mask(text, self._forms))

    @staticmethod
    def _upper_levels(value: Any, mask: Callable[[str], str]) -> Any:
        upper = _upper(value, MAX_DEPTH)
        try:
            encode(upper)
        except ValueError:
            return _nothing_of(value)
        return _walked(upper, mask)


def _walked(value: Any, mask: Callable[[str], str]) -> Any:
    """A copy with every text in it, and every key, masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {_walked(key, mask): _walked(one, mask) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_walked(one, mask) for one in value]
    return value


def _spans_of(text: str, secret: str) -> list[Span]:
    """Where a secret stands as a whole."""
    spans: list[Span] = []
    at = text.find(secret)
    while at >= 0:
        spans.append((at, at + len(secret)))
        at = text.find(secret, at + len(secret))
    return spans


def _cuts(text: str, *, at_end: bool = True) -> list[int]:
    """Where a text was cut: at its end, as any may be, and before its last ellipses."""
    cuts = [len(text)] if at_end else []
    cut = len(text)
    while len(cuts) <= MAX_CUTS and (cut := text.rfind(ELLIPSIS, 0, cut)) >= 0:
        cuts.append(cut)
    return cuts


def _begin_at(text: str, secret: str, cut: int) -> Span | None:
    """The begin of a secret that was cut there."""
    tail = text[max(0, cut - len(secret) + 1) : cut]
    at = tail.find(secret[:SHORTEST_SECRET])
    while at >= 0 and not secret.startswith(tail[at:]):
        at = tail.find(secret[:SHORTEST_SECRET], at + 1)
    return (cut - len(tail) + at, cut) if at >= 0 else None


def _upper(value: Any, depth: int) -> Any:
    """The upper levels of a value, with the mask for what is below them."""
    if not isinstance(value, dict | list | tuple):
        return value
    if depth == 0:
        return MASK
    if isinstance(value, dict):
        return {key: _upper(one, depth - 1) for key, one in value.items()}
    return [_upper(one, depth - 1) for one in value]


def _nothing_of(value: Any) -> Any:
    """What stands for a value of which nothing can be kept; an object and a list are one in any case."""
    if isinstance(value, list | tuple):
        return []
    return {} if isinstance(value, dict) else MASK

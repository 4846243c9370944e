"""Owns how the secrets of one server are taken out of what is told of it: servers and proxies repeat what they were given."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mcpvisor.supervisor.known_secrets import ELLIPSIS, KnownSecrets
from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_forms import forms
from mcpvisor.supervisor.transports.codec import encode, is_too_deep

SHORTEST_SECRET: Final = 6
"""A shorter value than this would mask ordinary words."""

MAX_CUTS: Final = 8
"""Where a text was cut is looked at from its end; ours have no more cuts, a server's may be all cuts."""

MAX_LASTING: Final = 256
"""Secrets of the entry that are remembered, the newest ones, and however many are in force: a file may rotate every hour."""

MAX_PASSING: Final = 32
"""Secrets of a short life that are remembered, the newest ones."""

MAX_DEPTH: Final = 100
"""Levels that are kept of a value that is too deep to be written at once."""

_MASK_BYTES: Final = MASK.encode()
_ELLIPSIS_BYTES: Final = ELLIPSIS.encode()


class Mask:
    """Masks the secrets that a server was given; one that was rotated may still be in its mouth.

    In texts those of others are masked too, as far as they are `known`.
    """

    def __init__(self, secrets: Iterable[str] = (), known: KnownSecrets | None = None) -> None:
        self._known = known or KnownSecrets()
        self._lasting: dict[str, None] = {}
        self._passing: deque[str] = deque(maxlen=MAX_PASSING)
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these, too: all that are in force."""
        fresh = dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        lasting = [secret for secret in self._lasting if secret not in fresh] + list(fresh)
        self._lasting = dict.fromkeys(lasting[-max(MAX_LASTING, len(fresh)) :])
        self._arrange()

    def learn_passing(self, secrets: Iterable[str]) -> None:
        """Mask these until `MAX_PASSING` newer ones have come: tokens are fetched for as long as the daemon runs."""
        self._passing.extend(secret for secret in secrets if len(secret) >= SHORTEST_SECRET and secret not in self._passing)
        self._arrange()

    def _arrange(self) -> None:
        known = {*self._lasting, *self._passing}
        # Longest first: one may be a part of another.
        self._forms = sorted({form for secret in known for form in forms(secret)}, key=lambda form: (-len(form), form))
        self._raw = [form.encode("utf-8", "surrogateescape") for form in self._forms]
        self._quoted = [json.dumps(form, ensure_ascii=False)[1:-1].encode("utf-8", "surrogateescape") for form in self._forms]

    def raw(self, data: bytes) -> bytes:
        """The bytes with every secret masked."""
        for secret in self._raw:
            data = data.replace(secret, _MASK_BYTES)
        return data

    def text(self, text: str) -> str:
        """The text with every secret masked, also one that was cut with the text. Linear in the length of the text."""
        text = _without(text, self._forms)
        for secret in self._forms:
            text = _without_begin(text, secret, len(text))
        return self._known.text(text)

    def _cut(self, text: str) -> str:
        """The text without begins of secrets before an ellipsis; its end is no cut in a value, where texts are whole."""
        for secret in self._forms if ELLIPSIS in text else ():
            text = _without_begin(text, secret, text.rfind(ELLIPSIS))
        return text

    def value(self, value: Any) -> Any:
        """A JSON value with every secret in its texts and keys masked; the same one where there is none. Never raises.

        Numbers stay. Of a value that is too deep to be written or read, what is below `MAX_DEPTH` levels is replaced.
        """
        if value is None or not self._forms:
            return value
        try:
            data = encode(value)
            # A look at the whole text is cheap, but it is no text to change: a secret may read like a part of JSON itself.
            found = [form for form, quoted in zip(self._forms, self._quoted, strict=True) if quoted in data]
            if not found and _ELLIPSIS_BYTES not in data:
                return value
            return self._walked(_upper(value, MAX_DEPTH) if is_too_deep(data) else value, found)
        except (ValueError, RecursionError):
            # How deep may be written depends on the Python, how deep may be read does not.
            return self._upper_levels(value)

    def told(self, value: Any) -> Any:
        """As `value`, without the secrets of others as well."""
        masked = self.value(value)
        try:
            return self._known.value(masked)
        except RecursionError:
            return self._known.value(_upper(masked, MAX_DEPTH))

    def _upper_levels(self, value: Any) -> Any:
        upper = _upper(value, MAX_DEPTH)
        try:
            encode(upper)
        except ValueError:
            return _nothing_of(value)
        return self._walked(upper, self._forms)

    def _walked(self, value: Any, found: Sequence[str]) -> Any:
        """A copy with what was found masked in every text in it."""
        if isinstance(value, str):
            return self._cut(_without(value, found))
        if isinstance(value, dict):
            return {self._walked(key, found): self._walked(one, found) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._walked(one, found) for one in value]
        return value


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _without_begin(text: str, secret: str, cut: int) -> str:
    """The text without the begin of a secret where it was cut: there, or before one of the last ellipses before it."""
    for _ in range(MAX_CUTS + 1):
        tail = text[max(0, cut - len(secret) + 1) : cut]
        at = tail.find(secret[:SHORTEST_SECRET])
        while at >= 0 and not secret.startswith(tail[at:]):
            at = tail.find(secret[:SHORTEST_SECRET], at + 1)
        if at >= 0:
            begin = cut - len(tail) + at
            text, cut = text[:begin] + MASK + text[cut:], begin
        cut = text.rfind(ELLIPSIS, 0, cut)
        if cut < 0:
            break
    return text


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

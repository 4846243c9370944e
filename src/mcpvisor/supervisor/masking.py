"""Owns how the secrets of one server are taken out of what is told of it: servers and proxies repeat what they were given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.transports.codec import decode, encode

SHORTEST_SECRET: Final = 6
"""A shorter value than this would mask ordinary words."""

ELLIPSIS: Final = "…"
MAX_CUTS: Final = 8
"""Where a text was cut is looked at from its end; ours have no more cuts, a server's may be all cuts."""

MAX_PASSING: Final = 32
"""Secrets of a short life that are remembered, the newest ones."""

MAX_DEPTH: Final = 100
"""Levels that are kept of a value that is too deep to be written at once."""

_MASK_BYTES: Final = MASK.encode()


class Mask:
    """Masks every secret that a server was ever given; a secret that was rotated may still be in its mouth."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lasting: set[str] = set()
        self._passing: deque[str] = deque(maxlen=MAX_PASSING)
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these, too."""
        self._lasting.update(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        self._arrange()

    def learn_passing(self, secrets: Iterable[str]) -> None:
        """Mask these until `MAX_PASSING` newer ones have come: tokens are fetched for as long as the daemon runs."""
        self._passing.extend(secret for secret in secrets if len(secret) >= SHORTEST_SECRET and secret not in self._passing)
        self._arrange()

    def _arrange(self) -> None:
        known = {*self._lasting, *self._passing}
        # Longest first: one may be a part of another.
        self._secrets = sorted(known, key=lambda secret: (-len(secret), secret))
        self._raw = [secret.encode() for secret in self._secrets]
        self._quoted = [encode(secret)[1:-1] for secret in self._secrets]

    def raw(self, data: bytes) -> bytes:
        """The bytes with every secret masked."""
        for secret in self._raw:
            data = data.replace(secret, _MASK_BYTES)
        return data

    def text(self, text: str) -> str:
        """The text with every secret masked, also one that was cut with the text. Linear in the length of the text."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        for secret in self._secrets:
            text = _without_begin(text, secret)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value with every secret in its texts masked; the same one where there is none. Never raises.

        Of a value that is too deep to be written or read, what is below `MAX_DEPTH` levels is replaced.
        """
        if value is None or not self._secrets:
            return value
        try:
            return self._masked(value)
        except ValueError:
            # How deep may be written depends on the Python, how deep may be read does not.
            try:
                return self._masked(_upper(value, MAX_DEPTH))
            except ValueError:
                return _nothing_of(value)  # no JSON, or a secret that reads like JSON itself

    def _masked(self, value: Any) -> Any:
        """The value as it is read from its masked JSON text; raises ValueError where either cannot be done."""
        data = encode(value)
        masked = data
        for secret in self._quoted:
            masked = masked.replace(secret, _MASK_BYTES)
        return value if masked == data else decode(masked, max_bytes=len(masked))


def _without_begin(text: str, secret: str) -> str:
    """The text without the begin of a secret where the text was cut: at its end, or before one of the last ellipses."""
    cut = len(text)
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
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return MASK
    if isinstance(value, dict):
        return {key: _upper(one, depth - 1) for key, one in value.items()}
    return [_upper(one, depth - 1) for one in value]


def _nothing_of(value: Any) -> Any:
    """What stands for a value of which nothing can be kept; the params of a message are an object in any case."""
    return {} if isinstance(value, dict) else MASK

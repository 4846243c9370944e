"""Owns how the secrets of one server are taken out of what is told of it: servers and proxies repeat what they were given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.transports.codec import Unreadable, decode, encode

SHORTEST_SECRET: Final = 6
"""A shorter value than this would mask ordinary words."""

_CUTS: Final = re.compile(r"…|$")
_MASK_BYTES: Final = MASK.encode()


class Mask:
    """Masks every secret that a server was ever given; a secret that was rotated may still be in its mouth."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these, too."""
        known = {*self._secrets, *(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)}
        # Longest first: one may be a part of another.
        self._secrets = sorted(known, key=lambda secret: (-len(secret), secret))
        self._raw = [secret.encode() for secret in self._secrets]

    def raw(self, data: bytes) -> bytes:
        """The bytes with every secret masked."""
        for secret in self._raw:
            data = data.replace(secret, _MASK_BYTES)
        return data

    def text(self, text: str) -> str:
        """The text with every secret masked, also one that was cut with the text."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        for secret in self._secrets:
            text = _without_begin(text, secret)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value with every secret in its texts masked; the same one where there is none."""
        if value is None or not self._secrets:
            return value
        data = masked = encode(value)
        for secret in self._secrets:
            masked = masked.replace(encode(secret)[1:-1], _MASK_BYTES)
        if masked == data:
            return value
        try:
            return decode(masked, max_bytes=len(masked))
        except Unreadable:
            return MASK  # a secret that reads like JSON itself: nothing of it can be kept


def _without_begin(text: str, secret: str) -> str:
    """The text without the begin of a secret where the text was cut: at its end, or before an ellipsis."""
    for cut in reversed(list(_CUTS.finditer(text))):
        head = text[: cut.start()]
        for size in range(min(len(secret) - 1, len(head)), SHORTEST_SECRET - 1, -1):
            if head.endswith(secret[:size]):
                text = head[:-size] + MASK + text[cut.start() :]
                break
    return text

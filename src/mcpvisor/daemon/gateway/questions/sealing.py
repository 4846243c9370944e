"""Owns the seal on what a client keeps for us: nobody can read it, change it, or use it for anything else than it is for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mcpvisor.daemon.gateway.questions.keys import ID_BYTES, Key
from mcpvisor.supervisor.transports.codec import encode

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES: Final = 12
"""Random: a key may seal 2^32 times, which is a thousand a second for as long as one is used."""

_TAG_BYTES: Final = 16


class Seals:
    """AES-256-GCM under the first of some keys; what any of them has sealed is opened again."""

    def __init__(self, keys: Sequence[Key]) -> None:
        """`keys` is not empty."""
        self._keys = {key.id: key.secret for key in keys}
        self._id = keys[0].id
        self._ciphers: dict[bytes, AESGCM] = {}

    def seal(self, content: bytes, bound: bytes) -> str:
        """A text that only `open` can read, and only for who names the same `bound`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return _text(self._id + nonce + self._cipher(self._id).encrypt(nonce, content, self._id + bound))

    def open(self, text: str, bound: bytes) -> bytes | None:
        """What was sealed for `bound`; None for all else, whatever is wrong with it."""
        from cryptography.exceptions import InvalidTag  # here: it takes longer to load than the gateway to start

        sealed = _bytes(text)
        key_id, nonce, rest = sealed[:ID_BYTES], sealed[ID_BYTES : ID_BYTES + NONCE_BYTES], sealed[ID_BYTES + NONCE_BYTES :]
        if len(rest) < _TAG_BYTES:
            return None
        try:  # under a key that is not known, all the same: it takes as long as any other refusal
            return self._cipher(key_id if key_id in self._keys else self._id).decrypt(nonce, rest, key_id + bound)
        except InvalidTag:
            return None

    def _cipher(self, key_id: bytes) -> AESGCM:
        if key_id not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # here, as above

            self._ciphers[key_id] = AESGCM(self._keys[key_id])
        return self._ciphers[key_id]


def binding(*parts: str | None, params: Any) -> bytes:
    """What a seal is bound to: each part by itself, and the params by their digest, in whatever order they were written."""
    return encode([*parts, hashlib.sha256(encode(_ordered(params))).hexdigest()])


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(one) for one in value]
    return value


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _bytes(text: str) -> bytes:
    """What a text of ours holds; empty for one that is none, down to the bits that no byte needs."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return b""
    return data if _text(data) == text else b""

"""Owns the signature of webhooks: the scheme of Standard Webhooks, by which a receiver knows who speaks, and when. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from mcpvisor.supervisor.secret import Secret

PREFIX: Final = "whsec_"
"""What a secret begins with whose key is written in base64; the UTF-8 of any other is the key itself."""

SHORTEST_KEY: Final = 16
"""Bytes of the shortest key that is taken; whoever guesses it speaks in our name."""


def signing_key(secret: Secret) -> bytes:
    """The key in a secret. Raises ValueError, which holds no word of it."""
    text = secret.reveal().strip()
    if not text.startswith(PREFIX):
        key = text.encode("utf-8", "surrogateescape")
    else:
        try:
            key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"what follows {PREFIX} is no base64") from None
    if len(key) < SHORTEST_KEY:
        raise ValueError(f"a key of {len(key)} bytes can be guessed; at least {SHORTEST_KEY} are needed")
    return key


def signed_headers(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> list[tuple[str, str]]:
    """The three headers of a signed message; `timestamp` in whole seconds since the epoch.

    Each key gives a signature of its own, so that a receiver that knows one of them is content: a key is changed by
    adding the new one here, then changing the receiver, then taking the old one away.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return [
        ("webhook-id", message_id),
        ("webhook-timestamp", str(timestamp)),
        ("webhook-signature", signatures),
    ]

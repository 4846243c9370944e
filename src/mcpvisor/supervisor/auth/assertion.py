"""Owns the signed assertions by which a client proves that it has a private key (RFC 7523)."""

from __future__ import annotations

import secrets
from typing import Any, Final

from mcpvisor.supervisor.errors import SpecError

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_SECONDS: Final = 120.0
"""How long an assertion is good: for a little difference between two clocks, and no longer."""


def signing_key(pem: str) -> tuple[Any, str]:
    """A private key and the algorithm that it signs with. Raises SpecError, which says what is wrong without a word of it."""
    # Heavy, and of use to few: loaded where a key is.
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except TypeError:
        raise SpecError("is encrypted; a daemon cannot ask for the password") from None
    except ValueError:
        raise SpecError("is no private key in PEM form") from None
    if isinstance(key, RSAPrivateKey):
        if key.key_size < 2048:
            raise SpecError(f"is an RSA key of {key.key_size} bits; 2048 are the least")
        return key, "RS256"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return key, "ES256"
    raise SpecError("is neither an RSA key nor one on the curve P-256")


def client_assertion(pem: str, *, client_id: str, audience: str, key_id: str, now: float) -> str:
    """A fresh assertion for one request. Raises SpecError."""
    import jwt

    key, algorithm = signing_key(pem)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": int(now),
        "exp": int(now + ASSERTION_SECONDS),
        "jti": secrets.token_urlsafe(16),
    }
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": key_id} if key_id else None)

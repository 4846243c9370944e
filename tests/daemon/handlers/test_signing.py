"""Signatures of webhooks: the published vector of the scheme, several keys, and what is no key."""

from __future__ import annotations

import pytest

from mcpvisor.daemon.handlers.signing import signed_headers, signing_key
from mcpvisor.supervisor.secret import Secret

VECTOR = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_published_vector():
    """A message of Standard Webhooks gets the signature that its specification's libraries expect."""
    headers = signed_headers([signing_key(Secret(VECTOR))], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ] == headers


def test_each_key_signs():
    """Two secrets give two signatures in one header, the first one first; a text without the prefix is the key as it is."""
    old, new = signing_key(Secret("an-old-shared-secret")), signing_key(Secret("a-new-shared-secret-2"))
    both = dict(signed_headers([new, old], "id", 1, b"{}"))["webhook-signature"]
    alone = [dict(signed_headers([key], "id", 1, b"{}"))["webhook-signature"] for key in (new, old)]

    assert (b"an-old-shared-secret", " ".join(alone)) == (old, both)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("whsec_no base64 !", "what follows whsec_ is no base64"),
        ("whsec_c2hvcnQ=", "a key of 5 bytes can be guessed; at least 16 are needed"),
        ("fifteen-bytes--", "a key of 15 bytes can be guessed; at least 16 are needed"),
    ],
)
def test_what_is_no_key(text, told):
    """A secret that is none says why, and not a word of it."""
    with pytest.raises(ValueError, match=r"bytes|base64") as caught:
        signing_key(Secret(text))

    assert told == str(caught.value)

"""Which arguments of a command line are secrets although they are written out."""

from __future__ import annotations

import pytest

from mcpvisor.daemon.config.argument_secrets import named_secret, with_secrets
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Text


@pytest.mark.parametrize(
    ("words", "secrets"),
    [
        (["npx", "-y", "@scope/server", "--port", "8080", "/srv/docs"], {}),
        (["s", "--token", "abc"], {2: ["abc"]}),
        (["s", "--api-key=abc"], {1: ["abc"]}),
        (["docker", "run", "-e", "DB_PASSWORD=abc"], {3: ["abc"]}),
        (["docker", "run", "-e", "GITHUB_TOKEN", "image"], {}),
        (["s", "--header", "Authorization: Bearer abc"], {2: ["Bearer abc", "abc"]}),
        (["s", "postgres://me:abc@db/x"], {1: ["abc"]}),
        (["s", "https://x.test/?k=sk-abcdefghij0123456789"], {1: ["sk-abcdefghij0123456789"]}),
        (["s", "--no-auth", "abc", "--token", "--verbose"], {}),
    ],
)
def test_words(words: list[Text], secrets: dict[int, list[str]]):
    """Words that stand behind a telling name, in an address or that look like keys; all others stay as they are."""
    found = with_secrets(words)

    told = {at: list(word.reveal_parts()) for at, word in enumerate(found) if isinstance(word, Secret)}
    assert secrets == told
    assert words == [word.reveal() if isinstance(word, Secret) else word for word in found]


@pytest.mark.parametrize(
    ("name", "text", "sure"),
    [
        ("MODE", "production", []),
        ("API_KEY", "abc", ["abc"]),
        ("Authorization", "Bearer abc", ["Bearer abc", "abc"]),
        ("URL", "postgres://me:abc@db/x", ["abc"]),
        ("X", "ghp_abcdefghijklmnopqrst0123", ["ghp_abcdefghijklmnopqrst0123"]),
        ("X", Secret("for abc", ["abc"]), ["abc"]),
    ],
)
def test_values_with_a_name(name: str, text: Text, sure: list[str]):
    """Every value is a secret; what is surely one, and masked in whatever anybody says, is told from ordinary words."""
    secret = named_secret(name, text)

    assert (secret, tuple(sure)) == (Secret.of(text), secret.reveal_parts())


def test_a_secret_stays_what_it_is():
    """What a variable went into keeps what is secret in it."""
    secret = Secret("--token=abc", ["abc"])

    assert secret is with_secrets(["s", secret])[1]

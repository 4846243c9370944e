"""By which looks a secret is told, and what is left of a text without it."""

from __future__ import annotations

import time

import pytest

from mcpvisor.supervisor.secret_looks import looks_secret, passwords_in, without_credentials, without_named


@pytest.mark.parametrize(
    ("word", "secret"),
    [
        ("sk-proj-abcdefghij0123456789", True),
        ("ghp_abcdefghijklmnopqrst0123", True),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", True),
        ("0123456789abcdef0123456789abcdef", True),
        ("aB3dE5fG7hI9jK1lM3nO", True),
        ("aB3dE5f", False),
        ("@modelcontextprotocol/server-filesystem", False),
        ("/usr/local/lib/node_modules/some-server-2", False),
        ("my-project-2024-production-eu", False),
        ("streamable-http", False),
        ("PostgresDatabaseServer", False),
    ],
)
def test_looks(word: str, secret: bool):
    """Keys of services, and words that nobody would think of; not names, paths and packages."""
    assert secret == looks_secret(word)


def test_passwords_in_addresses():
    """The password, or a token in its place, as written and as decoded."""
    assert ["p%40ss", "p@ss", "t0ken"] == passwords_in("postgres://me:p%40ss@db/x and https://t0ken@example.com/")
    assert [] == passwords_in("https://example.com/a@b mail me@example.com")


@pytest.mark.parametrize("part", ["x", "x://", "://x", "x://y:z", "x@"])
def test_a_long_text_is_read_once(part: str):
    """A secret of the largest size, whatever is in it, does not hold whoever looks through it."""
    began = time.thread_time()
    passwords_in(part * (128 * 1024 // len(part)))

    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    ("text", "named", "credentials"),
    [
        ("sent Bearer\tabcd", "sent Bearer\t***", "sent Bearer ***"),
        ("Basic abc is too short", "Basic abc is too short", "Basic abc is too short"),
        ("DB_PASSWORD='a' mode=b", "DB_PASSWORD='***' mode=b", "DB_PASSWORD='a' mode=b"),
        ("Cookie: a=b; c=d\nx", "Cookie: ***; c=d\nx", "Cookie: ***\nx"),
        ("mcp_session-id=a b", "mcp_session-id=a b", "mcp_session-id=***"),
        ("https://me:a@b@x.test/?sig=c&d=e", "https://me:a@b@x.test/?sig=c&d=e", "https://***@x.test/?sig=***&d=e"),
    ],
)
def test_two_ways_of_masking_by_looks(text: str, named: str, credentials: str):
    """In the words of a program what stands behind a telling name goes, up to the next blank; in a log also what our own texts
    may have in them: whole values of headers, and of addresses the user and what gives access.
    """
    assert (named, credentials) == (without_named(text), without_credentials(text))

"""By which names and looks a text is taken for a secret."""

from __future__ import annotations

import time

import pytest

from mcpvisor.supervisor.process.environment import inherited_secrets
from mcpvisor.supervisor.secret_names import looks_secret, names_secret, passwords_in
from mcpvisor.supervisor.spec import StdioLaunch


@pytest.mark.parametrize(
    "name",
    [
        *("GITHUB_TOKEN", "token", "--token", "--api-key", "API_KEY", "OPENAI_API_KEY", "apikey", "X-Api-Key", "Authorization"),
        *("DB_PASSWORD", "--password", "passwd", "PGPASSWORD", "client_secret", "AWS_SECRET_ACCESS_KEY", "--private-key"),
        *("SENTRY_DSN", "Cookie", "JIRA_PAT", "--access-token", "GOOGLE_CREDENTIALS", "--auth"),
    ],
)
def test_telling_names(name: str):
    """Names of variables, options and headers that people give to secrets."""
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "--port", "KEYBOARD", "MONKEY", "keys", "--config", "AUTHOR", "PATH", "TOKENIZERS_PARALLELISM", "--path"),
        *("PRIMARY_KEY", "--key-file-format", "author", "compat", "dispatch", "SSH_AUTH_SOCK", "passive", "--tokenizer"),
    ],
)
def test_ordinary_names(name: str):
    """Names that only hold such a word."""
    assert not names_secret(name)


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


def test_what_a_server_inherits():
    """Of what is passed on only what says that it is secret is: all else may be an ordinary word."""
    own = {
        "HOME": "/home/me",
        "HTTPS_PROXY": "http://me:pr0xy@proxy:1",
        "GITHUB_TOKEN": "gh-t0ken",
        "OTHER_TOKEN": "not passed on",
        "MODE": "production",
    }

    found = inherited_secrets(StdioLaunch(command="x", inherit_env=("GITHUB_*", "MODE")), own)

    assert {"pr0xy", "gh-t0ken"} == set(found)

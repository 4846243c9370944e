"""By which names a value is taken for a secret."""

from __future__ import annotations

import pytest

from mcpvisor.supervisor.process.environment import inherited_secrets
from mcpvisor.supervisor.secret_names import names_secret
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

"""Owns what an entry can say of credentials: each kind as frozen data, and which part of it is secret."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from urllib.parse import quote, quote_plus

from mcpvisor.supervisor.secret import Secret, all_in, reveal

_NOTHING: Final = Secret("")

CREDENTIAL_HEADERS: Final = frozenset({"authorization", "x-api-key", "api-key", "x-auth-token"})
"""Names of headers, in lower case, whose values are credentials: they rotate like those of `auth`."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token that is sent as `Authorization: Bearer`."""

    token: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key that is sent in a header, or as a parameter of the query: exactly one of `header` and `query` is set."""

    key: Secret
    header: str = ""
    query: str = ""


class ClientAuth(StrEnum):
    """How a client secret is sent to a token endpoint; `auto` is what its metadata asks for, else `basic`."""

    AUTO = "auto"
    BASIC = "basic"
    POST = "post"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """OAuth 2 client credentials (RFC 6749, 4.4): tokens are fetched with a secret, or with a signed assertion (RFC 7523).

    Without `token_url` the endpoint is read from the metadata of `issuer` (RFC 8414), and without either from the metadata of
    the server itself (RFC 9728). Exactly one of `client_secret` and `private_key` (PEM) is set.
    """

    client_id: str
    client_secret: Secret | None = None
    client_auth: ClientAuth = ClientAuth.AUTO
    private_key: Secret | None = None
    key_id: str = ""
    token_url: str = ""
    issuer: str = ""
    scope: str = ""
    audience: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class HeaderCommand:
    """A program that prints headers; its arguments may be secret."""

    command: tuple[str | Secret, ...]


Auth = Bearer | ApiKey | ClientCredentials | HeaderCommand


def public_part(auth: Auth | None) -> object:
    """What is left of credentials without their secrets: two that differ in nothing else stand for the same client.

    A header command has no public part: what it prints is all that is known of it.
    """
    match auth:
        case Bearer():
            return Bearer
        case ApiKey():
            return replace(auth, key=_NOTHING)
        case ClientCredentials():
            return replace(auth, client_secret=_NOTHING, private_key=_NOTHING, client_auth=ClientAuth.AUTO, key_id="")
        case HeaderCommand():
            return HeaderCommand
        case None:
            return None


def secrets_in(auth: Auth | None) -> list[str]:
    """The plain values of every secret in credentials, in each form in which they leave the process."""
    match auth:
        case Bearer(token=token):
            return all_in([token])
        case ApiKey(key=key):
            return _forms(key.reveal())
        case ClientCredentials():
            known = [one.reveal() for one in (auth.client_secret, auth.private_key) if one is not None]
            lines = [line for text in known for line in text.splitlines() if not line.startswith("-----")]
            basic = [basic_value(auth.client_id, auth.client_secret.reveal())] if auth.client_secret is not None else []
            return [form for text in (*known, *lines) for form in _forms(text)] + basic
        case HeaderCommand(command=command):
            return all_in(command)
        case None:
            return []


def basic_value(client_id: str, secret: str) -> str:
    """What follows `Basic` in the Authorization header of a client (RFC 6749, 2.3.1)."""
    return base64.b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()


def command_line(command: HeaderCommand) -> list[str]:
    """The program and its arguments in plain text."""
    return [reveal(one) for one in command.command]


def _forms(secret: str) -> list[str]:
    return list(dict.fromkeys([secret, quote(secret, safe=""), quote_plus(secret)]))

"""Owns how the keys `auth` and `header_command` become credentials: what each type asks for, and what fits together."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from mcpvisor.daemon.config.advice import is_loopback, secret_words
from mcpvisor.daemon.config.argument_secrets import with_secrets
from mcpvisor.daemon.config.entry_scope import Item, kind_of
from mcpvisor.daemon.config.programs import check_program
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.auth.assertion import signing_key
from mcpvisor.supervisor.auth.credential import HEADER_NAME, OURS
from mcpvisor.supervisor.auth.kinds import ApiKey, Auth, Bearer, ClientAuth, ClientCredentials, HeaderCommand
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.transports.address import parse_address

FaultOfUrl = Callable[[str], str]
"""What is wrong with a URL, without a word of it; empty when nothing is."""

_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]+", re.ASCII)
_NEVER: Final = OURS | {"host", "content-type", "accept"}


class AuthType(StrEnum):
    """How the credentials of a server come about."""

    BEARER = "bearer"
    API_KEY = "api_key"
    CLIENT_CREDENTIALS = "client_credentials"


def read_auth(entry: TableReader, fault_of_url: FaultOfUrl) -> Auth | None:
    """What `auth` or `header_command` says; None where neither is there, or after a problem."""
    command, table = _header_command(entry), entry.table("auth")
    if table is None:
        return command
    item = entry.item("auth")
    assert item is not None
    if entry.item("header_command") is not None:
        entry.scope.problem(item, "header_command gives the credentials too", expected="one of the two")
    kind = _type(table, item)
    if kind is None:
        return None
    auth: Auth | None
    match kind:
        case AuthType.BEARER:
            auth = _bearer(table, item)
        case AuthType.API_KEY:
            auth = _api_key(table, item)
        case AuthType.CLIENT_CREDENTIALS:
            auth = _client_credentials(table, item, fault_of_url)
    table.finish()
    return auth


def headers_of(auth: Auth | None) -> frozenset[str]:
    """The headers, in lower case, that are known to come from the credentials: an entry must not say them as well."""
    match auth:
        case Bearer() | ClientCredentials():
            return frozenset({"authorization"})
        case ApiKey(header=header) if header:
            return frozenset({header.lower()})
        case _:
            return frozenset()


def _type(table: TableReader, place: Item) -> AuthType | None:
    item = table.item("type")
    if item is None:
        table.scope.problem(place, "the type is missing", expected=_types())
        return None
    if not isinstance(item.value, str):
        table.scope.problem(item, f"is {kind_of(item.value)}", expected=_types())
        return None
    if item.value not in {one.value for one in AuthType}:
        table.scope.problem(item, "this type is not supported in this version", expected=_types())
        return None
    return AuthType(item.value)


def _types() -> str:
    return "one of " + ", ".join(f'"{one.value}"' for one in AuthType)


def _bearer(table: TableReader, place: Item) -> Auth | None:
    """`{ type = "bearer", token }`."""
    token = _secret(table, "token", table.item("type") or place, 'token = "${cred:NAME}"')
    return Bearer(token) if token is not None else None


def _api_key(table: TableReader, place: Item) -> Auth | None:
    """`{ type = "api_key", header or query, key }`."""
    place = table.item("type") or place
    header, query = table.plain("header") or "", table.plain("query") or ""
    key = _secret(table, "key", place, 'key = "${cred:NAME}"')
    if bool(header) == bool(query):
        table.scope.problem(place, "says not where the key goes", expected='header = "X-Api-Key" or query = "key"')
        return None
    item = table.item("header")
    if item is not None and not HEADER_NAME.fullmatch(header):
        table.scope.problem(item, "cannot be the name of a header")
        return None
    if item is not None and header.lower() in _NEVER:
        table.scope.problem(item, "is set by the daemon itself")
        return None
    return ApiKey(key=key, header=header, query=query) if key is not None else None


def _client_credentials(table: TableReader, place: Item, fault_of_url: FaultOfUrl) -> Auth | None:
    """`{ type = "client_credentials", client_id, client_secret or private_key, token_url or issuer, scope, ... }`."""
    place = table.item("type") or place
    client_id = table.plain("client_id") or ""
    if not client_id:
        table.scope.problem(place, "the client is missing", expected='client_id = "..."')
    has_secret, has_key = table.item("client_secret") is not None, table.item("private_key") is not None
    if has_secret == has_key:
        what = "has a secret and a key" if has_secret else "the secret is missing"
        table.scope.problem(place, what, expected='client_secret = "${cred:NAME}" or private_key = "FILE"')
    auth = ClientCredentials(
        client_id=client_id,
        client_secret=_secret(table, "client_secret", place, "") if has_secret else None,
        client_auth=table.choice("client_auth", ClientAuth.AUTO),
        private_key=_private_key(table) if has_key else None,
        key_id=table.plain("key_id") or "",
        token_url=_url(table, "token_url", fault_of_url),
        issuer=_url(table, "issuer", fault_of_url),
        scope=table.plain("scope") or "",
        audience=table.plain("audience") or "",
        resource=table.plain("resource") or "",
    )
    if has_secret and not auth.token_url and not auth.issuer:
        table.scope.hint(place, "without token_url or issuer the server itself says where the secret is sent")
    return auth if client_id and (auth.client_secret is not None) != (auth.private_key is not None) else None


def _secret(table: TableReader, key: str, place: Item, expected: str) -> Secret | None:
    """A secret that a header can carry; None after a problem."""
    item, text = table.item(key), table.text(key)
    if item is None:
        table.scope.problem(place, f"the {key} is missing", expected=expected)
        return None
    if text is None:
        return None
    value = reveal(text).strip()
    if not _HEADER_VALUE.fullmatch(value):
        table.scope.problem(item, f"the {key} is empty, or holds a character that no header can carry")
        return None
    return Secret.of(text)


def _private_key(table: TableReader) -> Secret | None:
    """A private key in PEM form, or the path of its file, which is watched like every file with a secret."""
    item, text = table.item("private_key"), table.text("private_key")
    if item is None or text is None:
        return None
    value = reveal(text)
    if "-----BEGIN" not in value:
        # What came out of a variable may be a secret that is no key, and no path: it is neither told nor looked for.
        is_path = not isinstance(text, Secret) or "/" in value
        why = "is no key, and no file can be read by that name"
        try:
            value = table.scope.sources.read_file(value) if is_path else ""
        except LookupError as error:
            value, why = "", why if isinstance(text, Secret) else str(error.args[0])
        if not value:
            table.scope.problem(item, why, expected="a key in PEM form, or the path of its file")
            return None
    try:
        signing_key(value)
    except SpecError as error:
        table.scope.problem(item, f"the key {error}", expected="an RSA key, or one on the curve P-256, without a password")
        return None
    return Secret(value)


def _url(table: TableReader, key: str, fault_of_url: FaultOfUrl) -> str:
    item, url = table.item(key), table.plain(key)
    if item is None or url is None:
        return ""
    fault = fault_of_url(url)
    if not fault:
        origin = parse_address(url).origin
        if origin.scheme == "http" and not is_loopback(origin.host):
            fault = "is not https, and a secret would be sent there"
    if fault:
        table.scope.problem(item, fault, expected="a URL such as https://auth.example.com/token")
        return ""
    return url


def _header_command(entry: TableReader) -> HeaderCommand | None:
    """`header_command = ["program", "argument", ...]`."""
    item = entry.item("header_command")
    if item is None:
        return None
    texts = [entry.text_of(one) for one in entry.elements("header_command")]
    command = tuple(text for text in texts if text is not None)
    if len(command) == len(texts):
        elements = entry.elements("header_command")
        for at, text in secret_words(["${}" if isinstance(word, Secret) else word for word in command]):
            entry.scope.hint(elements[at], text)
    if isinstance(item.value, list) and not (texts and texts[0] is not None and reveal(texts[0]).strip()):
        entry.scope.problem(item, "names no program", expected='a list such as ["program", "argument"]')
    check_program(entry, item, command)
    return HeaderCommand(tuple(with_secrets(command))) if command and len(command) == len(texts) else None

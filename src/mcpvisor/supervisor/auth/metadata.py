"""Owns the discovery of a token endpoint: the metadata of the server (RFC 9728), then of its issuer (RFC 8414)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcpvisor.supervisor.auth.challenge import challenge_parameters
from mcpvisor.supervisor.auth.credential import CredentialsMissing
from mcpvisor.supervisor.auth.fetching import Answer, Fetcher
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.transports.address import Address, join_address, parse_address
from mcpvisor.supervisor.transports.http_outcome import status_line

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_ISSUER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
_PING: Final = b'{"jsonrpc":"2.0","id":0,"method":"ping"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """Where tokens are fetched, and what its metadata says of it; empty where there was none to read."""

    address: Address
    issuer: str = ""
    methods: tuple[str, ...] = ()
    resource: str = ""
    """The server as its own metadata names it: to be sent with the request."""
    scope: str = ""
    """The scope that the server has asked for."""


async def discover(fetcher: Fetcher, server: Address, challenge: Mapping[str, str]) -> TokenEndpoint:
    """The endpoint that the server's own metadata leads to. Raises CredentialsMissing."""
    found = await _resource_metadata(fetcher, server, challenge)
    if found is None:
        # Servers from before the metadata of resources are their own issuers.
        return await of_issuer(fetcher, str(server.origin), challenge.get("scope", ""))
    told, scope = found
    resource = told.get("resource")
    if not isinstance(resource, str) or not _is_of(resource, server):
        raise CredentialsMissing(
            "auth", f"the metadata of {server} is about another resource: set auth.token_url or auth.issuer"
        )
    issuers = told.get("authorization_servers")
    named = [one for one in issuers if isinstance(one, str)] if isinstance(issuers, list) else []
    if not named:
        raise CredentialsMissing("auth", f"the metadata of {server} names no authorization server: set auth.token_url")
    endpoint = await of_issuer(fetcher, named[0], scope)
    return TokenEndpoint(
        address=endpoint.address, issuer=endpoint.issuer, methods=endpoint.methods, resource=resource, scope=scope
    )


async def of_issuer(fetcher: Fetcher, issuer: str, scope: str = "") -> TokenEndpoint:
    """The endpoint that the metadata of an issuer names. Raises CredentialsMissing."""
    base = fetcher.address(issuer, "the issuer")
    told = await _first(fetcher, [(base, path) for path in _issuer_paths(base.path)])
    if told is None:
        raise CredentialsMissing("auth", f"the issuer {base} has no metadata: set auth.token_url")
    if not isinstance(told.get("issuer"), str) or told["issuer"].rstrip("/") != issuer.rstrip("/"):
        raise CredentialsMissing("auth", f"the metadata of the issuer {base} is of another issuer: it is not used")
    url = told.get("token_endpoint")
    if not isinstance(url, str):
        raise CredentialsMissing("auth", f"the metadata of the issuer {base} names no token endpoint: set auth.token_url")
    methods = told.get("token_endpoint_auth_methods_supported")
    return TokenEndpoint(
        address=fetcher.address(url, "the token endpoint"),
        issuer=told["issuer"],
        methods=tuple(one for one in methods if isinstance(one, str)) if isinstance(methods, list) else (),
        scope=scope,
    )


async def _resource_metadata(
    fetcher: Fetcher, server: Address, challenge: Mapping[str, str]
) -> tuple[dict[str, Any], str] | None:
    """The metadata of the server, and the scope that it asks for; None where it has none."""
    path = server.path.partition("?")[0].rstrip("/")
    places = [_named(server, challenge), (server, _RESOURCE + path), (server, _RESOURCE)]
    told = await _first(fetcher, [place for place in places if place is not None])
    if told is None:
        # Its metadata may be elsewhere, and only a refusal tells where: a ping without credentials is as good as any.
        answer = await fetcher.post(server, {"content-type": "application/json"}, _PING)
        challenge = challenge_parameters(answer.headers.get("www-authenticate", ""))
        named = _named(server, challenge)
        told = await _first(fetcher, [named]) if named is not None else None
    return None if told is None else (told, challenge.get("scope", ""))


def _named(server: Address, challenge: Mapping[str, str]) -> tuple[Address, str] | None:
    """Where a refusal says that the metadata is; only the server itself may speak for itself."""
    address = join_address(server, challenge.get("resource_metadata", "")) if challenge.get("resource_metadata") else None
    return (server, address.path) if address is not None and address.origin == server.origin else None


async def _first(fetcher: Fetcher, places: list[tuple[Address, str]]) -> dict[str, Any] | None:
    """The first page of metadata that is there. Raises CredentialsMissing where a server is away, or broken."""
    for base, path in dict.fromkeys(places):
        where = Address(base.origin, path)
        answer = await fetcher.get(where)
        if answer.status >= 500 or answer.status == 429:
            raise CredentialsMissing("auth_unavailable", f"the metadata at {where} cannot be had: {status_line(answer.status)}")
        told = answer.json() if _is_there(answer) else None
        if told is not None:
            return told
    return None


def _is_there(answer: Answer) -> bool:
    return 200 <= answer.status < 300


def _issuer_paths(path: str) -> list[str]:
    path = path.partition("?")[0].rstrip("/")
    return [_ISSUER + path, _OPENID + path, path + _OPENID]


def _is_of(resource: str, server: Address) -> bool:
    """Whether a resource is the server, or what the server is a part of; a slash at the end says nothing."""
    try:
        address = parse_address(resource)  # nothing is sent there
    except SpecError:
        return False
    own, named = server.path.partition("?")[0].rstrip("/"), address.path.partition("?")[0].rstrip("/")
    return address.origin == server.origin and (own == named or own.startswith(named + "/"))

"""Owns the requests to authorisation servers: our own HTTP, one connection each, bounded, and never to where it must not go."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
import anyio.abc
import anyio.to_thread

from mcpvisor.supervisor.auth.credential import HEADER_VALUE, CredentialsMissing, MissingCause
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.spec import TlsTrust
from mcpvisor.supervisor.transports.address import Address, Origin, parse_address
from mcpvisor.supervisor.transports.codec import Unreadable, decode
from mcpvisor.supervisor.transports.dial import Dialer, DialFailed, lasting_context
from mcpvisor.supervisor.transports.endpoint import RedirectRefused, redirected
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken, HttpConnection
from mcpvisor.supervisor.transports.http_response import ResponseRefused
from mcpvisor.supervisor.transports.resolver import SHARED, Addresses, LookupFailed

MAX_BODY: Final = 64 * 1024
"""Bytes of an answer; a token or a page of metadata has far less."""

MAX_REDIRECTS: Final = 3
ANSWER_SECONDS: Final = 15.0
"""How long one request may take, from its dial to the end of the answer."""

_SAME_REQUEST: Final = frozenset({307, 308})
_REDIRECTS: Final = frozenset({301, 302, 303, *_SAME_REQUEST})
_VEILS: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0/96", "fec0::/10")
)
"""Behind these may be any address of the older kind, or of a site, though `is_global` may hold for them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; its body is at most 64 KiB."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any] | None:
        """The body as a JSON object; None where it is none."""
        try:
            value = decode(self.body, max_bytes=MAX_BODY)
        except Unreadable:
            return None
        return value if isinstance(value, dict) else None


class GlobalAddresses:
    """Looks up addresses of the public network only: metadata must not send the daemon into networks of its own."""

    def __init__(self, within: Addresses) -> None:
        self._within = within

    async def addresses(self, host: str) -> list[str]:
        """See `Resolver`. Raises LookupFailed."""
        found = [text for text in await self._within.addresses(host) if _is_public(text)]
        if not found:
            raise LookupFailed(f"{host!r} has no public address, and metadata may lead to no other: name it in the entry")
        return found


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    return address.is_global and not address.is_multicast and not any(address in veil for veil in _VEILS)


class Fetcher:
    """Asks authorisation servers with the trust of one entry. `known` are the origins that the entry itself names."""

    def __init__(self, trust: TlsTrust, known: frozenset[Origin], resolver: Addresses = SHARED) -> None:
        self._trust = trust
        self._known = known
        self._known_hosts = frozenset(origin.host for origin in known)
        self._resolver = resolver
        self._context: ssl.SSLContext | None = None

    def address(self, url: str, what: str) -> Address:
        """The address of a URL that metadata names: https, or an origin of the entry itself. Raises CredentialsMissing."""
        try:
            address = parse_address(url)
        except SpecError as error:
            raise CredentialsMissing("auth", f"{what}: {error}") from error
        if address.origin.scheme != "https" and address.origin not in self._known:
            raise CredentialsMissing("auth", f"{what} is {address}, which is not https: secrets are not sent there")
        return address

    async def get(self, where: Address) -> Answer:
        """What is at an address; redirects within its origin are followed. Raises CredentialsMissing."""
        return await self._ask("GET", where, {}, b"")

    async def post(self, where: Address, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a POST; redirects within its origin are followed where they ask for the same request."""
        return await self._ask("POST", where, headers, body)

    async def _ask(self, verb: Literal["GET", "POST"], where: Address, headers: Mapping[str, str], body: bytes) -> Answer:
        for _ in range(MAX_REDIRECTS + 1):
            answer, location = await self._once(verb, where, headers, body)
            if not location or answer.status not in (_REDIRECTS if verb == "GET" else _SAME_REQUEST):
                return answer
            try:
                where = redirected(where, location)
            except RedirectRefused as refused:
                raise CredentialsMissing("auth", str(refused)) from refused
        raise CredentialsMissing("auth", f"more than {MAX_REDIRECTS} redirects, the last one to {where}")

    async def _once(self, verb: str, where: Address, headers: Mapping[str, str], body: bytes) -> tuple[Answer, str]:
        request = _request(verb, where, headers, body)
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                connection = HttpConnection(await self._dial(where))
                try:
                    head = await connection.ask(request)
                    answer = Answer(head.status, head.headers, await connection.body(MAX_BODY))
                finally:
                    await connection.aclose()
        except TimeoutError:
            raise CredentialsMissing("auth_unavailable", f"{where} gave no answer within {ANSWER_SECONDS:g} s") from None
        except DialFailed as failed:
            cause: MissingCause = "auth" if failed.cause == "tls" else "auth_unavailable"
            raise CredentialsMissing(cause, str(failed)) from failed
        except (ConnectionBroken, ResponseRefused) as broken:
            raise CredentialsMissing("auth_unavailable", f"{where}: {broken}") from broken
        return answer, head.headers.get("location", "")

    async def _dial(self, where: Address) -> anyio.abc.ByteStream:
        host = where.origin.host
        resolver = self._resolver if host in self._known_hosts else GlobalAddresses(self._resolver)
        if where.origin.scheme == "https" and self._context is None:
            self._context = await anyio.to_thread.run_sync(lasting_context, self._trust)
        return await Dialer(where.origin, self._context if where.origin.scheme == "https" else None, resolver).dial()


def _request(verb: str, where: Address, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = {
        "host": where.origin.authority,
        "user-agent": "mcpvisor",
        "accept": "application/json",
        "accept-encoding": "identity",
        "connection": "close",
        **headers,
    }
    if verb == "POST":
        lines["content-length"] = str(len(body))
    wrong = next((name for name, value in lines.items() if not HEADER_VALUE.fullmatch(value)), None)
    if wrong is not None:
        raise CredentialsMissing("auth", f"the header {wrong} for {where} holds a line break or a control character")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{verb} {where.path} HTTP/1.1\r\n{head}\r\n".encode() + body

"""Owns the address that a wire talks to: the headers of each request, redirects within the origin, cookies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from mcpvisor.supervisor.auth.credential import (
    HEADER_NAME,
    HEADER_VALUE,
    OURS,
    Credential,
    Credentials,
    FixedCredentials,
    checked,
    written_credential,
)
from mcpvisor.supervisor.auth.kinds import CREDENTIAL_HEADERS
from mcpvisor.supervisor.cleaning import clip
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import HttpTarget
from mcpvisor.supervisor.transports.address import Address, join_address
from mcpvisor.supervisor.transports.cookies import CookieJar
from mcpvisor.supervisor.transports.dial import DialFailed
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken, HttpConnection
from mcpvisor.supervisor.transports.http_outcome import MAX_ERROR_BODY, status_line
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.http_response import Head, ResponseRefused

MAX_REDIRECTS: Final = 5

MAX_LOCATION: Final = 4096
"""Characters of an address that a redirect may name."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_UNHANDLED: Final = frozenset({307, 308})
"""By these a server says that it has not handled the request, and where the same request is to be sent."""
_UNAUTHORIZED: Final = 401


class Unsendable(ValueError):
    """A request that cannot be written as HTTP or JSON; nothing was sent."""


class RedirectRefused(Exception):
    """A redirect that must not be followed; the text names the address."""


class Response:
    """A response whose head has come; a context manager that ends the exchange, whole or in the middle."""

    def __init__(self, head: Head, address: Address, connection: HttpConnection, pool: HttpPool) -> None:
        self.head = head
        self.address = address
        self.was_redirected = False
        """Whether the request had been written to another address before."""
        self._connection = connection
        self._pool = pool
        self._is_ours = True

    def detach(self) -> None:
        """Leave the end of the exchange to whoever calls `release`; the context manager no longer does it."""
        self._is_ours = False

    async def abort(self) -> None:
        """End the exchange in the middle."""
        await self._connection.aclose()

    async def release(self) -> None:
        """End the exchange: the connection goes back to the pool, or is closed where its response is not read to the end."""
        await self._pool.give_back(self._connection)

    async def chunk(self) -> bytes:
        """Some bytes of the body, decoded; empty at its end. Raises ConnectionBroken and ResponseRefused."""
        return await self._connection.chunk()

    async def body(self, limit: int) -> bytes:
        """The whole body of at most `limit` bytes. Raises ConnectionBroken and ResponseRefused."""
        return await self._connection.body(limit)

    async def error_body(self) -> bytes:
        """What there is of the body of a refusal; empty where it is too big or broken, which changes nothing."""
        try:
            return await self._connection.body(MAX_ERROR_BODY)
        except (ConnectionBroken, ResponseRefused):
            return b""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            await self.abort()
        elif self._is_ours:
            await self.release()


class Endpoint:
    """Sends requests to where the server is, which a redirect may have taught it."""

    def __init__(
        self,
        address: Address,
        target: HttpTarget,
        pool: HttpPool,
        credentials: Credentials | None = None,
        jar: CookieJar | None = None,
    ) -> None:
        """`credentials` are asked for each request; without them it carries what the target itself says."""
        self.address = address
        self._own = spec_headers(target)
        self._credentials = credentials or FixedCredentials(written_credential(target))
        self._pool = pool
        self._jar = jar or CookieJar()
        self._heads: dict[str, tuple[str, Credential, str]] = {}
        """For each verb the path it was last sent to, what it carried, and the begin of its head."""
        self.standing: dict[str, str] = {}
        """Headers of the session, sent with each request: its id and its protocol version."""

    async def open(
        self, verb: str, body: bytes, headers: Mapping[str, str], *, repeatable: bool, address: Address | None = None
    ) -> Response:
        """Send a request and return its response; redirects within the origin are followed and remembered.

        `repeatable` says whether it may be written twice when a kept connection turns out closed. What is not follows one
        redirect at most, and only where the server says by it that it has not handled the request. By a 401 it says so too: the
        request is sent once more where there are other credentials by then. Raises DialFailed (once a redirect was followed,
        only for what is repeatable), ConnectionBroken, ResponseRefused, RedirectRefused, Unsendable and CredentialsMissing.
        """
        credential = await self._credentials.current()
        response = await self._open(verb, body, headers, credential, repeatable=repeatable, address=address)
        if response.head.status != _UNAUTHORIZED:
            self._credentials.accepted(credential)
            return response
        if response.was_redirected and not repeatable:
            return response  # it says nothing about the address before
        return await self._once_more(response, verb, body, headers, credential, repeatable=repeatable, address=address)

    async def _once_more(
        self,
        refused: Response,
        verb: str,
        body: bytes,
        headers: Mapping[str, str],
        credential: Credential,
        *,
        repeatable: bool,
        address: Address | None,
    ) -> Response:
        """The response to a request that was refused with 401, with other credentials; the same where there are none."""
        try:
            other = await self._credentials.instead_of(credential, refused.head.headers.get("www-authenticate", ""))
        except BaseException:
            await refused.abort()
            raise
        if other is None:
            return refused
        async with refused:
            await refused.error_body()
        response = await self._open(verb, body, headers, other, repeatable=repeatable, address=address)
        if response.head.status != _UNAUTHORIZED:
            self._credentials.accepted(other)
        return response

    async def _open(
        self,
        verb: str,
        body: bytes,
        headers: Mapping[str, str],
        credential: Credential,
        *,
        repeatable: bool,
        address: Address | None,
    ) -> Response:
        where = address or self.address
        for hops in range(MAX_REDIRECTS + 1):
            try:
                response = await self._once(where, self._request(where, verb, body, headers, credential), repeatable)
            except DialFailed as failed:
                if repeatable or not hops:
                    raise
                raise ConnectionBroken(f"after a redirect to {where}: {failed}", answered=False) from failed
            except ConnectionBroken as broken:
                if not hops:
                    raise
                raise ConnectionBroken(f"after a redirect to {where}: {broken}", answered=broken.answered) from broken
            head = response.head
            if head.cookies:
                self._jar.store(head.cookies, where.path, time.time())
            if head.status not in _REDIRECTS or "location" not in head.headers:
                response.was_redirected = hops > 0
                return response
            async with response:
                await response.error_body()
            where = next_hop(where, head, hops, repeatable=repeatable)
            if address is None:
                self.address = where
        raise RedirectRefused(f"more than {MAX_REDIRECTS} redirects, the last one to {where}: write the final address as url")

    async def _once(self, where: Address, request: bytes, repeatable: bool) -> Response:
        connection = await self._pool.take()
        try:
            return Response(await connection.ask(request), where, connection, self._pool)
        except ConnectionBroken as broken:
            await connection.aclose()
            if broken.answered or not connection.served or not repeatable:
                raise
        except BaseException:
            await connection.aclose()
            raise
        connection = await self._pool.take(fresh=True)
        try:
            return Response(await connection.ask(request), where, connection, self._pool)
        except BaseException:
            await connection.aclose()
            raise

    def _request(self, where: Address, verb: str, body: bytes, headers: Mapping[str, str], credential: Credential) -> bytes:
        path, carried, head = self._heads.get(verb, ("", credential, ""))
        if path != where.path or carried is not credential:
            head = f"{verb} {_with_key(where.path, credential.query)} HTTP/1.1\r\n"
            # What stands in the entry itself wins over what was given as a credential.
            for name, value in {**dict(credential.headers), "host": where.origin.authority, **self._own}.items():
                if verb == "POST" or name != "content-type":
                    head += f"{name}: {value}\r\n"
            self._heads[verb] = where.path, credential, head
        # One line for each name: servers refuse requests that say their routing headers twice.
        varying = {**self.standing, **{name.lower(): value for name, value in headers.items()}} if headers else self.standing
        for name, value in varying.items():
            if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
                raise Unsendable(f"header {name!r} cannot be sent: it holds a line break or a control character")
            head += f"{name}: {value}\r\n"
        cookie = self._jar.header(where.path, time.time())
        if cookie:
            head += f"cookie: {cookie}\r\n"
        if verb == "POST":
            head += f"content-length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body


def _with_key(path: str, query: tuple[str, str] | None) -> str:
    """The path with a key in its query, in place of one that a redirect has brought back."""
    if query is None:
        return path
    name = quote(query[0], safe="")
    path, _, old = path.partition("?")
    kept = [part for part in old.split("&") if part and part.partition("=")[0] != name]
    return path + "?" + "&".join([*kept, name + "=" + quote(query[1], safe="")])


def next_hop(base: Address, head: Head, hops: int, *, repeatable: bool) -> Address:
    """Where a request that was redirected, after `hops` other times, is sent again. Raises RedirectRefused."""
    target = redirected(base, head.headers["location"])
    why = ""
    if head.status == 303:
        why = "which would make it a GET"
    elif not repeatable and head.status not in _UNHANDLED:
        why = "since the request may have run already: write it as url if it is right"
    elif not repeatable and hops:
        why = "since it is the second one for a request that must not run twice: write the final address as url"
    if why:
        raise RedirectRefused(f"a redirect ({status_line(head.status)}) from {base} to {target} is not followed, {why}")
    return target


def redirected(base: Address, location: str) -> Address:
    """Where a redirect leads, if it stays within the origin. Raises RedirectRefused, which names the address."""
    if len(location) > MAX_LOCATION:
        raise RedirectRefused(f"a redirect from {base} to {clip(location, 200)!r}, an address of {len(location)} characters")
    target = join_address(base, location)
    if target is None:
        raise RedirectRefused(f"a redirect from {base} to {clip(location, 200)!r}, which is no http address")
    if len(target.path) > MAX_LOCATION:  # a relative one makes the path longer each time
        raise RedirectRefused(
            f"a redirect from {base} to {clip(location, 200)!r}, where the path has {len(target.path)} characters"
        )
    if target.origin != base.origin:
        # Another host would see the credentials, and http would show them to everybody on the way.
        raise RedirectRefused(
            f"a redirect from {base} to {target}, which is another origin and is not followed: write it as url if it is right"
        )
    return target


def spec_headers(target: HttpTarget) -> dict[str, str]:
    """The headers of an entry beside our own, but for credentials; names in lower case. Raises SpecError, with the header."""
    headers = {
        "user-agent": "mcpvisor",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
    }
    for name, text in target.headers:
        value = reveal(text).strip()
        if not HEADER_NAME.fullmatch(name):
            raise SpecError(f"headers: {name!r} is no valid header name")
        checked(value, f"headers.{name}")
        if name.lower() in OURS:
            raise SpecError(f"headers.{name}: is set by mcpvisor itself: remove it")
        if name.lower() not in CREDENTIAL_HEADERS:
            headers[name.lower()] = value
    return headers

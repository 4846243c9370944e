"""Owns the opening of connections to one origin: its addresses, raced; TLS with the trust of its entry; one deadline."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable
from contextlib import AsyncExitStack
from ipaddress import IPv6Address, ip_address
from itertools import chain, zip_longest
from typing import Final

import anyio
import anyio.abc
from anyio.streams.tls import TLSStream

from mcpvisor.supervisor.spec import TlsTrust
from mcpvisor.supervisor.transports.address import Origin
from mcpvisor.supervisor.transports.resolver import SHARED, Addresses, LookupFailed

CONNECT_SECONDS: Final = 10.0
"""From the lookup to the end of the TLS handshake."""

HEAD_START: Final = 0.25
"""Seconds one address has before the next one is tried beside it (RFC 8305)."""

_MOST_LOADED: Final = 256
"""How many settings made of files are remembered; the oldest go first."""

_loaded: Final[dict[TlsTrust, ssl.SSLContext]] = {}
"""By trust, whose `contents` tell files from former ones, what was loaded of them last."""

_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
"""A peer that vanished is noticed within two minutes, also on a stream that is silent by nature."""


class DialFailed(Exception):
    """No connection came about. `cause` is `connect_failed` or `tls`.

    `was_written`: the request had left before TLS was refused; otherwise nothing was sent.
    """

    def __init__(self, cause: str, detail: str, *, was_written: bool = False) -> None:
        super().__init__(detail)
        self.cause = cause
        self.was_written = was_written


def client_context(trust: TlsTrust) -> ssl.SSLContext:
    """The TLS settings of an entry. Blocks on files. Raises DialFailed, which names the key."""
    try:
        if trust.replace and trust.ca:
            context = ssl.create_default_context(cafile=trust.ca)
        else:
            context = ssl.create_default_context()
            if trust.ca:
                context.load_verify_locations(cafile=trust.ca)
    except OSError as error:
        raise DialFailed("tls", f"tls.ca: {trust.ca} cannot be loaded: {error}") from error
    if trust.client_cert:
        try:
            # An encrypted key must not make OpenSSL ask on the terminal.
            context.load_cert_chain(trust.client_cert, trust.client_key, password="")
        except (OSError, ValueError) as error:
            raise DialFailed("tls", f"tls.client_cert: {trust.client_cert} cannot be loaded: {error}") from error
    return context


def lasting_context(trust: TlsTrust) -> ssl.SSLContext:
    """The same for sessions: where files that were good can be loaded no more, what was loaded of them last goes on.

    A certificate that is replaced by deleting and writing must not cost a session that is opened between the two. What was
    loaded of other contents never counts. Blocks on files. Raises DialFailed, which names the key.
    """
    try:
        context = client_context(trust)
    except DialFailed:
        if trust in _loaded:
            return _loaded[trust]
        raise
    if trust.contents:
        _loaded.pop(trust, None)
        _loaded[trust] = context
        while len(_loaded) > _MOST_LOADED:
            del _loaded[next(iter(_loaded))]
    return context


class Dialer:
    """Opens byte streams to one origin."""

    def __init__(self, origin: Origin, context: ssl.SSLContext | None, resolver: Addresses = SHARED) -> None:
        self._origin = origin
        self._context = context
        self._resolver = resolver

    async def dial(self) -> anyio.abc.ByteStream:
        """A connected stream, within 10 s. Raises DialFailed."""
        where = self._origin
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                stream = await self._connect()
                return await self._secure(stream, self._context) if self._context is not None else stream
        except TimeoutError:
            detail = f"cannot connect to {where}: no connection within {CONNECT_SECONDS:g} s"
            raise DialFailed("connect_failed", detail) from None
        except LookupFailed as error:
            raise DialFailed("connect_failed", f"cannot connect to {where}: {error}") from error

    async def _connect(self) -> anyio.abc.SocketStream:
        hosts = interleave(await self._resolver.addresses(self._origin.host))
        if len(hosts) == 1:
            try:
                stream = await anyio.connect_tcp(hosts[0], self._origin.port)
            except OSError as error:
                raise self._refused([(hosts[0], error)]) from error
        else:
            stream = await self._race(hosts)
        try:
            self._watch_over(stream)
        except OSError as error:  # the peer has gone already
            await anyio.aclose_forcefully(stream)
            raise self._refused([(self._origin.host, error)]) from error
        return stream

    @staticmethod
    def _watch_over(stream: anyio.abc.SocketStream) -> None:
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610 -- anyio's typed attributes, not Django
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            raw.setsockopt(socket.IPPROTO_TCP, option, value)

    async def _race(self, hosts: list[str]) -> anyio.abc.SocketStream:
        won: list[anyio.abc.SocketStream] = []
        errors: list[tuple[str, OSError]] = []

        async def attempt(host: str, failed: anyio.Event) -> None:
            try:
                stream = await anyio.connect_tcp(host, self._origin.port)
            except OSError as error:
                errors.append((host, error))
                failed.set()
                return
            won.append(stream)
            tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                for host in hosts:
                    failed = anyio.Event()
                    tasks.start_soon(attempt, host, failed)
                    with anyio.move_on_after(HEAD_START):
                        await failed.wait()
            winner = won.pop(0) if won else None
        finally:
            with anyio.CancelScope(shield=True):
                for late in won:
                    await anyio.aclose_forcefully(late)
        if winner is None:
            raise self._refused(errors)
        return winner

    async def _secure(self, stream: anyio.abc.SocketStream, context: ssl.SSLContext) -> anyio.abc.ByteStream:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(anyio.aclose_forcefully, stream)
            try:
                # Half the servers in the field never send close_notify; a cut answer is told by its framing.
                secured = await TLSStream.wrap(
                    stream, hostname=self._origin.host, ssl_context=context, standard_compatible=False
                )
            except ssl.SSLCertVerificationError as error:
                why = error.verify_message.rstrip(".") + _remedy(error)
                detail = f"the certificate of {self._origin} is not trusted: {why}"
                raise DialFailed("tls", detail) from error
            except ssl.SSLError as error:
                raise DialFailed("tls", f"no TLS with {self._origin}: {error.reason or error}") from error
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                detail = f"{self._origin} closed the connection within the TLS handshake"
                raise DialFailed("connect_failed", detail) from error
            undo.pop_all()
            return secured

    def _refused(self, errors: Iterable[tuple[str, OSError]]) -> DialFailed:
        tried = ", ".join(f"{host}: {_reason(error)}" for host, error in errors)
        return DialFailed("connect_failed", f"cannot connect to {self._origin} ({tried})")


def _remedy(error: ssl.SSLCertVerificationError) -> str:
    """What mends it; another CA helps neither a certificate that is over nor one for another name."""
    match error.verify_code:
        case 9 | 10:
            return ": it has to be renewed at the server, or one of the two clocks is wrong"
        case 62 | 64:
            return " (url has to name a host that it was made for)"
        case _:
            return " (key tls.ca names a CA to trust)"


def _reason(error: BaseException) -> str:
    """The system's words for a failed connection; the async layers wrap it once or twice, in words of their own."""
    while getattr(error, "errno", None) is None and error.__cause__ is not None:
        error = error.__cause__
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) else str(error) or type(error).__name__


def interleave(addresses: Iterable[str]) -> list[str]:
    """The addresses with their families in turn, so that a family without a route costs one head start (RFC 8305)."""
    texts = list(addresses)
    families: dict[bool, list[str]] = {}
    for text in texts:
        families.setdefault(isinstance(ip_address(text), IPv6Address), []).append(text)
    return [text for text in chain.from_iterable(zip_longest(*families.values())) if text is not None]

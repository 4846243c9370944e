"""Owns the checks that every request on every listener passes before anything else sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcpvisor.daemon.gateway.bodies import Bodies, Held
from mcpvisor.daemon.gateway.caller import Caller, set_caller
from mcpvisor.daemon.gateway.http_protocol import PEER_STATE
from mcpvisor.daemon.gateway.places import STANDING_STATE, Standing
from mcpvisor.daemon.gateway.principals import Admission, NotAdmitted
from mcpvisor.daemon.gateway.replies import PARSE_ERROR, refuse
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.gateway.turns import RUSH_SECONDS, Turns
from mcpvisor.supervisor.pace import Accounts
from mcpvisor.supervisor.transports.ahead import decoded
from mcpvisor.supervisor.transports.codec import Unreadable

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})

MESSAGE_SCOPE: Final = "mcpvisor.message"
"""Where a POST's scope holds its body as it was decoded here."""

_CLOSE: Final = {"connection": "close"}

_STRANGERS: Final = ""
"""Whose turn it is when it is nobody's whom we know: all of them share one."""

_PROBES: Final = "?"
"""Whose turn it is when the daemon's health is asked for, which no flood of strangers is to hold up; no principal's name."""

DISCARD_BYTES: Final = 64 * 1024 * 1024
DISCARD_SECONDS: Final = 2.0
"""What is still read of a body that was refused. A connection that is closed with bytes unread is reset, and the refusal
would be lost on its way."""

Refused = Callable[[str], None]


class ClientGone(Exception):
    """The client went away in the middle of its request."""


class BodyRefused(Exception):
    """A body that is not read to its end or not taken for a message."""

    def __init__(self, status: int, reason: str, text: str, code: int = PARSE_ERROR) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.code = code


class Guard:
    """ASGI middleware: Host and Origin, who asks, how much at one time, and whether the body can be a message."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        admission: Admission,
        hosts: frozenset[str],
        origins: frozenset[str],
        limits: GatewayLimits,
        refused: Refused,
    ) -> None:
        self._app = app
        self._admission = admission
        self._hosts = LOCAL_HOSTS | frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower() for origin in origins)
        self._limits = limits
        self._refused = refused
        self._exchanges: Counter[str] = Counter()
        self._turns = Turns(RUSH_SECONDS, nobodys=(_STRANGERS, _PROBES))
        self._bodies = Bodies(limits.bodies_bytes)
        self._accounts = Accounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = scope["headers"]
        standing: Standing | None = scope["state"].get(STANDING_STATE)
        hosts = [value for name, value in headers if name == b"host"]
        if not self._is_host_ours(scope, hosts):
            self._refused("host")
            if await self._turns.take(_STRANGERS, standing):
                await refuse(send, 421, "this host name is not served here; see gateway.hosts", headers=_CLOSE)
            return
        if any(name == b"origin" and not self._is_origin_ours(value, hosts) for name, value in headers):
            self._refused("origin")
            if await self._turns.take(_STRANGERS, standing):
                text = "requests of web pages of this origin are not allowed; see gateway.origins"
                await refuse(send, 403, text, headers=_CLOSE)
            return
        if is_probe(scope):
            if await self._turns.take(_PROBES, standing):
                await self._app(scope, receive, send)
            return
        try:
            principal = self._admission.principal(scope["state"].get(PEER_STATE), dict(headers))
        except NotAdmitted as error:
            self._refused("auth")
            challenge = {"www-authenticate": 'Bearer realm="mcpvisor"'} if error.status == 401 else {}
            if await self._turns.take(_STRANGERS, standing):
                await refuse(send, error.status, str(error), headers={**challenge, **_CLOSE})
            return
        if standing is not None:
            standing.is_admitted = True
        if await self._turns.take(principal, standing):
            await self._within_share(principal, scope, receive, send)

    def _is_host_ours(self, scope: Scope, hosts: list[bytes]) -> bool:
        if scope["state"].get(PEER_STATE) is not None:
            return True
        if len(hosts) != 1:
            return False
        host = hosts[0].decode("latin-1").lower()
        try:
            parts = urlsplit(f"//{host}")
            parts.port  # noqa: B018 - reading it is what checks it
        except ValueError:
            return False
        name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
        return host in self._hosts or (name in self._hosts and (not port or port.isdigit()))

    def _is_origin_ours(self, origin: bytes, hosts: list[bytes]) -> bool:
        """Whether web pages of an origin may call: those listed, and those of this very host and port, which has none."""
        text = origin.decode("latin-1").lower()
        scheme, _, authority = text.partition("://")
        is_same = scheme in {"http", "https"} and [authority] == [host.decode("latin-1").lower() for host in hosts]
        return is_same or text in self._origins

    async def _within_share(self, principal: str, scope: Scope, receive: Receive, send: Send) -> None:
        """One principal's requests must not take the room of all others."""
        if self._exchanges[principal] >= self._limits.exchanges_per_principal:
            self._refused("rate")
            await refuse(send, 429, "too many requests of this client at one time", headers={"retry-after": "1"})
            return
        self._exchanges[principal] += 1
        try:
            set_caller(scope, Caller(principal))
            await self._with_body(principal, scope, receive, send)
        finally:
            self._exchanges[principal] -= 1
            if not self._exchanges[principal]:
                del self._exchanges[principal]

    async def _with_body(self, principal: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body and pass it on; what is held of it counts, and is let go of when the exchange is over."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        with self._bodies.hold(principal) as held:
            try:
                async with aclosing(_chunks(receive)) as chunks:
                    try:
                        body = await self._read(scope, chunks, held)
                        scope[MESSAGE_SCOPE] = await self._decode(body, principal)
                    except ClientGone:
                        return
                    except BodyRefused as error:
                        held.release()
                        self._refused(error.reason)
                        await _discard(scope, chunks)
                        await refuse(send, error.status, str(error), code=error.code, headers=_CLOSE)
                        return
                replay = _replay(body, receive)
                del body  # from here on it is the app's to keep or to drop
                await self._app(scope, replay, send)
            finally:
                scope.pop(MESSAGE_SCOPE, None)  # an idle connection keeps the scope of its last request

    async def _read(self, scope: Scope, chunks: AsyncIterator[bytes], held: Held) -> bytes:
        """The whole body. Raises BodyRefused and ClientGone."""
        limit = self._limits.body_bytes
        too_large = BodyRefused(413, "size", f"the body is over the limit of {limit} bytes")
        for name, value in scope["headers"]:
            if name == b"content-encoding" and value.strip().lower() != b"identity":
                raise BodyRefused(415, "size", "compressed bodies are not taken")
            if name == b"content-length" and value.isdigit() and (len(value) > 18 or int(value) > limit):
                raise too_large
        parts: list[bytes] = []
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > limit:
                raise too_large
            if not held.grow(len(chunk)):
                raise BodyRefused(503, "rate", "too much is being sent at one time")
            parts.append(chunk)
        return b"".join(parts)

    async def _decode(self, body: bytes, principal: str) -> Any:
        try:
            return await decoded(body, max_bytes=self._limits.body_bytes, account=self._accounts.of(principal))
        except Unreadable as error:
            raise BodyRefused(400, error.reason, str(error)) from None


def is_probe(scope: Scope) -> bool:
    """Whether a request asks for nothing but a probe's yes or no, which needs no credentials."""
    return scope["path"] in {"/livez", "/readyz", "/healthz"} and not scope["query_string"]


async def _chunks(receive: Receive) -> AsyncGenerator[bytes]:
    """The body as it comes. Raises ClientGone."""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _discard(scope: Scope, chunks: AsyncIterator[bytes]) -> None:
    """Read on for a while, for nobody; a client that asked before it sends its body is told at once."""
    if any(name == b"expect" for name, _ in scope["headers"]):
        return
    size = 0
    try:
        with anyio.move_on_after(DISCARD_SECONDS):
            async for chunk in chunks:
                size += len(chunk)
                if size > DISCARD_BYTES:
                    return
    except ClientGone:
        return


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body again, whole, and then whatever comes from the client."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again

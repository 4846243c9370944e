"""Owns deliveries to one webhook: a signed POST each, bounded in time and size, to one address and no other."""

from __future__ import annotations

import importlib
import ssl
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.lowlevel
import anyio.to_thread

from mcpvisor import __version__
from mcpvisor.daemon.handlers.answers import MAX_ANSWER, read_answer
from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerEvent, HandlerQuestion, JsonObject
from mcpvisor.daemon.handlers.network_fault import network_fault
from mcpvisor.daemon.handlers.signing import signed_headers, signing_key
from mcpvisor.daemon.handlers.webhook_options import WebhookOptions, secrets_of
from mcpvisor.daemon.handlers.webhook_outcome import Response, failure
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.transports.address import parse_address
from mcpvisor.supervisor.transports.codec import encode
from mcpvisor.supervisor.transports.dial import DialFailed, lasting_context
from mcpvisor.supervisor.transports.http_outcome import MAX_ERROR_BODY

if TYPE_CHECKING:
    import httpx2

KEPT_CONNECTIONS: Final = 4
KEPT_SECONDS: Final = 20.0
"""How many idle connections are kept, and for how long; receivers close theirs after a minute or more."""

REST_SECONDS: Final = 1.0
"""How long the body of a response may take that says nothing more: what counts is its status, and that is known."""


_LEAST_PIECE: Final = 64
"""Bytes of a piece of a body, on the average: each costs as much as a large one."""


class WebhookHandler:
    """Posts events to one receiver, and takes its answers to questions. To be entered; connections are kept until it is left.

    Raises SpecError for a URL that is none, ValueError for a secret that is no key.
    """

    def __init__(
        self,
        options: WebhookOptions,
        *,
        now: Callable[[], float] = time.time,
        known_secrets: KnownSecrets | None = None,
    ) -> None:
        self._options = options
        self._where = parse_address(options.url)
        self._keys = [signing_key(secret) for secret in options.secrets]
        self._mask = Mask(secrets_of(options), known_secrets)
        self._now = now
        self._lock = anyio.Lock()
        self._transport: httpx2.AsyncHTTPTransport | None = None
        self._under_way = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        with anyio.CancelScope(shield=True):
            await self._drop_connections()

    async def deliver(self, event: HandlerEvent) -> None:
        """See `EventHandler`: the status of the response decides."""
        await self._post(event.id, event.as_json())

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`: the body of the response is the answer."""
        body = await self._post(question.id, question.as_json(), wants_answer=True)
        return read_answer(body, str(self._where))

    async def _post(self, message_id: str, message: JsonObject, *, wants_answer: bool = False) -> bytes:
        """Post a message once; the body of the response where it is wanted. Raises DeliveryFailed."""
        transport = await self._connected()
        import httpx2

        self._under_way += 1
        try:
            response = await transport.handle_async_request(self._request(message_id, message))
            return await self._read(response, wants_answer=wants_answer)
        except httpx2.TransportError as error:
            if _is_of_tls(error) and self._under_way == 1:
                await self._drop_connections()  # the next one reads the files again, which may have been renewed
            raise DeliveryFailed(self._mask.text(network_fault(error, self._where))) from error
        finally:
            self._under_way -= 1

    async def _connected(self) -> httpx2.AsyncHTTPTransport:
        async with self._lock:
            if self._transport is None:
                self._transport = await self._open()
            return self._transport

    async def _open(self) -> httpx2.AsyncHTTPTransport:
        """A transport: no redirects, no cookies, nothing of the environment, and no log lines with URLs in them."""
        try:
            context = await anyio.to_thread.run_sync(lasting_context, self._options.tls)
        except DialFailed as failed:
            raise DeliveryFailed(str(failed)) from failed
        # Its import takes a tenth of a second, which the loop has better use for.
        await anyio.to_thread.run_sync(importlib.import_module, "httpx2")
        import httpx2

        return httpx2.AsyncHTTPTransport(
            verify=context,
            trust_env=False,
            proxy=self._proxy(context),
            # A delivery that is cancelled may hold its place for ever: there is no number to run out of.
            limits=httpx2.Limits(
                max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS, keepalive_expiry=KEPT_SECONDS
            ),
        )

    def _proxy(self, context: ssl.SSLContext) -> httpx2.Proxy | None:
        import httpx2

        if self._options.proxy is None:
            return None
        url = reveal(self._options.proxy)
        return httpx2.Proxy(url, ssl_context=context if url.startswith("https:") else None)

    async def _drop_connections(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    def _request(self, message_id: str, message: JsonObject) -> httpx2.Request:
        import httpx2

        try:
            body = encode(message)
        except ValueError as error:
            raise DeliveryFailed(f"the message {error}", is_final=True) from error
        headers = [
            ("content-type", "application/json"),
            ("accept", "application/json"),
            ("accept-encoding", "identity"),
            ("user-agent", f"mcpvisor/{__version__}"),
            ("idempotency-key", message_id),
            *signed_headers(self._keys, message_id, int(self._now()), body),
            *((name, reveal(value)) for name, value in self._options.headers),
        ]
        # Whoever delivers has a deadline for the whole: what takes it is cancelled.
        seconds = {"connect": self._options.connect_timeout, "read": None, "write": None, "pool": None}
        return httpx2.Request(
            "POST",
            f"{self._where.origin}{self._where.path}",
            headers=[(name.encode(), value.encode()) for name, value in headers],
            content=body,
            extensions={"timeout": seconds},
        )

    async def _read(self, response: httpx2.Response, *, wants_answer: bool) -> bytes:
        is_good = 200 <= response.status_code < 300
        try:
            if is_good and wants_answer:
                return await _body(response, MAX_ANSWER)
            body = await _rest(response)
        finally:
            await response.aclose()
        told = Response(
            status=response.status_code,
            location=response.headers.get("location", ""),
            retry_after=response.headers.get("retry-after", ""),
            body=self._mask.raw(body),
            now=self._now(),
        )
        failed = failure(self._where, told)
        if failed is not None:
            raise DeliveryFailed(self._mask.text(str(failed)), retry_after=failed.retry_after, is_final=failed.is_final)
        return b""


async def _body(response: httpx2.Response, limit: int) -> bytes:
    """The body as it is on the wire, or somewhat more than `limit` bytes of it.

    Raises DeliveryFailed for one in so many pieces that only their number can be meant.
    """
    body = bytearray()
    most = limit // _LEAST_PIECE
    async with aclosing(response.aiter_raw()) as pieces:
        async for piece in pieces:
            body += piece
            most -= 1
            if len(body) > limit:
                break
            if most < 0:
                raise DeliveryFailed(f"the answer came in pieces of less than {_LEAST_PIECE} bytes", is_final=True)
            await anyio.lowlevel.checkpoint()  # thousands of pieces may be there already, and others want the loop
    return bytes(body)


async def _rest(response: httpx2.Response) -> bytes:
    """The body, if it comes within `REST_SECONDS`; the head has come, and nothing that is wrong with the rest changes it."""
    import httpx2

    with anyio.move_on_after(REST_SECONDS), suppress(httpx2.TransportError, DeliveryFailed):
        return await _body(response, MAX_ERROR_BODY)
    return b""


def _is_of_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False

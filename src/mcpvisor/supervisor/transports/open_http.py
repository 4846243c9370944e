"""Owns the opening and closing of HTTP wires: which of the two transports it is, and what both are built of."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.to_thread

from mcpvisor.supervisor.auth.credential import Credentials
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, ServerSpec
from mcpvisor.supervisor.transports.address import parse_address
from mcpvisor.supervisor.transports.dial import Dialer, DialFailed, lasting_context
from mcpvisor.supervisor.transports.endpoint import Endpoint
from mcpvisor.supervisor.transports.exchange import WireHooks
from mcpvisor.supervisor.transports.hop import HOP_HEADER
from mcpvisor.supervisor.transports.http import HttpWire
from mcpvisor.supervisor.transports.http_memory import HttpMemory
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.resolver import SHARED, Resolver
from mcpvisor.supervisor.transports.sse import SseWire
from mcpvisor.supervisor.transports.wire import OpenFailed, WireEnd


@asynccontextmanager
async def open_http(
    spec: ServerSpec,
    hooks: WireHooks,
    *,
    transport: HttpTransport | None = None,
    hop: str = "",
    resolver: Resolver = SHARED,
    memory: HttpMemory | None = None,
    credentials: Credentials | None = None,
) -> AsyncGenerator[HttpWire | SseWire]:
    """A wire to an HTTP server; nothing is dialled before its first request, or before `run` of an SSE wire.

    `hop`, where given, marks every request as ours; `memory` is what the wires of this server before have left; `credentials`
    are asked for each request, in place of those of the spec.

    `transport` overrides the one of the spec; `auto` is Streamable HTTP. A server that only knows the old transport refuses
    `initialize`: that fails with the cause `not_streamable_http`, and whoever holds an `auto` spec opens it again with
    `transport=HttpTransport.SSE`. On leaving, a session is ended at the server (at most 2 s) and all connections closed.
    Raises OpenFailed (`tls`: a file of the entry cannot be loaded) and SpecError.
    """
    target = spec.target
    if not isinstance(target, HttpTarget):
        raise SpecError(f"server {spec.name} has no url")
    address = parse_address(target.url)
    try:
        context = await anyio.to_thread.run_sync(lasting_context, target.tls) if address.origin.scheme == "https" else None
    except DialFailed as failed:
        raise OpenFailed(WireEnd(cause=failed.cause, detail=str(failed))) from failed
    pool = HttpPool(Dialer(address.origin, context, resolver).dial)
    memory = memory or HttpMemory()
    memory.bind(address.origin)
    endpoint = Endpoint(address, target, pool, credentials, memory.jar)
    if hop:
        endpoint.standing[HOP_HEADER] = hop
    try:
        if (transport or target.transport) is HttpTransport.SSE:
            sse = SseWire(hooks, endpoint, pool, max_message=spec.max_message, memory=memory)
            yield sse
        else:
            wire = HttpWire(hooks, endpoint, pool, max_message=spec.max_message, memory=memory)
            try:
                yield wire
            finally:
                await wire.close()
    finally:
        await pool.aclose()

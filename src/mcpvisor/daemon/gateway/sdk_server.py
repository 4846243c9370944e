"""Owns every touch on parts of the SDK's server that are provisional or private; its contract test fails when they move.

What is used: `Server.middleware`, `handle_modern_request`, the `Connection` in which the handshake leaves what it settled, how
a request of ours goes out on the stream of a client's own, and the transport of a session (`session_transport.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import anyio
import anyio.abc
from mcp.server._streamable_http_modern import handle_modern_request
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.runner import serve_connection
from mcp.shared.dispatcher import Outbound
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    InitializeRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.gateway.answer import Answer
from mcpvisor.daemon.gateway.frames import (
    GATEWAY_CLOSED,
    INTERNAL_ERROR,
    ended,
)
from mcpvisor.daemon.gateway.guard import MESSAGE_SCOPE
from mcpvisor.daemon.gateway.malformed import message_fault
from mcpvisor.daemon.gateway.replies import refuse
from mcpvisor.daemon.gateway.session_transport import SessionTransport

_log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
JsonObject = dict[str, Any]

VERSION_HEADER: Final = b"mcp-protocol-version"

NAME_LENGTH: Final = 256
"""Characters that are kept of a client's name, and of its version."""

CUT_WRITE_SECONDS: Final = 0.2
"""What a client has to take the last word on a request that is cut when the gateway closes."""


def is_modern_request(scope: Scope) -> bool:
    """Whether the version header sends a request to the SDK's entry for 2026-07-28; unknown versions are refused there."""
    version = next((value for name, value in scope["headers"] if name == VERSION_HEADER), None)
    return version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS


def request_id(scope: Scope) -> Any:
    """The id of the request in a POST, as the client wrote it; None where there is none."""
    message = scope.get(MESSAGE_SCOPE)
    return message.get("id") if isinstance(message, dict) else None


def is_modern(ctx: Context) -> bool:
    """Whether the client of this request speaks 2026-07-28."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def is_initialized(ctx: Context) -> bool:
    """Whether the handshake has come as far as to admit requests."""
    return ctx.session._connection.initialize_accepted  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public door


async def notify_within(ctx: Context, method: str, params: JsonObject) -> None:
    """Send a notification on the stream of one request, its params as they are; the SDK's own models would sieve them."""
    outbound = ctx.session._request_outbound  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public door
    await outbound.notify(method, params)


async def ask_client(ctx: Context, transport: SessionTransport, method: str, params: JsonObject) -> JsonObject:
    """Ask the client of a request: on the stream of that request, or on its GET stream where it reads that one alone.

    Its answer is a message of the same session, under an id that is the session's own. Cancelling takes the question back from
    the client. Raises MCPError: the client's own error, NoBackChannelError where it reads neither stream, and
    CONNECTION_CLOSED where the session has ended.
    """
    outbound: Outbound = ctx.session._request_outbound  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public door
    if not await transport.is_read(ctx):
        if not transport.pushing.is_open:
            raise NoBackChannelError(method)
        outbound = ctx.session._connection.outbound  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public door
    return await outbound.send_raw_request(method, params)


def declared_capabilities(ctx: Context) -> JsonObject | None:
    """What the client has declared, with this request or when its session was opened; None where it has declared nothing."""
    declared = ctx.session.client_capabilities
    return declared.model_dump(by_alias=True, mode="json", exclude_none=True) if declared is not None else None


async def serve_modern(server: Server[Any], scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of 2026-07-28; the client's going away cancels it.

    What the SDK cannot write, for its depth, is answered with an error of its own. The web server cancels this task when
    the gateway closes: the client is then told what became of its request, which is why the cancellation ends here.
    """
    if MESSAGE_SCOPE in scope and (fault := message_fault(scope[MESSAGE_SCOPE])):
        await refuse(send, 400, fault)
        return
    answer = Answer(send)
    try:
        await handle_modern_request(server, None, False, {}, scope, receive, answer)
    except asyncio.CancelledError:
        if request_id(scope) is None or answer.is_over:
            raise
        with anyio.move_on_after(CUT_WRITE_SECONDS):
            await answer.end(ended(request_id(scope), GATEWAY_CLOSED))
    except Exception:
        if answer.is_begun:
            raise  # the connection is cut, which is all that can still be said
        _log.exception("a request of 2026-07-28 could not be answered")
        await refuse(send, 500, "the answer cannot be written", code=INTERNAL_ERROR, id=request_id(scope))


def settled_by(connection: Connection) -> JsonObject | None:
    """What the handshake of a session has settled, as far as it is ever asked for again; None where it was not accepted."""
    said = connection.client_params
    if said is None:
        return None
    return {
        "protocolVersion": connection.protocol_version,
        "capabilities": said.capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
        "clientInfo": {"name": said.client_info.name[:NAME_LENGTH], "version": said.client_info.version[:NAME_LENGTH]},
    }


def read_settled(settled: JsonObject) -> InitializeRequestParams | None:
    """What `settled_by` has written down; None where it is no good any more, and the client has to initialise anew."""
    try:
        said = InitializeRequestParams.model_validate(settled, by_name=False)
    except ValidationError:
        return None
    return said if said.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else None


async def serve_session(
    server: Server[Any],
    transport: SessionTransport,
    settled: InitializeRequestParams | None = None,
    *,
    task_status: anyio.abc.TaskStatus[Connection] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve one session of the handshake era until it is terminated or idle for too long.

    With `settled` it begins after a handshake of an earlier run: no `initialize` comes in it.
    """
    async with transport.connect() as (read_stream, write_stream):
        # `initialize` is answered before the next message is read: a client may send both at once.
        dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
            read_stream, write_stream, inline_methods=frozenset({"initialize"})
        )
        connection = Connection.for_loop(dispatcher, session_id=transport.mcp_session_id)
        if settled is not None:
            connection.client_params, connection.protocol_version = settled, settled.protocol_version
            connection.initialized.set()
        task_status.started(connection)
        with transport.idle_scope or anyio.CancelScope():
            await serve_connection(server, dispatcher, connection=connection, lifespan_state={})

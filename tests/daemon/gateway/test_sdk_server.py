"""The contract with the parts of the SDK's server that are provisional or private: an update that moves one fails here."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.server import _streamable_http_modern
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, serve_connection
from mcp.server.session import ServerSession
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse
from mcp_types.jsonrpc import ErrorData

from mcpvisor.daemon.gateway.frames import frame
from mcpvisor.daemon.gateway.sdk_server import NAME_LENGTH, read_settled, settled_by
from mcpvisor.daemon.gateway.session_transport import SessionTransport

TRANSPORT = StreamableHTTPServerTransport

READ: dict[Callable[..., Any], str] = {
    TRANSPORT._handle_post_request: "cc4f2cd0c9e3",
    TRANSPORT._handle_get_request: "4169e339c24c",
    TRANSPORT._create_session_message: "788a792e7b64",
    TRANSPORT._clean_up_memory_streams: "207f00589a74",
    TRANSPORT.connect: "fbb24a6b38c3",
    TRANSPORT.terminate: "48b6cabe652e",
    TRANSPORT.handle_request: "6f39c89f48de",
    _streamable_http_modern.handle_modern_request: "cde3cb6094dd",
    serve_connection: "728a05dc853c",
    ServerRunner._on_request: "cb7dea37a3cb",
    ServerRunner._on_notify: "68a1b4179ebd",
    ServerRunner._negotiate_initialize: "1890b616f10a",
    Connection.for_loop: "09aab919278b",
    ServerSession.__init__: "6d8e4a7dae65",
    JSONRPCDispatcher.send_raw_request: "7ef07ab6bc42",
    JSONRPCDispatcher._resolve_pending: "44a56961877f",
}
"""What `sdk_server` and `session_transport` override or lean on, by a digest of the text that was read when it was written."""


@pytest.mark.parametrize("part", list(READ), ids=lambda part: part.__qualname__)
def test_what_was_read_is_what_is_there(part: Callable[..., Any]):
    """Each part reads as it did; where not, read it again, see whether those two still hold, and renew the digest."""
    assert hashlib.sha256(inspect.getsource(part).encode()).hexdigest()[:12] == READ[part]


def test_a_transport_has_what_is_touched():
    """The private names that are touched exist."""
    transport = SessionTransport("id", idle_timeout=1.0)

    assert transport._request_streams == {}
    assert transport._read_stream_writer is None
    assert transport.idle_scope is None
    assert GET_STREAM_KEY == "_GET_stream"


def connection() -> Connection:
    read, write = anyio.create_memory_object_stream[Any](0)
    dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(write, read)
    read.close()
    write.close()
    return Connection.for_loop(dispatcher, session_id="id")


def test_what_a_handshake_has_settled():
    """What is written down of a handshake puts another connection where the first one was, the client's name cut to size."""
    said = {
        "protocolVersion": "2099-01-01",
        "capabilities": {"roots": {"listChanged": True}, "elicitation": {}},
        "clientInfo": {"name": "n" * 1000, "version": "1", "icons": [{"src": "data:," + "x" * 1000}]},
    }
    first, second = connection(), connection()
    before = settled_by(first)
    first.client_params, first.protocol_version = ServerRunner._negotiate_initialize(said)
    settled = settled_by(first)
    assert settled is not None
    second.client_params = read_settled(settled)

    assert before is None
    assert settled == {
        "protocolVersion": first.protocol_version,
        "capabilities": said["capabilities"],
        "clientInfo": {"name": "n" * NAME_LENGTH, "version": "1"},
    }
    assert second.client_capabilities == first.client_capabilities
    assert second.initialize_accepted


@pytest.mark.parametrize("spoiled", [{"protocolVersion": "2026-07-28"}, {"protocolVersion": None}, {"capabilities": []}])
def test_what_is_no_good_any_more(spoiled: dict[str, Any]):
    """What is not what a handshake settles, or settles another era, is not gone on with."""
    good = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}}

    assert read_settled(good) is not None
    assert read_settled({**good, **spoiled}) is None


def test_frames():
    """Every kind of message is written with its raw values; an answer that JSON cannot carry becomes an error."""
    assert frame(JSONRPCResponse(jsonrpc="2.0", id="x", result={"a": None})) == (
        b'{"jsonrpc":"2.0","id":"x","result":{"a":null}}'
    )
    assert frame(JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=1, message="m", data=[None]))) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m","data":[null]}}'
    )
    assert frame(JSONRPCNotification(jsonrpc="2.0", method="n", params={"b": None})) == (
        b'{"jsonrpc":"2.0","method":"n","params":{"b":null}}'
    )
    assert b'"code":-32603' in frame(JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": "\ud800"}))

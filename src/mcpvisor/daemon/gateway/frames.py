"""Owns how a message is written: as JSON or as an event, with the raw values in it untouched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from mcpvisor.supervisor.transports.codec import encode

JsonObject = dict[str, Any]

CONNECTION_CLOSED: Final = -32000
INTERNAL_ERROR: Final = -32603

PING: Final = b": ping\r\n\r\n"
"""A comment, which keeps a silent event stream alive through proxies."""


def frame(message: JSONRPCMessage) -> bytes:
    """A message as JSON, the raw values in it untouched; an answer that JSON cannot carry becomes an error."""
    try:
        return encode(_plain(message))
    except ValueError as error:
        if not isinstance(message, JSONRPCResponse):
            raise
        return encode({"jsonrpc": "2.0", "id": message.id, "error": {"code": INTERNAL_ERROR, "message": f"the result {error}"}})


def _plain(message: JSONRPCMessage) -> Mapping[str, Any]:
    if isinstance(message, JSONRPCResponse):
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    if isinstance(message, JSONRPCError):
        error: JsonObject = {"code": message.error.code, "message": message.error.message}
        if message.error.data is not None:
            error["data"] = message.error.data
        return {"jsonrpc": "2.0", "id": message.id, "error": error}
    return message.model_dump(by_alias=True, exclude_unset=True)


def event(message: JSONRPCMessage) -> bytes:
    """A message as one event of a stream."""
    return b"event: message\r\ndata: " + frame(message) + b"\r\n\r\n"


def is_answer(message: JSONRPCMessage) -> bool:
    """Whether a message is the last one of its request."""
    return isinstance(message, JSONRPCResponse | JSONRPCError)


def ended(message: JSONRPCRequest) -> JsonObject:
    """The answer to a request whose session ended before there was another."""
    return {
        "jsonrpc": "2.0",
        "id": message.id,
        "error": {"code": CONNECTION_CLOSED, "message": "the session was ended before this request was answered"},
    }

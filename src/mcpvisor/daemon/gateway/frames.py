"""Owns how a message is written: as JSON or as an event, with the raw values in it untouched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCResponse

from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.transports.codec import encode

JsonObject = dict[str, Any]

CONNECTION_CLOSED: Final = -32000
INTERNAL_ERROR: Final = -32603

GATEWAY_CLOSED: Final = "gateway_closed"
SESSION_ENDED: Final = "session_ended"
SERVER_REMOVED: Final = "server_removed"
ANSWER_FORGOTTEN: Final = "answer_forgotten"

_ENDED: Final = {
    GATEWAY_CLOSED: "the gateway was closed",
    SESSION_ENDED: "the session was ended",
    SERVER_REMOVED: "the server was removed",
}

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


def ended(request_id: Any, cause: str) -> JSONRPCError:
    """The answer to a request that was ended here before there was another; its server may have done it all the same."""
    data = {"mcpvisor": {"outcome": Outcome.MAYBE_EXECUTED.value, "cause": cause}}
    text = f"{_ENDED[cause]} before this request was answered; it may have been carried out"
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=CONNECTION_CLOSED, message=text, data=data))


def forgotten(request_id: Any) -> JSONRPCError:
    """The answer to a request whose own is not kept, or never was: its client comes back for it."""
    data = {"mcpvisor": {"outcome": Outcome.MAYBE_EXECUTED.value, "cause": ANSWER_FORGOTTEN}}
    text = "the answer to this request is not kept; it may have been carried out"
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=CONNECTION_CLOSED, message=text, data=data))

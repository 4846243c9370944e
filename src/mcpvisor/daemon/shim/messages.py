"""Owns what a line of JSON-RPC is, of the client and of the gateway, and the lines that the shim writes itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import msgspec

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.codec import Unreadable, decode, encode
from mcpvisor.supervisor.transports.lines import Overlong

JsonObject = dict[str, Any]
RequestId = str | int | float

MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes of one line of the client: as many as the gateway takes as a body."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
CONNECTION_CLOSED: Final = -32000

_PLAIN_MEMBER: Final = rb'(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,200}"\s*,)*'
_ID_MEMBER: Final = rb'\s*"id"\s*:\s*("[^"\\]{0,200}"|-?\d{1,18})\s*'
_ID_FIRST: Final = re.compile(rb"\s*\{" + _PLAIN_MEMBER + _ID_MEMBER + rb"[,}]")
_ID_LAST: Final = re.compile(rb"," + _ID_MEMBER + rb'(?:,\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,200}"\s*)*\}\s*$')


@dataclass(frozen=True, slots=True)
class Request:
    """A request of the client, and the line it came in."""

    id: RequestId
    method: str
    params: JsonObject
    line: bytes

    @property
    def key(self) -> tuple[bool, RequestId]:
        """What it is known by while it is in flight: to JSON-RPC `1` and `"1"` are two ids."""
        return isinstance(self.id, str), self.id


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification of the client."""

    method: str
    params: JsonObject
    line: bytes

    @property
    def cancels(self) -> tuple[bool, RequestId] | None:
        """The key of the request that is withdrawn; None where it is another notification."""
        found = self.params.get("requestId") if self.method == "notifications/cancelled" else None
        return (isinstance(found, str), found) if is_id(found) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The client's answer to a request of a server."""

    line: bytes


class NotTaken(Exception):
    """A line that is not passed on; `line` is what the client is told."""

    def __init__(self, code: int, text: str, request_id: Any = None) -> None:
        super().__init__(text)
        self.line = encode(
            {
                "jsonrpc": "2.0",
                "id": request_id,
                "error": {"code": code, "message": text, "data": _data(None, Outcome.REJECTED, "invalid")},
            }
        )


def read_line(line: bytes | Overlong) -> Request | Notification | Answer:
    """What the client says in a line. Raises NotTaken."""
    if isinstance(line, Overlong):
        raise NotTaken(INVALID_REQUEST, f"a message of {line.size} bytes is over the limit of {MAX_LINE}", _id_in(line.ends))
    try:
        message = decode(line, max_bytes=MAX_LINE)
    except Unreadable as error:
        raise NotTaken(PARSE_ERROR, f"a line was not understood: {error}") from error
    if not isinstance(message, dict):
        raise NotTaken(INVALID_REQUEST, "a line must hold one JSON-RPC message, which is an object")
    method, params = message.get("method"), message.get("params", {})
    if method is None and ("result" in message or "error" in message):
        return Answer(line)
    if not isinstance(method, str) or not isinstance(params, dict):
        raise NotTaken(INVALID_REQUEST, "a message needs a method, and params that are an object", _known_id(message.get("id")))
    if "id" not in message:
        return Notification(method, params, line)
    if not is_id(message["id"]):
        raise NotTaken(INVALID_REQUEST, "the id of a request must be a text or a number")
    return Request(message["id"], method, params, line)


def is_id(value: Any) -> TypeGuard[RequestId]:
    """Whether a value can be the id of a request."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _known_id(value: Any) -> Any:
    return value if is_id(value) else None


def _id_in(ends: bytes) -> Any:
    """The id of a request that was not read whole; None where it is not certain."""
    if b'"method"' not in ends:
        return None  # the answer to a server's request, whose id is none of the client's
    found = _ID_FIRST.match(ends) or _ID_LAST.search(ends)
    return decode(found[1], max_bytes=len(ends)) if found is not None else None


# What the gateway says


class Outline(msgspec.Struct):
    """What of a message says which way it goes; all else is passed on unread."""

    id: str | int | float | None = None
    method: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request of the client."""
        return self.method is None


_outline = msgspec.json.Decoder(Outline).decode
_decode = msgspec.json.Decoder().decode


def outline(data: bytes) -> Outline | None:
    """The outline of a message of the gateway; None where it is no message."""
    try:
        return _outline(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def value_of(data: bytes) -> Any:
    """A message of the gateway, whole; None where it is no JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def as_line(data: bytes) -> bytes:
    """A message as one line: in JSON a line break stands between values only, never within one."""
    return data.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


# What the shim says itself


def failure_line(request: Request, server: str | None, failure: RequestFailed) -> bytes:
    """The error that answers a request, with what became of it, in the gateway's own shape."""
    error: JsonObject = {"code": failure.code, "message": failure.message}
    error["data"] = _data(server, failure.outcome, failure.cause, failure.retry_after_s)
    return encode({"jsonrpc": "2.0", "id": request.id, "error": error}) + b"\n"


def error_line(request: Request, error: Mapping[str, Any]) -> bytes:
    """An error of the gateway that named no request, as the answer to the one that met it."""
    return encode({"jsonrpc": "2.0", "id": request.id, "error": error}) + b"\n"


def _data(server: str | None, outcome: Outcome, cause: str, retry_after_s: float | None = None) -> JsonObject:
    ours: JsonObject = {"server": server, "outcome": outcome.value, "cause": cause}
    if retry_after_s is not None:
        ours["retry_after_s"] = retry_after_s
    return {"mcpvisor": ours}

"""Owns the reading of what a client of the control API sends: capped, timed, JSON, and nothing a browser could forge."""

from __future__ import annotations

from typing import Any, Final

import anyio
from starlette.datastructures import QueryParams
from starlette.requests import Request

from mcpvisor.daemon.control.answers import ApiError
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.transports.codec import Unreadable, decode

MAX_BODY: Final = 32 * 1024 * 1024
BODY_SECONDS: Final = 30.0
_TRUE: Final = frozenset({"1", "true", "yes"})
_FALSE: Final = frozenset({"", "0", "false", "no"})


def caller(request: Request) -> Principal:
    """Who asks, as the listener learned it from the kernel."""
    return Principal(request.client.host if request.client is not None else "unknown", is_operator=True)


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object in the body; an empty body is an empty object. Raises ApiError."""
    data = await _read_body(request)
    if not data:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise invalid("CONTENT_TYPE", f"the body must be sent as application/json, not as {kind or 'nothing'}")
    try:
        value = decode(data, max_bytes=MAX_BODY)
    except Unreadable as error:
        raise invalid("BODY", f"the body cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise invalid("BODY", "the body must be a JSON object")
    return value


async def _read_body(request: Request) -> bytes:
    data = bytearray()
    try:
        with anyio.fail_after(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY:
                    raise invalid("BODY", f"the body is over {MAX_BODY} bytes")
    except TimeoutError:
        raise invalid("BODY", f"the body was not complete within {BODY_SECONDS:.0f} s") from None
    return bytes(data)


def invalid(reason: str, message: str) -> ApiError:
    """A request that cannot be meant as it stands."""
    return ApiError("INVALID_ARGUMENT", reason, message)


def text_of(body: dict[str, Any], key: str) -> str:
    """A required text of the body. Raises ApiError."""
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise invalid("FIELD", f"{key!r} must be a text")
    return value


def flag_of(body: dict[str, Any], key: str) -> bool:
    """A flag of the body, false where it is missing. Raises ApiError."""
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise invalid("FIELD", f"{key!r} must be true or false")
    return value


def seconds_of(body: dict[str, Any], key: str) -> float | None:
    """A positive number of seconds in the body, None where it is missing. Raises ApiError."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise invalid("FIELD", f"{key!r} must be a positive number of seconds")
    return float(value)


def number_asked(query: QueryParams, key: str, default: int, most: int) -> int:
    """A count of the query, at most `most`. Raises ApiError."""
    text = query.get(key, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise invalid("QUERY", f"?{key}= must be a whole number, not {text!r}")
    return min(int(text), most)


def flag_asked(query: QueryParams, key: str) -> bool:
    """A flag of the query, false where it is missing. Raises ApiError."""
    text = query.get(key, "").lower()
    if text not in _TRUE | _FALSE:
        raise invalid("QUERY", f"?{key}= must be true or false, not {text!r}")
    return text in _TRUE

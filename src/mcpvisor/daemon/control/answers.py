"""Owns how the control API answers: JSON, event streams, and errors as AIP-193 describes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcpvisor.supervisor.cleaning import escape_json
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.codec import encode

Emit = Callable[[str, Any], Awaitable[None]]
"""Writes one event, by name and value."""

Producer = Callable[[Emit], Awaitable[None]]
"""Writes the events of one stream, and returns at its end."""

KEEPALIVE_SECONDS: Final = 15.0
"""A stream that has nothing to say says so this often, so that its reader can tell silence from death."""

_HTTP_CODES: Final = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}

_STATUS_OF_OUTCOME: Final = {
    Outcome.NOT_SENT: "UNAVAILABLE",
    Outcome.MAYBE_EXECUTED: "UNKNOWN",
    Outcome.PEER_ERROR: "UNKNOWN",
    Outcome.TIMEOUT: "DEADLINE_EXCEEDED",
    Outcome.CANCELLED: "CANCELLED",
    Outcome.REJECTED: "FAILED_PRECONDITION",
}

_STATUS_OF_HTTP: Final = {
    HTTPStatus.NOT_FOUND: "NOT_FOUND",
    HTTPStatus.METHOD_NOT_ALLOWED: "INVALID_ARGUMENT",
    HTTPStatus.FORBIDDEN: "PERMISSION_DENIED",
    HTTPStatus.TOO_MANY_REQUESTS: "RESOURCE_EXHAUSTED",
    HTTPStatus.SERVICE_UNAVAILABLE: "UNAVAILABLE",
}


class ApiError(Exception):
    """A refusal of the control API. `status` is a word of google.rpc.Code, `reason` one in UPPER_SNAKE_CASE."""

    def __init__(self, status: str, reason: str, message: str, details: tuple[dict[str, Any], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details


def json_response(value: Any, code: int = 200) -> Response:
    """The value as one JSON text."""
    return Response(_written(value), code, media_type="application/json")


def error_body(error: ApiError, code: int | None = None) -> dict[str, Any]:
    """The AIP-193 object of an error."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.reason, "domain": "mcpvisor"}
    return {
        "error": {
            "code": code or _HTTP_CODES[error.status],
            "status": error.status,
            "message": error.message,
            "details": [info, *error.details],
        }
    }


def error_response(error: ApiError, code: int | None = None) -> Response:
    """An error as an answer; `code` where HTTP has a more exact one than the status."""
    body = error_body(error, code)
    return json_response(body, body["error"]["code"])


def http_error_response(code: int, message: str) -> Response:
    """An error that the router found before any route of ours was asked."""
    status = _STATUS_OF_HTTP.get(
        HTTPStatus(code), "INTERNAL" if code >= HTTPStatus.INTERNAL_SERVER_ERROR else "INVALID_ARGUMENT"
    )
    return error_response(ApiError(status, HTTPStatus(code).name, message), code)


def failure(server: str, failed: RequestFailed) -> ApiError:
    """A request to a server that got no result, with everything that is known of it."""
    detail: dict[str, Any] = {
        "@type": "mcpvisor/RequestFailed",
        "server": server,
        "outcome": failed.outcome.value,
        "cause": failed.cause,
        "error": {"code": failed.code, "message": failed.message, "data": failed.data},
    }
    if failed.retry_after_s is not None:
        detail["retry_after_s"] = failed.retry_after_s
    return ApiError(_STATUS_OF_OUTCOME[failed.outcome], failed.outcome.name, failed.message, (detail,))


def sse(event: str, value: Any) -> bytes:
    """One event of an event stream; JSON has no line ends, so one `data` line is enough."""
    return b"event: " + event.encode() + b"\ndata: " + _written(value) + b"\n\n"


def _written(value: Any) -> bytes:
    """As JSON that is safe to be looked at: what servers offer is passed on as it is, whatever characters are in it."""
    data = encode(value)
    return data if data.isascii() and b"\x7f" not in data else escape_json(data.decode()).encode()


class StreamResponse(Response):
    """An event stream that ends when its producer does, its reader leaves, or `closing` is set.

    The producer runs in the task that serves the request, so that whatever it holds is given back there.
    """

    media_type = "text/event-stream"

    def __init__(self, produce: Producer, closing: anyio.Event) -> None:
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._produce = produce
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 # ASGI's signature
        turn = anyio.Lock()

        async def write(chunk: bytes) -> None:
            async with turn:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})

        async def emit(event: str, value: Any) -> None:
            await write(sse(event, value))

        async def keep_alive() -> None:
            while True:
                await anyio.sleep(KEEPALIVE_SECONDS)
                await write(b": still here\n\n")

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_with, tasks.cancel_scope, receive)
            tasks.start_soon(keep_alive)
            tasks.start_soon(self._end_when_closing, tasks.cancel_scope)
            await self._produce(emit)
            tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @staticmethod
    async def _end_with(stream: anyio.CancelScope, receive: Receive) -> None:
        await until_disconnect(receive)
        stream.cancel()

    async def _end_when_closing(self, stream: anyio.CancelScope) -> None:
        await self._closing.wait()
        stream.cancel()


async def until_disconnect(receive: Receive) -> None:
    """Return once the client has gone; its body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass

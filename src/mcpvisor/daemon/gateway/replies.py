"""Owns the HTTP answers that the gateway gives in its own words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import Send

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


async def reply(send: Send, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
    """Send one JSON answer."""
    content = json.dumps(body, separators=(",", ":")).encode()
    fields = {"content-type": "application/json", "content-length": str(len(content)), **(headers or {})}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})


async def refuse(
    send: Send,
    status: int,
    message: str,
    *,
    code: int = INVALID_REQUEST,
    headers: Mapping[str, str] | None = None,
    id: Any = None,  # noqa: A002 - the member's name in JSON-RPC
) -> None:
    """Refuse a request with a JSON-RPC error; without an `id` it belongs to no request, as in the SDK's own transport."""
    await reply(send, status, {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}, headers)

"""Owns what Streamable HTTP wants said in headers: the session of the handshake era, and the mirrors of 2026-07-28."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

JsonObject = dict[str, Any]
ParamHeaders = Mapping[tuple[str, ...], str]
"""For each path of properties in a tool's arguments the name of the header that shows its value."""

VERSION_HEADER: Final = "mcp-protocol-version"
VERSION_META: Final = "io.modelcontextprotocol/protocolVersion"

BOTH: Final[Mapping[str, str]] = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")


def session_headers(session_id: str, version: str) -> dict[str, str]:
    """What a message of an open session carries."""
    return {"mcp-session-id": session_id, **({VERSION_HEADER: version} if version else {})}


def modern_headers(method: str, params: Mapping[str, Any], shown: ParamHeaders) -> dict[str, str]:
    """What a request of 2026-07-28 repeats of itself; what cannot be said in a header is left out, and refused over there."""
    headers = {"mcp-method": encoded(method)}
    meta = params.get("_meta")
    version = meta.get(VERSION_META) if isinstance(meta, Mapping) else None
    if isinstance(version, str):
        headers[VERSION_HEADER] = encoded(version)
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = encoded(name)
    if method == "tools/call":
        for path, token in shown.items():
            text = _scalar(_at(params.get("arguments"), path))
            if text is not None:
                headers[f"mcp-param-{token}"] = encoded(text)
    return headers


def encoded(value: str) -> str:
    """A value as a header can carry it: as it is, or in base64 between marks."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode('ascii')}?="


def param_headers(schema: Any) -> dict[tuple[str, ...], str]:
    """Which arguments a tool's schema wants shown: properties marked `x-mcp-header` that properties alone lead to."""
    return dict(_marked(schema, ()))


def _marked(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return
    for name, below in properties.items():
        token = below.get("x-mcp-header") if isinstance(below, Mapping) else None
        if isinstance(token, str) and _TOKEN.fullmatch(token):
            yield (*path, name), token
        yield from _marked(below, (*path, name))


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, Mapping) else None
    return arguments


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None

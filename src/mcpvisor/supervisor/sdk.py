"""The one place where the supervisor touches what the MCP SDK marks as provisional; a contract test fails when it moves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    X_MCP_HEADER_KEY,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from mcpvisor import __version__
from mcpvisor.supervisor.transports.codec import encode
from mcpvisor.supervisor.transports.wire import Wire

JsonObject = dict[str, Any]
CLIENT_INFO: Final = mcp_types.Implementation(name="mcpvisor", version=__version__)
MAX_WITH_HEADERS: Final = 1000
"""Objects in a schema that is searched for header declarations."""

_VERSION: Final = re.compile(r"\b20\d\d-\d\d-\d\d\b")
_INFO: Final[JsonObject] = CLIENT_INFO.model_dump(by_alias=True, exclude_none=True)


class HandshakeRefused(Exception):
    """The peer answered the handshake with something that cannot be worked with; the text is for people."""


class UnsupportedVersion(HandshakeRefused):
    """The peer named the protocol versions it speaks, and refused ours."""

    def __init__(self, supported: tuple[str, ...]) -> None:
        super().__init__(f"the server speaks {', '.join(supported) or 'no version it names'}")
        self.supported = supported


class ForeignVersion(HandshakeRefused):
    """The peer agreed to the handshake in a protocol version that is not spoken here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """What both sides agreed on."""

    modern: bool
    protocol_version: str
    capabilities: JsonObject = field(default_factory=dict[str, Any])
    server_info: JsonObject = field(default_factory=dict[str, Any])
    instructions: str = ""

    @property
    def era(self) -> str:
        return "modern" if self.modern else "legacy"


def session_on(wire: Wire) -> AbstractAsyncContextManager[ClientSession]:
    """The SDK's session over one of our wires; entering it starts the wire's receive loop."""
    return ClientSession(dispatcher=wire, client_info=CLIENT_INFO)


async def discover(session: ClientSession) -> Handshake:
    """Ask a server of the newer era what it is.

    Raises MCPError for an error answer, UnsupportedVersion when it speaks none of our modern versions, and
    HandshakeRefused for an answer that makes no sense.
    """
    try:
        raw = await session.send_discover(LATEST_MODERN_VERSION)
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        mutual = [version for version in MODERN_PROTOCOL_VERSIONS if version in supported_versions(error)]
        if not mutual:
            raise UnsupportedVersion(supported_versions(error)) from error
        raw = await session.send_discover(mutual[-1])
    try:
        result = mcp_types.DiscoverResult.model_validate(raw)
        session.adopt(result)
    except ValidationError as error:
        raise HandshakeRefused(f"the answer to server/discover is not valid: {_first(error)}") from error
    except RuntimeError as error:
        raise UnsupportedVersion(tuple(raw.get("supportedVersions") or ())) from error
    return _agreed(session, modern=True)


async def initialize(session: ClientSession, capabilities: JsonObject) -> Handshake:
    """Make the handshake of the older era, declaring `capabilities`.

    Raises MCPError for an error answer, and HandshakeRefused.
    """
    try:
        await _initialize_as(session, LATEST_HANDSHAKE_VERSION, capabilities)
    except ValidationError as error:
        raise HandshakeRefused(f"the answer to initialize is not valid: {_first(error)}") from error
    except MCPError as error:
        if error.code == UNSUPPORTED_PROTOCOL_VERSION:
            raise UnsupportedVersion(supported_versions(error)) from error
        offered = offered_version(error)
        if offered is None:
            raise
        await _initialize_as(session, offered, capabilities)
    return _agreed(session, modern=False)


async def _initialize_as(session: ClientSession, version: str, capabilities: JsonObject) -> None:
    """The handshake with a version and capabilities of our choice, which the SDK's own takes not. Raises as `initialize`."""
    params = mcp_types.InitializeRequestParams(
        protocol_version=version,
        capabilities=mcp_types.ClientCapabilities.model_validate(capabilities),
        client_info=CLIENT_INFO,
    )
    result = await session.send_request(mcp_types.InitializeRequest(params=params), mcp_types.InitializeResult)
    if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        known = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
        raise ForeignVersion(f"the server was offered {version} and answers {result.protocol_version}; known are {known}")
    session.adopt(result)
    await session.send_notification(mcp_types.InitializedNotification())


def offered_version(error: MCPError) -> str | None:
    """The newest older version that a refusal of `initialize` names, in its data or in its words; None where it names none.

    Servers that do not negotiate refuse the version instead, each in a way of its own.
    """
    named = {*supported_versions(error), *_VERSION.findall(error.message)}
    return max((version for version in HANDSHAKE_PROTOCOL_VERSIONS[:-1] if version in named), default=None)


def supported_versions(error: MCPError) -> tuple[str, ...]:
    """The versions that an error of the kind "unsupported protocol version" names."""
    data = error.data
    named = data.get("supported") if isinstance(data, dict) else None
    return tuple(str(version) for version in named) if isinstance(named, list) else ()


def _agreed(session: ClientSession, *, modern: bool) -> Handshake:
    info, capabilities = session.server_info, session.server_capabilities
    return Handshake(
        modern=modern,
        protocol_version=session.protocol_version or "",
        capabilities=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if capabilities else {},
        server_info=info.model_dump(by_alias=True, mode="json", exclude_none=True) if info else {},
        instructions=session.instructions or "",
    )


def _first(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"


def stamp(
    method: str,
    params: JsonObject | None,
    *,
    handshake: Handshake,
    client_capabilities: JsonObject,
    log_level: str | None = None,
) -> tuple[JsonObject | None, dict[str, str]]:
    """The params and the HTTP headers of a request as the agreed era wants them; `params` is not changed.

    The newer era has no session: every request carries version, client, capabilities and, where log messages are wanted, their
    level, and mirrors method and name in its headers (revision 2026-07-28, "HTTP headers").
    """
    if not handshake.modern:
        return params, {}
    given = params or {}
    meta = given.get("_meta")
    stamped: JsonObject = {
        **given,
        "_meta": {
            **(meta if isinstance(meta, dict) else {}),
            PROTOCOL_VERSION_META_KEY: handshake.protocol_version,
            CLIENT_INFO_META_KEY: _INFO,
            CLIENT_CAPABILITIES_META_KEY: client_capabilities,
            **({LOG_LEVEL_META_KEY: log_level} if log_level is not None else {}),
        },
    }
    headers = {MCP_PROTOCOL_VERSION_HEADER: handshake.protocol_version, MCP_METHOD_HEADER: method}
    name = given.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(name, str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    return stamped, headers


def argument_headers(input_schema: Any, arguments: Any) -> dict[str, str]:
    """The `Mcp-Param-*` headers that a tool's schema asks for."""
    if not isinstance(input_schema, dict) or not isinstance(arguments, Mapping):
        return {}
    return mcp_param_headers(x_mcp_header_map(input_schema), arguments)


def header_fault(input_schema: Any) -> str | None:
    """Why a tool must be rejected for its `x-mcp-header` declarations; None when there is nothing against it."""
    text = encode(input_schema)
    if X_MCP_HEADER_KEY.encode() not in text:
        return None
    if text.count(b"{") > MAX_WITH_HEADERS:  # they are looked for in one go
        return f"{X_MCP_HEADER_KEY} in a schema of more than {MAX_WITH_HEADERS} objects"
    return find_invalid_x_mcp_header(input_schema)

"""Owns one MCP endpoint, `/mcp` or `/mcp/{name}`: its server, its view of the catalog, and its streams of notifications."""

from __future__ import annotations

from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import Receive, Scope, Send

from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.lists import Lists
from mcpvisor.daemon.gateway.observer import GatewayObserver
from mcpvisor.daemon.gateway.questions.passage import Passage
from mcpvisor.daemon.gateway.relay import Relay
from mcpvisor.daemon.gateway.sdk_server import Context, serve_modern
from mcpvisor.daemon.gateway.streams import Streams
from mcpvisor.daemon.gateway.watch_requests import WatchRequests
from mcpvisor.daemon.gateway.watching import Watching
from mcpvisor.supervisor.errors import UnknownServer
from mcpvisor.supervisor.events import CatalogKind

SERVER_NAME: Final = "mcpvisor"

INSTRUCTIONS_OF_ONE: Final = 2_000
"""Characters of one server's instructions that are passed on beside others'."""
INSTRUCTIONS_OF_ALL: Final = 16_000

CHANGES: Final[dict[CatalogKind, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "resource_templates": "notifications/resources/list_changed",
}
"""How clients of either era are told that a kind differs; the protocol has one notice for resources and templates."""

_CAPABILITIES: Final = types.ServerCapabilities(
    tools=types.ToolsCapability(list_changed=True),
    prompts=types.PromptsCapability(list_changed=True),
    resources=types.ResourcesCapability(subscribe=True, list_changed=True),
    completions=types.CompletionsCapability(),
    logging=types.LoggingCapability(),
)
"""The same whatever is connected: servers come and go, a client negotiates once."""


class Endpoint(Server[Any]):
    """The SDK's server of one view; every request of interest is answered by its relay."""

    def __init__(  # what an endpoint shares with the others is its arguments
        self,
        view: View,
        *,
        version: str,
        doors: ServerDoors,
        catalogs: Catalogs,
        passage: Passage,
        observer: GatewayObserver,
        first_list_wait: float,
        watching: Watching,
        streams: Streams,
    ) -> None:
        super().__init__(SERVER_NAME, version=version, get_tool_input_schema=self._input_schema)
        self.view = view
        self._doors = doors
        self._catalogs = catalogs
        lists = Lists(doors, catalogs, view, first_list_wait)
        watches = WatchRequests(view, lists, watching, streams)
        self.middleware = [Relay(doors, catalogs, view, lists, passage, observer, watches)]
        self.add_request_handler("server/discover", types.RequestParams, self._discover)

    async def serve_modern(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of 2026-07-28."""
        await serve_modern(self, scope, receive, send)

    @property
    def is_gone(self) -> bool:
        """Whether it is the endpoint of a server that is not configured any more."""
        return self.view is not None and self.view not in self._doors.names()

    def get_capabilities(self, *_: object, **__: object) -> types.ServerCapabilities:
        """What the gateway offers; the SDK would derive it from handlers, of which there are none."""
        return _CAPABILITIES

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """What `initialize` answers, with the instructions of the servers as they are now."""
        options = super().create_initialization_options(notification_options, experimental_capabilities, extensions)
        return options.model_copy(update={"instructions": self._instructions()})

    async def _discover(self, _: Context, __: types.RequestParams) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=_CAPABILITIES,
            instructions=self._instructions(),
        )

    def _input_schema(self, name: str) -> Any | None:
        listed = self._catalogs.current(self.view).tools.get(name)
        return listed.entry.get("inputSchema") if listed is not None else None

    def _instructions(self) -> str | None:
        """Each server's instructions under its name, cut: a server's text is advice, and must not crowd out others'."""
        if self.view is not None:
            return self._instructions_of(self.view)[:INSTRUCTIONS_OF_ALL] or None
        parts: list[str] = []
        room = INSTRUCTIONS_OF_ALL
        for name in self._doors.names():
            text = self._instructions_of(name)
            if not text:
                continue
            # Indented, so that no line of a server's text can pass for the heading of another server.
            body = "\n".join(f"    {line}" for line in text[:INSTRUCTIONS_OF_ONE].splitlines())
            part = f"# {name}\n\n{body[:INSTRUCTIONS_OF_ONE]}"
            room -= len(part)
            if room < 0:
                break
            parts.append(part)
        return "\n\n".join(parts) or None

    def _instructions_of(self, name: str) -> str:
        try:
            return self._doors.connection(name).offer.instructions.strip()
        except UnknownServer:
            return ""

"""Owns how clients of one endpoint ask to be told of resources: by session, or by a `subscriptions/listen` stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp.shared.exceptions import MCPError

from mcpvisor.daemon.gateway.caller import Caller
from mcpvisor.daemon.gateway.catalogs import View
from mcpvisor.daemon.gateway.crossing import failure_data, unknown_resource, uri_too_long
from mcpvisor.daemon.gateway.lists import Lists
from mcpvisor.daemon.gateway.sdk_server import Context
from mcpvisor.daemon.gateway.streams import RESOURCES_KEY, Streams
from mcpvisor.daemon.gateway.templates import MAX_URI
from mcpvisor.daemon.gateway.watching import Watching

JsonObject = dict[str, Any]


class WatchRequests:
    """The requests of either era; each raises RequestFailed, or MCPError where a server is to be named."""

    def __init__(self, view: View, lists: Lists, watching: Watching, streams: Streams) -> None:
        self._view = view
        self._finding = watching.finding
        self._lists = lists
        self._watching = watching
        self._streams = streams

    async def subscribe(self, caller: Caller, uri: str) -> JsonObject:
        """`resources/subscribe`: answered once the server has agreed, or is away; what a server refuses is refused."""
        session = caller.session
        assert session is not None  # the era without sessions has no such method: validation has refused it
        if len(uri) > MAX_URI:
            raise uri_too_long()
        server = (await self._owners(caller, [uri])).get(uri)
        if uri not in session.watcher.uris and server is None:
            raise unknown_resource(uri, modern=False)
        if server is not None:
            failure = (await self._watching.watch(session.watcher, {uri: server})).get(uri)
            if failure is not None:
                raise MCPError(failure.code, failure.message, failure_data(server, failure)) from failure
        return {}

    def unsubscribe(self, caller: Caller, uri: str) -> JsonObject:
        """`resources/unsubscribe`: of what is not watched as well, since that is what the client wants."""
        assert caller.session is not None  # see above
        self._watching.unwatch(caller.session.watcher, uri)
        return {}

    async def listen(self, ctx: Context, caller: Caller, wish: Mapping[str, Any]) -> JsonObject:
        """`subscriptions/listen`: what is not honoured is left out of the acknowledgement."""
        asked = dict.fromkeys(uri for uri in wish.get(RESOURCES_KEY) or [] if len(uri) <= MAX_URI)
        self._watching.admit(len(asked))  # before they are looked for: that is what so many would cost
        async with self._streams.opened(ctx, self._view, caller, wish) as stream:
            owned = await self._owners(caller, list(asked))
            watcher = self._watching.open("stream", caller.principal, self._view, stream)
            try:
                failures = await self._watching.watch(watcher, owned)
                honoured = [uri for uri in owned if uri not in failures]
                if honoured:
                    stream.granted[RESOURCES_KEY] = honoured
                return await stream.serve()
            finally:
                self._watching.close(watcher)

    async def _owners(self, caller: Caller, uris: Sequence[str]) -> dict[str, str]:
        """The URIs that are owned, each with its server; as for a first list, servers that are starting are waited for."""
        owners = await self._finding.of(self._view, uris)
        if len(owners) < len(uris):
            await self._lists.wait_for_servers(caller)
            owners = await self._finding.of(self._view, uris)
        return owners

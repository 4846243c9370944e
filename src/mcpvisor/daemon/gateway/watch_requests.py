"""Owns how clients of one endpoint ask to be told of resources: by session, or by a `subscriptions/listen` stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcpvisor.daemon.gateway.caller import Caller
from mcpvisor.daemon.gateway.catalogs import Catalogs, View
from mcpvisor.daemon.gateway.crossing import unknown_resource, uri_too_long
from mcpvisor.daemon.gateway.sdk_server import Context
from mcpvisor.daemon.gateway.streams import RESOURCES_KEY, Streams
from mcpvisor.daemon.gateway.templates import MAX_URI
from mcpvisor.daemon.gateway.watching import Watching

JsonObject = dict[str, Any]


class WatchRequests:
    """The requests of either era; each raises RequestFailed."""

    def __init__(self, view: View, catalogs: Catalogs, watching: Watching, streams: Streams) -> None:
        self._view = view
        self._catalogs = catalogs
        self._watching = watching
        self._streams = streams

    async def subscribe(self, caller: Caller, uri: str) -> JsonObject:
        """`resources/subscribe`: answered once the server has agreed, or is away; what a server refuses is refused."""
        session = caller.session
        assert session is not None  # the era without sessions has no such method: validation has refused it
        if len(uri) > MAX_URI:
            raise uri_too_long()
        server = self._catalogs.owner_of(self._view, uri)
        if uri not in session.watcher.uris and server is None:
            raise unknown_resource(uri, modern=False)
        if server is not None:
            failures = await self._watching.watch(session.watcher, {uri: server})
            if uri in failures:
                raise failures[uri]
        return {}

    def unsubscribe(self, caller: Caller, uri: str) -> JsonObject:
        """`resources/unsubscribe`: of what is not watched as well, since that is what the client wants."""
        assert caller.session is not None  # see above
        self._watching.unwatch(caller.session.watcher, uri)
        return {}

    async def listen(self, ctx: Context, caller: Caller, wish: Mapping[str, Any]) -> JsonObject:
        """`subscriptions/listen`: what is not honoured is left out of the acknowledgement."""
        asked: list[str] = wish.get(RESOURCES_KEY) or []
        owners = {uri: self._catalogs.owner_of(self._view, uri) for uri in asked if len(uri) <= MAX_URI}
        owned = {uri: server for uri, server in owners.items() if server is not None}
        async with self._streams.opened(ctx, self._view, caller, wish) as stream:
            watcher = self._watching.open("stream", caller.principal, self._view, stream)
            try:
                failures = await self._watching.watch(watcher, owned)
                honoured = [uri for uri in owned if uri not in failures]
                if honoured:
                    stream.granted[RESOURCES_KEY] = honoured
                return await stream.serve()
            finally:
                self._watching.close(watcher)

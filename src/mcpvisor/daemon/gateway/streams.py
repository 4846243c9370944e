"""Owns the open `subscriptions/listen` streams of all endpoints: what each was granted, and what it is still to be told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from mcpvisor.daemon.gateway.caller import Caller
from mcpvisor.daemon.gateway.catalogs import View
from mcpvisor.daemon.gateway.crossing import rejected
from mcpvisor.daemon.gateway.event_stream import WRITE_SECONDS
from mcpvisor.daemon.gateway.observer import GatewayObserver
from mcpvisor.daemon.gateway.outbox import UPDATED
from mcpvisor.daemon.gateway.sdk_server import Context, notify_within
from mcpvisor.daemon.gateway.settings import GatewayLimits

JsonObject = dict[str, Any]

SUBSCRIPTION_META: Final = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
RESOURCES_KEY: Final = "resourceSubscriptions"

FLAGS: Final[Mapping[str, str]] = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
"""By which key of its wish a client asks for each notice."""

_REFUSED_CODE: Final = -32603


class Stream:
    """One stream: each thing that is to be told waits once, however often it happened, so that a slow client costs little."""

    def __init__(self, ctx: Context, view: View, wish: Mapping[str, Any]) -> None:
        self.view = view
        self.granted: JsonObject = {key: True for key in FLAGS.values() if wish.get(key) is True}
        """What the acknowledgement names."""
        self._ctx = ctx
        self._meta: JsonObject = {SUBSCRIPTION_META: ctx.request_id}
        self._due: dict[tuple[str, str | None], None] = {}
        self._filled = anyio.Event()
        self._is_ended = False

    def changed(self, method: str) -> None:
        """A list is another one."""
        if FLAGS[method] in self.granted:
            self._put(method, None)

    def updated(self, uri: str) -> None:
        """See `Sink`."""
        self._put(UPDATED, uri)

    def unwatched(self, uri: str) -> None:
        """See `Sink`."""
        self._due.pop((UPDATED, uri), None)

    def end(self) -> None:
        """End it in good order, once what waits is sent."""
        self._is_ended = True
        self._filled.set()

    async def serve(self) -> JsonObject:
        """Acknowledge, and tell what happens until the stream is ended; the result of the request.

        One that its client leaves unread for too long is ended, and asked for anew by whoever is still there.
        """
        is_read = await self._send(ACKNOWLEDGED, {"notifications": self.granted})
        while is_read and (self._due or not self._is_ended):
            if self._due:
                method, uri = next(iter(self._due))
                del self._due[method, uri]
                is_read = await self._send(method, {} if uri is None else {"uri": uri})
            else:
                self._filled = anyio.Event()
                await self._filled.wait()
        return {"resultType": "complete", "_meta": self._meta}

    async def _send(self, method: str, params: JsonObject) -> bool:
        with anyio.move_on_after(WRITE_SECONDS):
            await notify_within(self._ctx, method, {**params, "_meta": self._meta})
            return True
        return False

    def _put(self, method: str, uri: str | None) -> None:
        self._due[method, uri] = None
        self._filled.set()


class Streams:
    """All streams, and whose they are."""

    def __init__(self, limits: GatewayLimits, observer: GatewayObserver) -> None:
        self._limits = limits
        self._observer = observer
        self._open: dict[Stream, str] = {}

    @asynccontextmanager
    async def opened(self, ctx: Context, view: View, caller: Caller, wish: Mapping[str, Any]) -> AsyncGenerator[Stream]:
        """A new stream, which is told of what happens from now on. Raises RequestFailed where there are too many."""
        self._make_room(view, caller.principal)
        stream = Stream(ctx, view, wish)
        self._open[stream] = caller.principal
        try:
            yield stream
        finally:
            del self._open[stream]

    def changed(self, view: View, methods: Iterable[str]) -> None:
        """Tell the clients of an endpoint that lists are others."""
        for method in methods:
            for stream in self._open:
                if stream.view == view:
                    stream.changed(method)

    def end(self, view: View) -> None:
        """End the streams of one endpoint in good order."""
        for stream in self._open:
            if stream.view == view:
                stream.end()

    def end_all(self) -> None:
        """End every stream in good order."""
        for stream in self._open:
            stream.end()

    def _make_room(self, view: View, principal: str) -> None:
        own = sum(one == principal for one in self._open.values())
        here = sum(stream.view == view for stream in self._open)
        for used, most, whose in (
            (own, self._limits.listen_streams_per_principal, "one principal"),
            (here, self._limits.listen_streams, "one endpoint"),
        ):
            if used >= most:
                self._observer.refused("client", "rate")
                raise rejected("too_many_streams", f"no more than {most} streams are open for {whose}", code=_REFUSED_CODE)

"""Owns one stream of notifications of the newer era: the request that stays open, what it asked for and what was granted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import anyio

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.transports.exchange import AckSink

JsonObject = dict[str, Any]
Listen = Callable[[JsonObject, AckSink], Awaitable[JsonObject]]
"""Sends a `subscriptions/listen` with these params, and returns when the server ends it. Raises RequestFailed."""


class End(Protocol):
    """A wire, as far as its end goes: what fails then is the session, and nothing to be told of single subscriptions."""

    ended: anyio.Event


_LISTS: Final = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


class Stream:
    """One stream; used once. `run` holds it until it ends or is closed."""

    def __init__(self, uris: frozenset[str], changed: Callable[[], None]) -> None:
        """`changed` is called when the stream is acknowledged, and when it is over."""
        self.uris = uris
        self.granted: frozenset[str] | None = None
        """The URIs whose updates the server has agreed to send; None before it has acknowledged the stream."""
        self.failure: RequestFailed | None = None
        """How it ended; None while it lasts, and after an end in good order."""
        self.ended = anyio.Event()
        self.settled = anyio.Event()
        """Set when it is acknowledged, or over."""
        self.opened_at = anyio.current_time()
        self._changed = changed
        self._scope = anyio.CancelScope()

    async def run(self, listen: Listen) -> None:
        """Hold the stream."""
        wanted: JsonObject = {**_LISTS, **({"resourceSubscriptions": sorted(self.uris)} if self.uris else {})}
        with self._scope:
            try:
                await listen({"notifications": wanted}, self._acknowledged)
            except RequestFailed as failure:
                self.failure = failure
            self.ended.set()
            self.settled.set()
            self._changed()

    def close(self) -> None:
        """Withdraw the request."""
        self.ended.set()
        self.settled.set()
        self._scope.cancel()

    def _acknowledged(self, params: JsonObject) -> None:
        if self.granted is not None:
            return  # the first one counts
        granted = params.get("notifications")
        uris = granted.get("resourceSubscriptions") if isinstance(granted, dict) else None
        named = {uri for uri in uris if isinstance(uri, str)} if isinstance(uris, list) else set[str]()
        self.granted = self.uris & named
        self.settled.set()
        self._changed()

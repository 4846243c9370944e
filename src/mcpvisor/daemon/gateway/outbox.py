"""Owns the notifications that wait for one client of the handshake era, until it opens its stream for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from mcpvisor.daemon.gateway.backlog import Backlog, size_of

JsonObject = dict[str, Any]
Push = Callable[[str, JsonObject | None], Awaitable[None]]
Listened = Callable[[], Awaitable[None]]
"""Returns once the client has a stream on which it listens."""

UPDATED: Final = "notifications/resources/updated"

LOG_BACKLOG: Final = 100
"""Log messages kept for a client that is slow or not listening; the oldest go first."""

TOLD_BACKLOG: Final = 64
"""Messages kept that are meant for this one client; the oldest go first."""


class Outbox:
    """Changes of lists and resources are merged and never lost, log messages are bounded; none waits for the client."""

    def __init__(self) -> None:
        self._changes: dict[str, None] = {}
        self._updated: dict[str, None] = {}
        """URIs, no more than the client watches."""
        self._told = Backlog(TOLD_BACKLOG)
        self._logs = Backlog(LOG_BACKLOG)
        self._filled = anyio.Event()

    @property
    def dropped(self) -> int:
        """How many log messages this client has lost."""
        return self._logs.dropped

    def list_changed(self, method: str) -> None:
        """Tell the client once that a list differs."""
        self._changes[method] = None
        self._filled.set()

    def updated(self, uri: str) -> None:
        """Tell the client once that a resource has changed."""
        self._updated[uri] = None
        self._filled.set()

    def unwatched(self, uri: str) -> None:
        """The client does not watch a resource any more."""
        self._updated.pop(uri, None)

    def tell(self, method: str, params: JsonObject) -> None:
        """Tell the client what concerns it alone, ahead of what servers log."""
        self._told.put(method, params, size_of(params))
        self._filled.set()

    def log(self, method: str, params: JsonObject, size: int | None = None) -> None:
        """Send a log message when there is room; `size` is that of its params where the caller knows it already."""
        self._logs.put(method, params, size_of(params) if size is None else size)
        self._filled.set()

    def unsent(self, method: str, params: JsonObject | None) -> bool:
        """A stream was gone before this could be sent on it: whether it is told on the next one, as all that is merged is."""
        if method == UPDATED and params is not None:
            self.updated(params["uri"])
        elif params is None:
            self.list_changed(method)
        else:
            return False
        return True

    async def deliver(self, push: Push, listened: Listened) -> None:
        """Send what comes in, for ever; the caller's scope ends it. What waits for the client to listen is still merged."""
        while True:
            await listened()
            if self._changes:
                method = next(iter(self._changes))
                del self._changes[method]
                await push(method, None)
            elif self._updated:
                uri = next(iter(self._updated))
                del self._updated[uri]
                await push(UPDATED, {"uri": uri})
            elif self._told:
                await push(*self._told.pop())
            elif self._logs:
                await push(*self._logs.pop())
            else:
                self._filled = anyio.Event()
                await self._filled.wait()

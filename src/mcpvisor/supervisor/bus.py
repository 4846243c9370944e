"""Owns the delivery of events: synchronous, in order, and such that no subscriber can hurt another."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio

from mcpvisor.supervisor.events import Event

_log = logging.getLogger(__name__)

Inline = Callable[[Event], None]
"""A subscriber that is called within `emit`; it must be quick, and must not wait."""


class Subscription:
    """An async iterator over events behind a bounded queue: the oldest goes first when it is full, and is counted."""

    def __init__(self, bus: EventBus, size: int) -> None:
        self._bus = bus
        self._queue: deque[Event] = deque()
        self._size = size
        self._filled = anyio.Event()
        self.dropped = 0
        """How many events this subscriber has lost by being too slow."""

    def push(self, event: Event) -> None:
        if len(self._queue) >= self._size:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(event)
        self._filled.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bus.unsubscribe(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            self._filled = anyio.Event()
            await self._filled.wait()
        return self._queue.popleft()


class EventBus:
    """One stream of events with inline and queued subscribers."""

    def __init__(self) -> None:
        self._inline: list[Inline] = []
        self._queued: list[Subscription] = []

    def emit(self, event: Event) -> None:
        """Hand the event to everybody, now. An inline subscriber that raises is logged and costs nobody else anything."""
        for inline in self._inline:
            try:
                inline(event)
            except Exception:  # noqa: BLE001 - whatever a subscriber raises is its own affair
                _log.exception("a subscriber failed on %s", type(event).__name__)
        for subscription in self._queued:
            subscription.push(event)

    def attach(self, inline: Inline) -> None:
        """Call `inline` on every event from now on."""
        self._inline.append(inline)

    def detach(self, inline: Inline) -> None:
        """Call `inline` no more; one that is not attached is no error."""
        if inline in self._inline:
            self._inline.remove(inline)

    def subscribe(self, size: int = 1024) -> Subscription:
        """A queue of at most `size` events; a context manager that ends the subscription."""
        subscription = Subscription(self, size)
        self._queued.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; one that is already ended is no error."""
        if subscription in self._queued:
            self._queued.remove(subscription)

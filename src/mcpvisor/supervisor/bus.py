"""Owns the delivery of events: synchronous, in order, and such that no subscriber can hurt another."""

from __future__ import annotations

import itertools
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


Wanted = Callable[[Event], bool]
"""Whether a subscriber wants an event; quick, as it is asked within `emit`."""

Weigh = Callable[[Event], int]
"""What an event counts for in a queue that is bounded by weight; asked within `emit` too."""


def _every(_: Event) -> bool:
    return True


class Subscription:
    """An async iterator over wanted events behind a bounded queue: the oldest go first when it is full, and are counted.

    What is not wanted never enters it: who waits for one quiet server loses nothing to the noise of another. A queue is
    bounded in number, and where `weigh` is given by weight too; one event always has room.
    """

    def __init__(self, bus: EventBus, size: int, wanted: Wanted, weigh: Weigh | None, weight: int) -> None:
        self._bus = bus
        self._queue: deque[tuple[Event, int]] = deque()
        self._size = size
        self._wanted = wanted
        self._weigh = weigh
        self._most = weight
        self._weight = 0
        self._filled = anyio.Event()
        self.dropped = 0
        """How many events this subscriber has lost by being too slow."""

    def push(self, event: Event) -> None:
        if not self._wanted(event):
            return
        weight = 0 if self._weigh is None else self._weigh(event)
        self._queue.append((event, weight))
        self._weight += weight
        while len(self._queue) > self._size or (self._weight > self._most and len(self._queue) > 1):
            self._pop()
            self.dropped += 1
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
        return self._pop()

    def _pop(self) -> Event:
        event, weight = self._queue.popleft()
        self._weight -= weight
        return event


class EventBus:
    """One stream of events with inline and queued subscribers."""

    def __init__(self) -> None:
        self._inline: list[Inline] = []
        self._queued: list[Subscription] = []
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """The place of an event that is kept now among all that are: the wall clock, which can be set back, is no order."""
        return next(self._numbers)

    def emit(self, event: Event) -> None:
        """Hand the event to everybody, now. A subscriber that raises is logged and costs nobody else anything."""
        for take in (*self._inline, *(subscription.push for subscription in self._queued)):
            try:
                take(event)
            except Exception:  # noqa: BLE001 - whatever a subscriber raises is its own affair
                _log.exception("a subscriber failed on %s", type(event).__name__)

    def attach(self, inline: Inline) -> None:
        """Call `inline` on every event from now on."""
        self._inline.append(inline)

    def detach(self, inline: Inline) -> None:
        """Call `inline` no more; one that is not attached is no error."""
        if inline in self._inline:
            self._inline.remove(inline)

    def subscribe(
        self, size: int = 1024, wanted: Wanted = _every, *, weigh: Weigh | None = None, weight: int = 0
    ) -> Subscription:
        """A queue of at most `size` wanted events, and of `weight` by `weigh`; a context manager that ends the subscription."""
        subscription = Subscription(self, size, wanted, weigh, weight)
        self._queued.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; one that is already ended is no error."""
        if subscription in self._queued:
            self._queued.remove(subscription)

"""Owns the streams of the control API: events as they happen, and the stderr of one server as it is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio

from mcpvisor.daemon.control.answers import Emit, Producer
from mcpvisor.daemon.control.views import event_kind, event_view, line_view
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import Event, ServerEvent, ServerRemoved, StderrWritten
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.codec import encode

QUEUE: Final = 4096
"""Events that one reader may be behind; what it loses beyond that is told as `lost`."""

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of JSON that one reader may be behind."""

Wanted = Callable[[Event], bool]


def selection(server: str | None, kind: str | None) -> Wanted:
    """Accepts the events of one server, of one kind, or both; None accepts any."""

    def accepts(event: Event) -> bool:
        if server is not None and not (isinstance(event, ServerEvent) and event.server == server):
            return False
        return kind is None or event_kind(event) == kind

    return accepts


def known_events(supervisor: Supervisor, wanted: Wanted, newest: int) -> list[Event]:
    """The newest events that are still known and wanted, over all servers, oldest first."""
    if newest == 0:
        return []
    events = [event for name in supervisor.names() for event in supervisor.history(name) if wanted(event)]
    return sorted(events, key=lambda event: event.at)[-newest:]


class Following:
    """The wanted events of one reader, in a queue bounded in number and bytes: the oldest go first, and are counted.

    What is not wanted never enters it: a reader of one quiet server loses nothing to the noise of another.
    """

    def __init__(self, bus: EventBus, wanted: Wanted) -> None:
        self._bus = bus
        self._wanted = wanted
        self._queue: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._filled = anyio.Event()
        self.dropped = 0
        """How many events this reader has lost by being too slow."""

    def __enter__(self) -> Self:
        self._bus.attach(self._take)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bus.detach(self._take)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._queue:
            self._filled = anyio.Event()
            await self._filled.wait()
        return self._pop()

    def _take(self, event: Event) -> None:
        if not self._wanted(event):
            return
        size = len(encode(event_view(event)))
        self._queue.append((event, size))
        self._bytes += size
        while len(self._queue) > QUEUE or (self._bytes > QUEUE_BYTES and len(self._queue) > 1):
            self._pop()
            self.dropped += 1
        self._filled.set()

    def _pop(self) -> Event:
        event, size = self._queue.popleft()
        self._bytes -= size
        return event


def follow_events(supervisor: Supervisor, wanted: Wanted, backlog: int) -> Producer:
    """First the newest known events, then each as it happens."""

    async def produce(emit: Emit) -> None:
        with Following(supervisor.bus, wanted) as events:  # before the backlog is read, so that nothing falls between
            for event in known_events(supervisor, wanted, backlog):
                await emit("event", event_view(event))
            lost = 0
            async for event in events:
                if events.dropped > lost:
                    await emit("lost", {"count": events.dropped - lost})
                    lost = events.dropped
                await emit("event", event_view(event))

    return produce


def follow_stderr(bus: EventBus, name: str, tail: list[StderrLine]) -> Producer:
    """First the tail, then each line as it is written; ends when the server leaves supervision."""

    def wanted(event: Event) -> bool:
        return isinstance(event, StderrWritten | ServerRemoved) and event.server == name

    async def produce(emit: Emit) -> None:
        with Following(bus, wanted) as events:
            await emit("lines", {"lines": [line_view(line) for line in tail], "dropped": 0})
            lost = 0
            async for event in events:
                if events.dropped > lost:
                    await emit("lost", {"count": events.dropped - lost})
                    lost = events.dropped
                if not isinstance(event, StderrWritten):
                    return
                lines = [line_view(StderrLine(event.at, text)) for text in event.lines]
                await emit("lines", {"lines": lines, "dropped": event.dropped})

    return produce

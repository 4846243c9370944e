"""Owns the streams of the control API: events as they happen, and the stderr of one server as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mcpvisor.daemon.config.problems import cut, nearest
from mcpvisor.daemon.control.answers import Emit, Producer
from mcpvisor.daemon.control.keeping import JsonObject, Keeping
from mcpvisor.daemon.control.requests import invalid
from mcpvisor.daemon.control.views import event_kind, event_view, kind_of, line_view
from mcpvisor.supervisor import events, host_events
from mcpvisor.supervisor.bus import EventBus, Subscription, Wanted
from mcpvisor.supervisor.events import Event, ServerEvent, ServerRemoved, StderrWritten
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.reporting import NOT_HISTORY
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.codec import encode

QUEUE: Final = 4096
"""Events that one reader may be behind; what it loses beyond that is told as `lost`."""

QUEUE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of JSON that one reader may be behind."""

KINDS: Final = frozenset(
    kind_of(one)
    for module in (events, host_events)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, Event) and one not in (Event, ServerEvent)
)
"""Every kind of event there is."""

LIVE_ONLY: Final = frozenset(kind_of(one) for one in NOT_HISTORY)
"""Kinds that are told as they happen and never kept."""


def selection(server: str | None, kind: str | None) -> Wanted:
    """Accepts the events of one server, of one kind, or both; None accepts any."""

    def accepts(event: Event) -> bool:
        if server is not None and not (isinstance(event, ServerEvent) and event.server == server):
            return False
        return kind is None or event_kind(event) == kind

    return accepts


@dataclass(frozen=True, slots=True)
class Past:
    """Where the events of the past are: in the histories of the servers, and in what is kept besides them."""

    supervisor: Supervisor
    keeping: Keeping

    def events(self, server: str | None, kind: str | None, newest: int) -> list[JsonObject]:
        """The newest of one server, of one kind, of both or of any, in the order in which they came.

        That is not the order of their times: the wall clock may have been set back in between.
        """
        if newest == 0:
            return []
        wanted = selection(server, kind)
        histories = (kept for name in self.supervisor.names() for kept in self.supervisor.numbered_history(name))
        found: list[tuple[int, Event | JsonObject]] = [(number, event) for number, event in histories if wanted(event)]
        found += [(number, view) for number, view in self.keeping.numbered(server) if kind in (None, view["kind"])]
        found.sort(key=lambda one: one[0])
        return [one if isinstance(one, dict) else event_view(one) for _, one in found[-newest:]]


def known_kind(kind: str | None) -> str | None:
    """The kind that was asked for, where there is one such. Raises ApiError, which names the one that was probably meant."""
    if kind is None or kind in KINDS:
        return kind
    meant = nearest(kind, KINDS)
    known = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(KINDS))}"
    raise invalid("QUERY", f"no kind of event is called {cut(kind)!r}; {known}")


def following(bus: EventBus, wanted: Wanted) -> Subscription:
    """The wanted events of one reader, in a queue bounded in number and in bytes of JSON."""
    return bus.subscribe(QUEUE, wanted, weigh=lambda event: len(encode(event_view(event))), weight=QUEUE_BYTES)


def follow_events(past: Past, server: str | None, kind: str | None, backlog: int) -> Producer:
    """First the newest known events, then each as it happens."""

    async def produce(emit: Emit) -> None:
        # Before the backlog is read, so that nothing falls between.
        with following(past.supervisor.bus, selection(server, kind)) as heard:
            for view in past.events(server, kind, backlog):
                await emit("event", view)
            lost = 0
            async for event in heard:
                if heard.dropped > lost:
                    await emit("lost", {"count": heard.dropped - lost})
                    lost = heard.dropped
                await emit("event", event_view(event))

    return produce


def follow_stderr(bus: EventBus, name: str, tail: list[StderrLine]) -> Producer:
    """First the tail, then each line as it is written; ends when the server leaves supervision."""

    def wanted(event: Event) -> bool:
        return isinstance(event, StderrWritten | ServerRemoved) and event.server == name

    async def produce(emit: Emit) -> None:
        with following(bus, wanted) as heard:
            await emit("lines", {"lines": [line_view(line) for line in tail], "dropped": 0})
            lost = 0
            async for event in heard:
                if heard.dropped > lost:
                    await emit("lost", {"count": heard.dropped - lost})
                    lost = heard.dropped
                if not isinstance(event, StderrWritten):
                    return
                lines = [line_view(StderrLine(event.at, text)) for text in event.lines]
                await emit("lines", {"lines": lines, "dropped": event.dropped})

    return produce

"""Owns what waits for one handler: order, coalescing, bounds, tries and delays, without a clock and without I/O.

Events of one lane (a server and a URI) are given one after the other, in the order in which they came; lanes overtake each
other.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import Final

from mcpvisor.daemon.handlers.circuit import Circuit, CircuitState
from mcpvisor.daemon.handlers.contract import HandlerEvent
from mcpvisor.daemon.handlers.specs import HandlerSpec

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of JSON that may wait for one handler."""

LONGEST_PAUSE: Final = 3600.0
"""Seconds for which a receiver may ask to be left alone."""

Jitter = Callable[[], float]
"""A number in [0, 1), new at each call."""


class Offered(StrEnum):
    """What became of an event that was offered."""

    ACCEPTED = "accepted"
    COALESCED = "coalesced"
    """It is told with one that waits already."""
    OVERFLOW = "overflow"
    """There was no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an event was not taken; see `DeliveryFailed`."""

    why: str
    retry_after: float | None = None
    is_final: bool = False
    was_tried: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows from a failure: the event is dead, or tried again at `next_try`; `opened`: the circuit has opened by it."""

    is_dead: bool
    tries: int
    next_try: float | None
    opened: bool


@dataclass(slots=True)
class Waiting:
    """An event that waits for the handler or is with it. `is_kept`: it is in the state store, and has to leave it."""

    event: HandlerEvent
    size: int
    number: int
    is_kept: bool
    is_committed: bool
    due: float
    merges: bool
    tries: int = 0
    counted: int = 0
    """Tries that count: those of a handler that is not taken to be away."""
    is_given: bool = False


def lane_of(event: HandlerEvent) -> str:
    """Within what events keep their order."""
    subject = event.data.get("uri") if event.kind == "resource_updated" else event.data.get("list")
    return f"{event.server}\x00{event.kind}\x00{subject or ''}"


def merging_key(event: HandlerEvent) -> str | None:
    """What two events have in common of which the newer says all that the older says; None where there is no such thing."""
    if event.kind in {"resource_updated", "list_changed"}:
        return lane_of(event)
    if event.kind == "progress":
        return f"{lane_of(event)}\x00{event.data.get('call')}"
    return None


class HandlerQueue:
    """What waits for one handler; times are monotonic seconds."""

    def __init__(self, spec: HandlerSpec, jitter: Jitter, *, most_bytes: int = MOST_BYTES) -> None:
        self.spec = spec
        self.circuit = Circuit(spec.circuit)
        self.given = 0
        """Events that are with the handler."""
        self._jitter = jitter
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lanes: dict[str, deque[Waiting]] = {}
        self._by_id: dict[str, Waiting] = {}
        self._mergeable: dict[str, Waiting] = {}
        self._due: list[tuple[float, int, str]] = []
        """Heads of lanes by when they may be given; an entry that is not true any more is passed over."""
        self._numbers = count()
        self._paused_until = float("-inf")

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._by_id

    def __iter__(self) -> Iterator[Waiting]:
        """All that is here, the oldest first."""
        return iter(self._by_id.values())

    def find(self, event_id: str) -> Waiting:
        """What is known of an event that is here. Raises KeyError."""
        return self._by_id[event_id]

    def respecified(self, spec: HandlerSpec) -> None:
        """Another handler from now on: its circuit is closed, and nothing that the last one did is counted."""
        self.spec = spec
        self.circuit = Circuit(spec.circuit)
        self._paused_until = float("-inf")
        for waiting in self._by_id.values():
            waiting.counted = 0

    def offer(
        self, event: HandlerEvent, size: int, now: float, *, keep: bool, merges: bool = True, admit: bool = False
    ) -> tuple[Offered, HandlerEvent]:
        """Take an event in, and return it as it waits now.

        `keep`: it must be committed before it is given. Without `merges` it stays by itself; with `admit` there is room for it,
        since it was accepted before.
        """
        key = merging_key(event) if merges else None
        if key is not None and (known := self._mergeable.get(key)) is not None:
            merged = replace(known.event, data=event.data, coalesced=known.event.coalesced + event.coalesced)
            self._bytes += size - known.size
            known.event, known.size = merged, size
            return Offered.COALESCED, merged
        if not admit and (len(self._by_id) >= self.spec.queue or self._bytes + size > self._most_bytes):
            return Offered.OVERFLOW, event
        waiting = Waiting(
            event=event,
            size=size,
            number=next(self._numbers),
            is_kept=keep,
            is_committed=not keep,
            due=now,
            merges=merges,
        )
        self._by_id[event.id] = waiting
        self._bytes += size
        if key is not None:
            self._mergeable[key] = waiting
        lane = self._lanes.setdefault(lane_of(event), deque())
        lane.append(waiting)
        if lane[0] is waiting:
            self._put_forward(lane)
        return Offered.ACCEPTED, event

    def committed(self, event_id: str) -> None:
        """An event may be given from now on; one that is not here any more is no error."""
        waiting = self._by_id.get(event_id)
        if waiting is not None and not waiting.is_committed:
            waiting.is_committed = True
            lane = self._lanes[lane_of(waiting.event)]
            if lane[0] is waiting:
                self._put_forward(lane)

    def next(self, now: float) -> HandlerEvent | None:
        """The event that is to be given now; None when there is none, or the handler is not to get it."""
        if self.given >= self.spec.concurrency or now < self._paused_until or not self.circuit.admits(now):
            return None
        waiting = self._head()
        if waiting is None or waiting.due > now:
            return None
        heapq.heappop(self._due)
        waiting.is_given = True
        self.given += 1
        self.circuit.gave()
        # From here on it may have been seen under its id: what comes later is told by itself.
        key = merging_key(waiting.event)
        if key is not None and self._mergeable.get(key) is waiting:
            del self._mergeable[key]
        return waiting.event

    def wake_at(self) -> float | None:
        """When there may be something to give; None while only an event or an end can change that."""
        waiting = self._head()
        if waiting is None or self.given >= self.spec.concurrency or self.circuit.state is CircuitState.HALF_OPEN:
            return None
        return max(waiting.due, self._paused_until, self.circuit.next_try or float("-inf"))

    def handled(self, event_id: str) -> bool:
        """The handler has taken an event; whether that has closed the circuit."""
        self._remove(self._by_id[event_id])
        return self.circuit.succeeded()

    def failed(self, event_id: str, failure: Failure, now: float) -> Verdict:
        """The handler has not taken an event.

        A try counts while the circuit is closed, and where somebody has tried: of a handler that is away nothing is learned
        about the event. So an event is given up that fails while others get through, and none for the time that a receiver is
        down.
        """
        waiting = self._by_id[event_id]
        waiting.tries += 1
        if failure.was_tried and self.circuit.state is CircuitState.CLOSED:
            waiting.counted += 1
        opened = self.circuit.failed(now)
        if failure.is_final or waiting.counted >= self.spec.retry.attempts:
            self._remove(waiting)
            return Verdict(is_dead=True, tries=waiting.tries, next_try=None, opened=opened)
        pause = min(failure.retry_after or 0.0, LONGEST_PAUSE)
        if pause:
            self._paused_until = max(self._paused_until, now + pause)
        waiting.due = now + max(self._delay(waiting.tries), pause)
        waiting.is_given = False
        self.given -= 1
        self._put_forward(self._lanes[lane_of(waiting.event)])
        next_try = max(waiting.due, self.circuit.next_try or waiting.due)
        return Verdict(is_dead=False, tries=waiting.tries, next_try=next_try, opened=opened)

    def drop(self, event_id: str) -> Waiting:
        """Take an event out that is not with the handler. Raises KeyError."""
        waiting = self._by_id[event_id]
        assert not waiting.is_given, "what is with the handler is not ours to drop"
        self._remove(waiting)
        return waiting

    def _delay(self, tries: int) -> float:
        """Seconds before the next try: half to all of a step that doubles, so that many do not come at one moment."""
        step = min(self.spec.retry.max_delay, self.spec.retry.delay * 2.0 ** min(tries - 1, 30))
        return step * (0.5 + 0.5 * self._jitter())

    def _head(self) -> Waiting | None:
        """The head of a lane that may be given first."""
        while self._due:
            due, number, event_id = self._due[0]
            waiting = self._by_id.get(event_id)
            if waiting is not None and not waiting.is_given and (waiting.due, waiting.number) == (due, number):
                return waiting
            heapq.heappop(self._due)
        return None

    def _put_forward(self, lane: deque[Waiting]) -> None:
        """The first of a lane may be given, unless it is, or is not committed yet."""
        if lane and not lane[0].is_given and lane[0].is_committed:
            head = lane[0]
            heapq.heappush(self._due, (head.due, head.number, head.event.id))

    def _remove(self, waiting: Waiting) -> None:
        del self._by_id[waiting.event.id]
        self._bytes -= waiting.size
        self.given -= waiting.is_given
        key = merging_key(waiting.event)
        if key is not None and self._mergeable.get(key) is waiting:
            del self._mergeable[key]
        name = lane_of(waiting.event)
        lane = self._lanes[name]
        lane.remove(waiting)
        if lane:
            self._put_forward(lane)
        else:
            del self._lanes[name]

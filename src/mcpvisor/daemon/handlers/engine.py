"""Owns the handlers of a running daemon: which there are, what reaches each of them, and what is kept for them.

Events come from the bus into a bounded queue, are routed, and are handed to the queues of the handlers; nothing here waits
for a handler, and nobody who emits an event waits for anything here.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio
import anyio.abc
import anyio.lowlevel

from mcpvisor.daemon.handlers.changes import HandlerChange, changes_between
from mcpvisor.daemon.handlers.contract import EventKind, HandlerEvent, JsonObject
from mcpvisor.daemon.handlers.ledger import Ledger, event_of
from mcpvisor.daemon.handlers.making import Surroundings
from mcpvisor.daemon.handlers.routing import Routing, Subject, Way
from mcpvisor.daemon.handlers.runner import Runner, Watcher
from mcpvisor.daemon.handlers.sources import kind_of, subject_of, told_of, told_of_progress
from mcpvisor.daemon.handlers.specs import TAKE_EVENTS, HandlerSpec
from mcpvisor.daemon.handlers.telling import TOLD_EVERY, HandlerCounts, HandlerNews
from mcpvisor.daemon.handlers.waiting import Jitter
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import ClockJumped, Event, ServerNotified
from mcpvisor.supervisor.host_events import HandlersFlooded
from mcpvisor.supervisor.transports.codec import encode

_log = logging.getLogger(__name__)

QUEUE: Final = 4096
"""Events that may wait to be routed; the oldest go first, and are counted."""
QUEUE_BYTES: Final = 8 * 1024 * 1024

LEAVE_SECONDS: Final = 30.0
"""What a handler that was removed gets for the events that wait for it."""

STOP_SECONDS: Final = 2.0
"""The same at the end of the daemon; what is kept is there at the next start."""

TIDY_SECONDS: Final = 30.0

_SLICE: Final = 0.002
"""Seconds after which routing rests for as long: a flood of events has half of the loop's time at the most."""


class HandlerEngine:
    """All handlers, for as long as its context lasts; see `apply` for what is wanted of them."""

    def __init__(
        self,
        bus: EventBus,
        ledger: Ledger,
        counts: HandlerCounts,
        surroundings: Surroundings,
        *,
        jitter: Jitter = random.random,
    ) -> None:
        self.ledger = ledger
        self._bus = bus
        self._counts = counts
        self._surroundings = surroundings
        self._jitter = jitter
        self._runners: dict[str, Runner] = {}
        self._specs: Mapping[str, HandlerSpec] = {}
        self._routing = Routing()
        self._kinds: frozenset[EventKind] = frozenset()
        self._uncommitted: list[tuple[int, Runner, HandlerEvent]] = []
        self._has_uncommitted = anyio.Event()
        self._none_left = anyio.Event()
        """Set when the last handler has left."""
        self._tasks = anyio.create_task_group()
        self._running: anyio.abc.TaskGroup | None = None
        self._subscription = bus.subscribe(QUEUE, self._wants, weigh=_weight_of, weight=QUEUE_BYTES)

    async def __aenter__(self) -> Self:
        self.ledger.recall()
        self._bus.attach(self._note)
        self._running = await self._tasks.__aenter__()
        for part in (self._route, self._commit, self._tidy):
            self._running.start_soon(part)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
            await anyio.lowlevel.checkpoint()  # what was emitted last is routed first
            for runner in self._runners.values():
                runner.leave(STOP_SECONDS)
            if self._runners and kind is None:
                await self._none_left.wait()
        self._bus.detach(self._note)
        self._bus.unsubscribe(self._subscription)
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, value, tb)

    # What is wanted

    def plan(self, specs: Mapping[str, HandlerSpec]) -> tuple[HandlerChange, ...]:
        """What `apply` would do to each handler that does not stay as it is."""
        return changes_between(self._specs, specs)

    def apply(self, specs: Mapping[str, HandlerSpec], routing: Routing) -> tuple[HandlerChange, ...]:
        """Make these the handlers and the routes; a handler that is not among them has `LEAVE_SECONDS` for what it has."""
        changes = self.plan(specs)
        self._specs, self._routing, self._kinds = dict(specs), routing, routing.kinds
        takers = {name: spec for name, spec in specs.items() if spec.type in TAKE_EVENTS}
        for name, spec in takers.items():
            runner = self._runners.get(name)
            if runner is None:
                self._start(spec)
            elif runner.is_leaving or runner.spec != spec:
                runner.respecify(spec)
        for name, runner in self._runners.items():
            if name not in takers and not runner.is_leaving:
                runner.leave(LEAVE_SECONDS)
        for change in changes:
            _log.info("%s", change.told, extra={"handler": change.handler, "change": change.change.value})
        return changes

    @property
    def routing(self) -> Routing:
        """The routes that are in force."""
        return self._routing

    def object_of(self, handler: str) -> object | None:
        """What takes the events of a handler now, for those who have questions for it; None while there is nothing."""
        runner = self._runners.get(handler)
        return None if runner is None or runner.is_leaving else runner.object

    def _start(self, spec: HandlerSpec) -> None:
        assert self._running is not None, "apply is for an engine that runs"
        news = HandlerNews(spec.name, self._bus.emit)
        runner = Runner(spec, self.ledger, self._counts, news, self._surroundings, self._jitter)
        self._runners[spec.name] = runner
        self._counts.handler_added(spec.name)
        self._adopt(runner)
        self._running.start_soon(self._run, runner)

    async def _run(self, runner: Runner) -> None:
        try:
            await runner.run()
        finally:
            del self._runners[runner.name]
            self._counts.handler_removed(runner.name)
            if not self._runners:
                self._none_left.set()
                self._none_left = anyio.Event()

    def _adopt(self, runner: Runner) -> None:
        for kept in self.ledger.pending():
            if kept.handler == runner.name:
                runner.adopt(kept)

    # Events in

    def call_progressed(self, server: str, tool: str | None, progress: JsonObject) -> None:
        """See `CallObserver`."""
        if "progress" in self._kinds:
            self._take("progress", lambda: told_of_progress(server, tool, progress, time.time()))

    def _note(self, event: Event) -> None:
        if isinstance(event, ClockJumped):
            self.ledger.clock_jumped(event.seconds)

    def _wants(self, event: Event) -> bool:
        return bool(self._kinds) and kind_of(event) in self._kinds

    async def _route(self) -> None:
        busy = 0.0
        lost, told_at = 0, float("-inf")
        with self._subscription as events:
            async for event in events:
                began = time.perf_counter()
                self._take(type(event).__name__, partial(told_of, event))
                busy += time.perf_counter() - began
                if events.dropped > lost and time.monotonic() > told_at + TOLD_EVERY:
                    self._bus.emit(HandlersFlooded(at=time.time(), count=events.dropped - lost))
                    lost, told_at = events.dropped, time.monotonic()
                if busy > _SLICE:
                    await anyio.sleep(_SLICE)
                    busy = 0.0

    def _take(self, what: str, tell: Callable[[], HandlerEvent | None]) -> None:
        try:
            if (event := tell()) is not None:
                for way in self._routing.ways(subject_of(event)):
                    self._offer(way.handler, event)
        except Exception:  # noqa: BLE001 - one event that cannot be told must not end the telling of all others
            _log.exception("an event (%s) could not be handed to its handlers", what)

    def _offer(self, handler: str, event: HandlerEvent, *, merges: bool = True, watcher: Watcher | None = None) -> None:
        runner = self._runners.get(handler)
        if runner is None or runner.is_leaving:
            return
        number = runner.offer(event, merges=merges, watcher=watcher)
        if number is not None:
            self._uncommitted.append((number, runner, event))
            self._has_uncommitted.set()

    async def _commit(self) -> None:
        """Let events go to their handlers once they are on disk; where the disk takes nothing, from memory."""
        while True:
            await self._has_uncommitted.wait()
            self._has_uncommitted = anyio.Event()
            batch, self._uncommitted = self._uncommitted, []
            await self.ledger.until_written(max(number for number, _, _ in batch))
            for _, runner, event in batch:
                runner.committed(event)

    async def _tidy(self) -> None:
        while True:
            await anyio.sleep(TIDY_SECONDS)
            self.tidy()

    def tidy(self) -> None:
        """Give up what is too old, and take in what the state file could only be read for later."""
        now = time.time()
        self.ledger.recall()
        for kept in self.ledger.outdated(now):
            event, why = event_of(kept.event), "it was not handled for too long"
            runner = self._runners.get(kept.handler)
            if runner is None or runner.expire(event.id, why):
                self.ledger.buried(kept.handler, event, why, kept.tries, now)
                self._counts.handler_event(kept.handler, event.kind, "dead")
        for runner in self._runners.values():
            runner.news.tell_dead()
            if not runner.is_leaving:
                self._adopt(runner)

    # For operators

    def ways(self, subject: Subject) -> tuple[Way, ...]:
        """Where an event would go."""
        return self._routing.ways(subject)

    async def emit(self, event: HandlerEvent, seconds: float) -> list[JsonObject]:
        """Send an event on its ways, and say for each what became of it within so many seconds."""
        found: dict[str, tuple[str, str]] = {}
        settled = anyio.Event()
        ways = self.ways(subject_of(event))

        def watch(handler: str, outcome: str, why: str) -> None:
            found[handler] = (outcome, why)
            if len(found) == len(ways):
                settled.set()

        for way in ways:
            self._offer(way.handler, event, merges=False, watcher=partial(watch, way.handler))
        with anyio.move_on_after(seconds):
            if ways:
                await settled.wait()
        for way in ways:
            if runner := self._runners.get(way.handler):
                runner.unwatch(event.id)
        return [
            {"handler": way.handler, "route": way.origin, "outcome": outcome, "why": why}
            for way in ways
            for outcome, why in [found.get(way.handler, ("waiting", ""))]
        ]

    def _chosen(self, event_ids: Sequence[str] | None, handler: str | None) -> list[str]:
        """The keys of the dead letters of some events, or of a handler; of all where neither is named."""
        if event_ids is not None:
            return [key for event_id in event_ids for key in self.ledger.find_dead(event_id)]
        return [kept.key for kept in self.ledger.dead_letters if handler in (None, kept.handler)]

    def drop(self, event_ids: Sequence[str] | None, handler: str | None = None) -> list[JsonObject]:
        """Drop dead letters that nobody wants any more: those of some events, of a handler, or all."""
        found = [self.ledger.discard(key) for key in self._chosen(event_ids, handler)]
        return [{"id": kept.event["id"], "handler": kept.handler} for kept in found if kept is not None]

    def retry(self, event_ids: Sequence[str] | None, handler: str | None = None) -> list[JsonObject]:
        """Make dead letters pending again, chosen as in `drop`; says for each whether its handler is there."""
        keys = self._chosen(event_ids, handler)
        revived: list[JsonObject] = []
        for key in keys:
            kept = self.ledger.revived(key, time.time())
            if kept is None:
                continue
            runner = self._runners.get(kept.handler)
            is_there = runner is not None and not runner.is_leaving
            if runner is not None and is_there:
                runner.adopt(kept)
            revived.append({"id": kept.event["id"], "handler": kept.handler, "handler_is_there": is_there})
        return revived

    def views(self) -> list[JsonObject]:
        """How each handler is, those that are leaving included; and what is kept of handlers that are not there."""
        dead: dict[str, int] = {}
        pending: dict[str, int] = {}
        for kept in self.ledger.dead_letters:
            dead[kept.handler] = dead.get(kept.handler, 0) + 1
        for kept in self.ledger.pending():
            pending[kept.handler] = pending.get(kept.handler, 0) + 1
        absent = [name for name in dict.fromkeys([*pending, *dead]) if name not in self._runners]
        answering = [name for name, spec in self._specs.items() if spec.type not in TAKE_EVENTS]
        return [
            *({**runner.view(), "dead": dead.get(name, 0)} for name, runner in sorted(self._runners.items())),
            *(
                {"name": name, "type": self._specs[name].type.value, "state": "running", "waiting": 0, "dead": 0}
                for name in sorted(answering)
            ),
            *({"name": name, "state": "absent", "waiting": pending.get(name, 0), "dead": dead.get(name, 0)} for name in absent),
        ]


def _weight_of(event: Event) -> int:
    return len(encode(event.params)) if isinstance(event, ServerNotified) else 256

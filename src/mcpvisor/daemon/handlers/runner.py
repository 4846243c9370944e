"""Owns one handler while it runs: its queue, the object that takes its events, and what becomes of each of them.

The queue outlives the object: a handler that is specified anew is another object that goes on with the same queue.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import anyio
import anyio.abc

from mcpvisor.daemon.handlers.circuit import CircuitState
from mcpvisor.daemon.handlers.contract import DeliveryFailed, EventHandler, HandlerEvent, JsonObject, SaysTrouble
from mcpvisor.daemon.handlers.ledger import Ledger, event_of
from mcpvisor.daemon.handlers.making import Surroundings, Unavailable
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.daemon.handlers.telling import HandlerCounts, HandlerNews, HandlerOutcome
from mcpvisor.daemon.handlers.waiting import Failure, HandlerQueue, Jitter, Offered
from mcpvisor.daemon.state.kept import KeptEvent
from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.transports.codec import encode

_log = logging.getLogger(__name__)

MADE_AGAIN: Final = 60.0
"""Seconds after which a handler that could not be made is tried once more."""

AFTER_CRASH: Final = 1.0
"""Seconds before a handler is made anew whose own tasks have failed."""

_WHY: Final = 500
"""Characters of a reason."""

Watcher = Callable[[HandlerOutcome, str], None]
"""Told what became of one event, and why."""


class Runner:
    """One handler."""

    def __init__(
        self,
        spec: HandlerSpec,
        ledger: Ledger,
        counts: HandlerCounts,
        news: HandlerNews,
        surroundings: Surroundings,
        jitter: Jitter,
    ) -> None:
        self.spec = spec
        self.queue = HandlerQueue(spec, jitter)
        self.news = news
        self.object: EventHandler | None = None
        """What takes the events now; None while it is being made."""
        self._leaves_at: float | None = None
        """When it ends whatever is left, once it is to end."""
        self._ledger = ledger
        self._counts = counts
        self._surroundings = surroundings
        self._stirred = anyio.Event()
        self._watchers: dict[str, Watcher] = {}
        self._last_error = ""
        self._last_error_at: float | None = None
        self._dead = 0

    # What is wanted of it

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_leaving(self) -> bool:
        """Whether it ends as soon as nothing waits any more."""
        return self._leaves_at is not None

    def respecify(self, spec: HandlerSpec) -> None:
        """Be another handler from now on, once those events have ended that are with the last one; or stay after all."""
        self._leaves_at = None
        if spec != self.spec:
            if self.queue.circuit.state is not CircuitState.CLOSED:
                self.news.closed()
            self.queue.respecified(spec)
            self._last_error = ""
        self.spec = spec
        self._stir()

    def leave(self, within: float) -> None:
        """Take no more events, and end once none is left, or after so many seconds."""
        self._leaves_at = anyio.current_time() + within
        self._stir()

    # Events

    def offer(self, event: HandlerEvent, *, merges: bool = True, watcher: Watcher | None = None) -> int | None:
        """Take an event in; returns the number of the change that has to be on disk before it is `committed`, if any."""
        size = len(encode(event.as_json()))
        keeps = self.spec.is_durable
        if watcher is not None:
            self._watchers[event.id] = watcher
        if keeps and not self._ledger.has_room(self.name, size):
            self._overflow(event, "there is no room for more undelivered events in the state store")
            return None
        offered, waiting = self.queue.offer(event, size, anyio.current_time(), keep=keeps, merges=merges)
        if offered is Offered.OVERFLOW:
            self._overflow(event, f"its queue is full ({len(self.queue)} events)")
            return None
        is_kept = self.queue.find(waiting.id).is_kept
        number = self._ledger.accept(self.name, waiting, time.time()) if is_kept else None
        if offered is Offered.COALESCED:
            self._told(event, "coalesced")
            return None
        if number is None:
            self._accepted(event)
        return number

    def adopt(self, kept: KeptEvent) -> None:
        """Take an event in that was accepted before, by an earlier run or before it was a dead letter."""
        event = event_of(kept.event)
        if event.id not in self.queue:
            self.queue.offer(event, len(encode(kept.event)), anyio.current_time(), keep=True, merges=False, admit=True)
            self.queue.committed(event.id)
            self._stir()

    def unwatch(self, event_id: str) -> None:
        """Nobody waits any more for what becomes of an event."""
        self._watchers.pop(event_id, None)

    def committed(self, event: HandlerEvent) -> None:
        """An event that was offered is on disk, or cannot be brought there: now it is accepted."""
        self.queue.committed(event.id)
        self._accepted(event)

    def expire(self, event_id: str, why: str) -> bool:
        """Give an event up that has waited for too long; False where it is with the handler at this moment."""
        if event_id in self.queue:
            if self.queue.find(event_id).is_given:
                return False
            self.queue.drop(event_id)
        self._counts.handler_queue(self.name, len(self.queue))
        self.news.gave_up(why)
        return True

    def _accepted(self, event: HandlerEvent) -> None:
        self._counts.handler_event(self.name, event.kind, "accepted")
        self._stir()

    def _overflow(self, event: HandlerEvent, why: str) -> None:
        self._told(event, "overflow", why)
        self._bury(event, why, tries=0)

    def _bury(self, event: HandlerEvent, why: str, tries: int) -> None:
        self._dead += 1
        self._ledger.buried(self.name, event, why, tries, time.time())
        self.news.gave_up(why)

    def _told(self, event: HandlerEvent, outcome: HandlerOutcome, why: str = "") -> None:
        self._counts.handler_event(self.name, event.kind, outcome)
        if watcher := self._watchers.pop(event.id, None):
            watcher(outcome, why)

    def _stir(self) -> None:
        self._counts.handler_queue(self.name, len(self.queue))
        self._stirred.set()

    # Running

    async def run(self) -> None:
        """Give events to the handler until it has left, or is cancelled."""
        while not self._has_left():
            try:
                await self._be(self.spec)
            except Exception as error:  # noqa: BLE001 - a handler that crashes ends nobody else
                _log.exception("handler %s has crashed; it is made anew", self.name)
                self._crashed(f"it has crashed: {_words_of(error)}")
                await anyio.sleep(AFTER_CRASH)
            self.object = None
        for waiting in [waiting for waiting in self.queue if not waiting.is_kept]:
            self.queue.drop(waiting.event.id)
            self._told(waiting.event, "dropped", "the handler is no more")

    def _crashed(self, why: str) -> None:
        """What was with an object that is no more has failed."""
        self._last_error, self._last_error_at = why, time.time()
        for waiting in [waiting for waiting in self.queue if waiting.is_given]:
            self._failed(waiting.event, Failure(why=why))
        self._stir()

    async def _be(self, spec: HandlerSpec) -> None:
        """Be the handler of one spec, until it is to be another, or none."""
        async with AsyncExitStack() as stack:
            self.object, again = await self._made(spec, stack)
            async with anyio.create_task_group() as deliveries:
                await self._serve(spec, self.object, deliveries, again)

    async def _made(self, spec: HandlerSpec, stack: AsyncExitStack) -> tuple[EventHandler, float | None]:
        """The object that takes events, and when it is to be made once more where it could not be."""
        try:
            maker = self._surroundings.makers[spec.type]
            return await stack.enter_async_context(maker(spec, self._surroundings)), None
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a handler is its own affair, and is shown
            why = f"it could not be made: {_words_of(error)}"
            _log.warning("handler %s: %s", spec.name, why)
            return Unavailable(why), anyio.current_time() + MADE_AGAIN

    async def _serve(
        self, spec: HandlerSpec, handler: EventHandler, deliveries: anyio.abc.TaskGroup, again: float | None
    ) -> None:
        """Give out what is due, until the spec is another, the handler is to be made anew, or it has left."""
        while spec == self.spec and not self._has_left():
            self._stirred = anyio.Event()
            now = anyio.current_time()
            if again is not None and now >= again:
                return
            while (event := self.queue.next(now)) is not None:
                deliveries.start_soon(self._deliver, spec, handler, event)
            moments = [at for at in (self.queue.wake_at(), again, self._leaves_at) if at is not None]
            with anyio.move_on_after(max(0.0, min(moments) - now) if moments else float("inf")):
                await self._stirred.wait()

    def _has_left(self) -> bool:
        if self._leaves_at is None:
            return False
        return not len(self.queue) or anyio.current_time() >= self._leaves_at

    async def _deliver(self, spec: HandlerSpec, handler: EventHandler, event: HandlerEvent) -> None:
        began = anyio.current_time()
        failure: Failure | None = None
        try:
            with anyio.move_on_after(spec.deadline) as scope:
                await handler.deliver(event)
            if scope.cancelled_caught:
                failure = Failure(why=f"it was not done within {spec.deadline:g} s")
        except DeliveryFailed as error:
            failure = Failure(
                why=_words_of(error),
                retry_after=error.retry_after,
                is_final=error.is_final,
                was_tried=error.was_tried,
            )
        except Exception as error:  # noqa: BLE001 - a handler that crashes has failed, and nobody else
            _log.exception("handler %s failed on an event %s of %s", self.name, event.kind, event.server)
            failure = Failure(why=_words_of(error))
        self._counts.handler_took(self.name, anyio.current_time() - began)
        if failure is None:
            self._handled(event)
        else:
            self._failed(event, failure)
        self._stir()

    def _handled(self, event: HandlerEvent) -> None:
        is_kept = self.queue.find(event.id).is_kept
        closed = self.queue.handled(event.id)
        if is_kept:
            self._ledger.handled(self.name, event.id)
        if closed:
            self.news.closed()
        self._told(event, "handled")

    def _failed(self, event: HandlerEvent, failure: Failure) -> None:
        now = anyio.current_time()
        self._last_error, self._last_error_at = failure.why, time.time()
        verdict = self.queue.failed(event.id, failure, now)
        if verdict.opened:
            self.news.opened(self.queue.circuit.row, failure.why, (self.queue.circuit.next_try or now) - now)
        if verdict.is_dead:
            self._bury(event, failure.why, verdict.tries)
        self._told(event, "dead" if verdict.is_dead else "failed", failure.why)

    # How it is

    def view(self) -> JsonObject:
        """The handler as the control API shows it; times are wall-clock seconds."""
        circuit = self.queue.circuit
        next_try = self.queue.wake_at() if circuit.row else None
        ahead = partial(max, 0.0)
        trouble = self.object.trouble if isinstance(self.object, SaysTrouble) else ""
        return {
            "name": self.name,
            "type": self.spec.type.value,
            "state": "leaving" if self.is_leaving else "running",
            "waiting": len(self.queue) - self.queue.given,
            "in_flight": self.queue.given,
            "queue": self.spec.queue,
            "circuit": circuit.state.value,
            "failures": circuit.row,
            "trouble": trouble,
            "last_error": self._last_error if circuit.state is not CircuitState.CLOSED or circuit.row else trouble,
            "last_error_at": self._last_error_at,
            "next_try": None if next_try is None else time.time() + ahead(next_try - anyio.current_time()),
            "given_up": self._dead,
            "origin": self.spec.origin,
        }


def _words_of(error: BaseException) -> str:
    """What an error says, on one line; its type where it says nothing, or is none that is meant for people."""
    text = str(error) if isinstance(error, DeliveryFailed) else f"{type(error).__name__}: {error}"
    return clean_text(text, _WHY)

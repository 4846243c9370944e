"""Owns one server: its lifecycle, its generations and its door. Everything that changes it goes through here, in order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
import anyio.abc

from mcpvisor.supervisor import events
from mcpvisor.supervisor import lifecycle_messages as told
from mcpvisor.supervisor.asking import Asking
from mcpvisor.supervisor.auth.sources import Sources
from mcpvisor.supervisor.authorising import Authorising
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.describing import describe, signs_of
from mcpvisor.supervisor.generation import Generation, Means
from mcpvisor.supervisor.generations import Generations, Standing
from mcpvisor.supervisor.goal import BY_CONFIG, BY_POLICY, Goal
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.lifecycle import Lifecycle
from mcpvisor.supervisor.log_level import WantedLevel
from mcpvisor.supervisor.observer import CallObserver
from mcpvisor.supervisor.offer import NOTHING, Offer
from mcpvisor.supervisor.opening import Opener, Opening
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.process.sampling import Usage
from mcpvisor.supervisor.questions import QuestionSink
from mcpvisor.supervisor.recalling import Recall
from mcpvisor.supervisor.reporting import Reporter
from mcpvisor.supervisor.restoring import CHANGED, Restorer
from mcpvisor.supervisor.session import Lasting
from mcpvisor.supervisor.signs import Signs
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec, change_between
from mcpvisor.supervisor.starts import StartGate, Urgency
from mcpvisor.supervisor.states import ADMITTING
from mcpvisor.supervisor.status import Outline, ServerStatus
from mcpvisor.supervisor.store import Store
from mcpvisor.supervisor.subscriptions.standing import Wish
from mcpvisor.supervisor.subscriptions.telling import SubscriptionTeller
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.transports.http_memory import HttpMemory

EDITED: Final = "its entry was changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all servers of a supervisor have in common."""

    bus: EventBus
    observer: CallObserver
    opener: Opener
    starts: StartGate
    instance: str
    subtree: Subtree
    store: Store
    known_secrets: KnownSecrets
    """Those of all servers, to be masked in what any of them says."""
    on_question: QuestionSink
    """Answers the questions of servers that belong to no call with an answerer of its own."""


class ServerActor:
    """One server under supervision; `run` is its one task."""

    def __init__(self, spec: ServerSpec, shared: Shared) -> None:
        self.reporter = Reporter(spec, shared.bus, shared.observer, shared.known_secrets)
        self.connection = Connection(spec, shared.observer, lambda: self._handle(told.Woken()), self.reporter.mask)
        self._shared = shared
        self._lifecycle = Lifecycle(spec, random.random)
        self._restorer = Restorer(self.reporter)
        self._log_level = WantedLevel(self.reporter)
        report = self.reporter
        self.subscriptions = Subscriptions(
            SubscriptionTeller(spec.name, self._subscriptions_told, report.quoted, lambda: report.generation)
        )
        lasting = Lasting(restorer=self._restorer, log_level=self._log_level, probes=report, subscriptions=self.subscriptions)
        self._http_memory = HttpMemory(partial(report.mask.learn_passing, kind="session"))
        self._recall = Recall(shared.store, spec, report.mask)
        self._means = Means(
            opener=shared.opener,
            starts=shared.starts,
            era=self._recall.era,
            lasting=lasting,
            urgent=self._urgency,
            post=self._told,
            is_beside=lambda: self._generations.serving is not None,
        )
        self._authorising = Authorising(spec, report, Sources(shared.store, shared.instance, report.mask))
        self._generations = Generations(self.connection, self._restorer, report)
        self._goal = Goal(self._recall)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._woken = anyio.Event()
        self._removed = False
        self._early: list[told.Input] = []
        """Orders that came before `run` had begun."""
        self.gone = anyio.Event()
        """Set by the supervisor when `run` is over: nothing of the server is left."""
        self._since, self._entered_at = time.time(), anyio.current_time()
        """When it came into its state, by the clock of the wall and by the monotonic one."""
        self._watchers: list[Callable[[], None]] = []
        self.reporter.wire.on_list_notice = self._list_noticed
        self.reporter.on_offer = self._offered
        self.reporter.on_keep = self._recall.offered
        if self._recall.offer is not NOTHING:
            self._restorer.offer = self._recall.offer
            self.connection.recalled(self._recall.offer)
        self._asking = Asking(spec, shared.on_question, report)
        self.reporter.wire.on_request = self._asking.answer
        self.reporter.wire.on_update = self.subscriptions.updated
        self.reporter.wire.on_missed = self.subscriptions.missed

    async def told_offer(self) -> Offer:
        """What the server offers, without secrets."""
        return await self._recall.told(self.connection.offer)

    @property
    def spec(self) -> ServerSpec:
        """The newest one, be it not in force yet."""
        edits = [event.spec for event in self._early if isinstance(event, told.SpecChanged)]
        return edits[-1] if edits else self._lifecycle.spec

    # Life

    async def run(self) -> None:
        """Serve the server until it was removed and nothing of it is left."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.reporter.added(self.spec)
            self._authorising.begin(tasks)
            self._want_resources()
            if not self._removed:
                self._handle(self._goal.of_entry(self.spec))
            early, self._early = self._early, []
            for event in early:
                self._handle(event)
            while not (self._removed and self._lifecycle.is_gone):
                self._woken = anyio.Event()
                with anyio.move_on_at(self._lifecycle.deadline):
                    await self._woken.wait()
                if self._lifecycle.deadline is not None and anyio.current_time() >= self._lifecycle.deadline:
                    self._handle(told.TimePassed(self.reporter.ring.last_write))
            self._authorising.end()
        self.reporter.removed()

    # Orders: each only edits what is wanted

    def apply(self, spec: ServerSpec, reason: str = EDITED) -> PlannedChange:
        """Take a new spec: keep, update in place, restart, start or stop; `reason` is shown while it restarts."""
        change = change_between(self.spec, spec)
        if change.change is Change.KEEP:
            return change
        enabled_changed = spec.enabled != self.spec.enabled
        is_told_otherwise = spec.target != self.spec.target
        self.connection.respecified(spec)
        self.reporter.respecified(spec)
        self._recall.respecified(spec)
        self._authorising.respecified(spec)
        self._generations.respecified(spec)
        self._asking.spec = spec
        self._handle(told.SpecChanged(spec, restart=change.change is Change.RESTART, reason=reason))
        if change.change is Change.UPDATE and is_told_otherwise:
            self._restorer.reread()  # other credentials may show other lists, and are tried by it at once
        if change.change is Change.RESTART and self._generations.serving is not None and not self._lifecycle.is_replacing:
            self._restorer.reread()  # it serves on; what was remembered of it went with the edit that was taken back
        self._want_resources()
        if enabled_changed:
            self._handle(self._goal.of_edit(spec))
        self.reporter.emit(
            events.ServerUpdated(at=time.time(), server=spec.name, change=change.change.value, fields=change.fields)
        )
        return change

    def order(self, order: str, wanted: told.Wanted | None, who: str) -> None:
        """Take an operator's order; `wanted` is the new goal, None for a restart."""
        self.reporter.emit(events.OperatorOrdered(at=time.time(), server=self.spec.name, order=order, who=who))
        inputs = self._goal.of_order(order, wanted, who)
        self._authorising.try_again()
        for event in inputs:
            self._handle(event)

    def want_log_level(self, level: str | None) -> None:
        """Bring every session to this level; see `Supervisor.want_log_level`."""
        self._log_level.want(level)

    def remove(self, reason: str) -> None:
        """The server is wanted no more; `run` returns once nothing of it is left."""
        self._removed = True
        self._handle(told.WantedSet(told.Wanted.STOPPED, reason))

    def _urgency(self) -> Urgency:
        if self.spec.required:
            return Urgency.REQUIRED
        if self.connection.awaiting:
            return Urgency.AWAITED
        return Urgency.SHOWN if self.connection.stale else Urgency.PLAIN

    def _want_resources(self) -> None:
        wishes = {one.uri: Wish(poll=one.poll, force=one.force) for one in self.spec.subscriptions}
        self.subscriptions.replace(BY_CONFIG, wishes)

    def _subscriptions_told(self, event: events.Event) -> None:
        self.reporter.emit(event)
        if isinstance(event, events.SubscriptionsCounted):
            self._tell_watchers()

    # The lifecycle, applied

    def _told(self, event: told.Input) -> None:
        """What a generation tells may quote its server."""
        if isinstance(event, told.Ended):
            event = replace(event, detail=self.reporter.quoted(event.detail))
        elif isinstance(event, told.Restored | told.Impaired):
            event = replace(event, lacking=self.reporter.quoted(event.lacking))
        self._handle(event)

    def _handle(self, event: told.Input) -> None:
        if self._tasks is None:
            self._early.append(event)
            return
        before = self._generations.standing(event.generation) if isinstance(event, told.Ended) else Standing.RETIRED
        if isinstance(event, told.Negotiated) and event.generation == self._lifecycle.generation:
            self._generations.session_opened(event.generation)
        for command in self._lifecycle.handle(event, anyio.current_time()):
            self._do(command)
        match event:
            case told.Restored():
                self.connection.stale = False
                self._generations.connect_ended(event.generation, "ready")
            case told.Ended():
                self._generations.ended(event, before)
            case told.Closed(generation=number):
                self._generations.closed(number)
                self._authorising.gone(number)
            case _:
                pass
        self._recall.keep()
        self._woken.set()
        self._tell_watchers()

    def _do(self, command: told.Command) -> None:
        match command:
            case told.Open(generation=number):
                self._open(number)
            case told.Restarted(generation=number, reason=reason):
                self.reporter.restarted(number, reason)
            case told.Retire(generation=number, drain=drain):
                self._generations.retire(number, drain)
            case told.Serve(generation=number):
                self._generations.serve(number)
            case told.TimedOut(generation=number):
                self._generations.connect_ended(number, "start_timeout")
            case told.Moved():
                self._moved(command)

    def _open(self, number: int) -> None:
        if self._tasks is None:
            return
        self.reporter.generation = number
        opening = Opening(
            spec=self.spec,
            generation=number,
            instance=self._shared.instance,
            hooks=self.reporter.wire.hooks_of(number),
            processes=self.reporter.processes,
            stderr=self.reporter.ring,
            subtree=self._shared.subtree,
            credentials=self._authorising.given(number),
            memory=self._http_memory,
        )
        generation = Generation(opening, self._means)
        self._generations.added(generation)
        self._tasks.start_soon(generation.run)

    def _offered(self, offer: Offer) -> None:
        self.connection.offer = offer
        self._tell_watchers()

    def _list_noticed(self, method: str) -> bool:
        if "resources" in CHANGED.get(method, ()):
            self.subscriptions.lists_changed()
        return self._restorer.notified(method)

    def _moved(self, moved: told.Moved) -> None:
        due = self._lifecycle.next_attempt
        if moved.old is not moved.new:
            self._since, self._entered_at = time.time(), anyio.current_time()
            if moved.old in ADMITTING and moved.new not in ADMITTING:
                self.subscriptions.detach("there is no session now")
        self.connection.moved(
            moved.new,
            moved.reason,
            due,
            call_again_at=self._lifecycle.call_again_at,
            returns=self._lifecycle.wanted is told.Wanted.RUNNING,
        )
        self.reporter.moved(moved.old, moved.new, moved.reason, None if due is None else due - anyio.current_time())

    def recheck(self, after: float) -> None:
        """Probe the session that serves in so many seconds; what is on its way up proves itself."""
        self._generations.recheck(after)

    def sampled(self, number: int, usage: Usage) -> None:
        """What the processes of a generation use was looked at."""
        if number == (self._generations.serving or self._lifecycle.generation):
            self.reporter.processes.sampled(usage)
            self._handle(told.MemorySampled(number, usage.resident_bytes))

    # Seen from outside

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each step of the server's life, and when what it offers changed; returns what ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _tell_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def signs(self) -> Signs:
        """What is wrong with the server now, besides its state."""
        return signs_of(
            self._lifecycle,
            self.reporter,
            self._generations.shown(self._lifecycle.generation),
            lists=self._restorer,
            is_penniless=self._authorising.is_penniless,
        )

    def outline(self) -> Outline:
        """The server as it is now, in short."""
        cycle = self._lifecycle
        return Outline(name=cycle.spec.name, state=cycle.state, wanted=cycle.wanted.value, required=cycle.spec.required)

    def status(self) -> ServerStatus:
        """The server as it is now."""
        is_done = self._lifecycle.is_done
        return describe(
            self._lifecycle,
            self.connection,
            self.reporter,
            self._generations.shown(self._lifecycle.generation),
            since=self._since,
            entered_at=self._entered_at,
            wanted_by=BY_POLICY if is_done else self._goal.by,
            wanted_at=None if is_done else self._goal.at,
            token_expires_at=self._authorising.expires_at,
            subscriptions=self.subscriptions,
            lists=self._restorer,
        )

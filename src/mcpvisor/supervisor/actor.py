"""Owns one server: its lifecycle, its generations and its door. Everything that changes it goes through here, in order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

import anyio
import anyio.abc

from mcpvisor.supervisor import events
from mcpvisor.supervisor import lifecycle_messages as told
from mcpvisor.supervisor.asking import Asking
from mcpvisor.supervisor.auth.server_credentials import ServerCredentials
from mcpvisor.supervisor.auth.sources import Sources
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.describing import describe
from mcpvisor.supervisor.generation import Generation, Means
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
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec, change_between, rotates
from mcpvisor.supervisor.starts import StartGate, Urgency
from mcpvisor.supervisor.states import ADMITTING
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.store import Store
from mcpvisor.supervisor.subscriptions.standing import Wish
from mcpvisor.supervisor.subscriptions.telling import SubscriptionTeller
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.transports.http_memory import HttpMemory

BY_CONFIG: Final = "config"
BY_POLICY: Final = "its restart policy"


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
    on_question: QuestionSink
    """Answers the questions of servers that belong to no call with an answerer of its own."""


class _Standing(Enum):
    """What a generation was to the server when it ended."""

    COMING = auto()
    SERVING = auto()
    RETIRED = auto()


class ServerActor:
    """One server under supervision; `run` is its one task."""

    def __init__(self, spec: ServerSpec, shared: Shared) -> None:
        self.reporter = Reporter(spec, shared.bus, shared.observer)
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
        self._http_memory = HttpMemory()
        self._recall = Recall(shared.store, spec, report.mask)
        self._means = Means(
            opener=shared.opener,
            starts=shared.starts,
            era=self._recall.era,
            lasting=lasting,
            urgent=self._urgency,
            post=self._told,
        )
        self._sources = Sources(shared.store, shared.instance, report.mask)
        self._credentials = ServerCredentials(spec, report, self._sources)
        self._generations: dict[int, Generation] = {}
        self._serving: int | None = None
        """The generation that requests go to."""
        self._tasks: anyio.abc.TaskGroup | None = None
        self._woken = anyio.Event()
        self._removed = False
        self._early: list[told.Input] = []
        """Orders that came before `run` had begun."""
        self.gone = anyio.Event()
        """Set by the supervisor when `run` is over: nothing of the server is left."""
        self._since = time.time()
        self._wanted_by = BY_CONFIG
        self._wanted_at: float | None = None
        """When the operator gave the order that stands."""
        self._watchers: list[Callable[[], None]] = []
        self.reporter.on_list_notice = self._list_noticed
        self.reporter.on_offer = self._offered
        self.reporter.on_keep = self._recall.offered
        if self._recall.offer is not NOTHING:
            self._restorer.offer = self._recall.offer
            self.connection.recalled(self._recall.offer)
        self._asking = Asking(spec, shared.on_question, report)
        self.reporter.on_request = self._asking.answer
        self.reporter.on_update = self.subscriptions.updated
        self.reporter.on_missed = self.subscriptions.missed

    @property
    def spec(self) -> ServerSpec:
        return self._lifecycle.spec

    # Life

    async def run(self) -> None:
        """Serve the server until it was removed and nothing of it is left."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.reporter.added(self.spec)
            tasks.start_soon(self._credentials.run)
            self._want_resources()
            if not self._removed:
                self._want_by_spec()
            early, self._early = self._early, []
            for event in early:
                self._handle(event)
            while not (self._removed and self._lifecycle.is_gone):
                self._woken = anyio.Event()
                with anyio.move_on_at(self._lifecycle.deadline):
                    await self._woken.wait()
                if self._lifecycle.deadline is not None and anyio.current_time() >= self._lifecycle.deadline:
                    self._handle(told.TimePassed(self.reporter.ring.last_write))
            self._credentials.stop()
        self.reporter.removed()

    # Orders: each only edits what is wanted

    def apply(self, spec: ServerSpec) -> PlannedChange:
        """Take a new spec: keep, update in place, restart, start or stop."""
        change = change_between(self.spec, spec)
        if change.change is Change.KEEP:
            return change
        enabled_changed = spec.enabled != self.spec.enabled
        is_told_otherwise = spec.target != self.spec.target
        self.connection.respecified(spec)
        self.reporter.respecified(spec)
        self._recall.respecified(spec)
        self._asking.spec = spec
        self._reauthorise(spec)
        for generation in self._generations.values():
            generation.respecified(spec)
        self._handle(told.SpecChanged(spec, restart=change.change is Change.RESTART))
        if change.change is Change.UPDATE and is_told_otherwise:
            self._restorer.reread()  # other credentials may show other lists, and are tried by it at once
        self._want_resources()
        if enabled_changed:
            self._wanted_by, self._wanted_at = BY_CONFIG, None
            self._recall.no_order()
            self._want_by_spec()
        self.reporter.emit(
            events.ServerUpdated(at=time.time(), server=spec.name, change=change.change.value, fields=change.fields)
        )
        return change

    def _reauthorise(self, spec: ServerSpec) -> None:
        """Other credentials of the same client are for the sessions that stand, too; those of another are not for them."""
        if rotates(self.spec.target, spec.target):
            self._credentials.respecified(spec)
            return
        self._credentials.stop()
        if self._credentials.expires_at is not None:
            self.reporter.credentials_dropped("entry")
        self._credentials = ServerCredentials(spec, self.reporter, self._sources)
        if self._tasks is not None:
            self._tasks.start_soon(self._credentials.run)

    def order(self, order: str, wanted: told.Wanted | None, who: str) -> None:
        """Take an operator's order; `wanted` is the new goal, None for a restart."""
        self.reporter.emit(events.OperatorOrdered(at=time.time(), server=self.spec.name, order=order, who=who))
        self._wanted_by, self._wanted_at = f"{who} ({order})", time.time()
        self._recall.ordered(order, who)
        self._credentials.try_again()
        if wanted is None:
            self._handle(told.WantedSet(told.Wanted.RUNNING, f"restart ordered by {who}"))
            self._handle(told.RestartOrdered(f"restart ordered by {who}"))
        else:
            self._handle(told.WantedSet(wanted, f"{order} ordered by {who}"))

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
        return Urgency.AWAITED if self.connection.awaiting else Urgency.PLAIN

    def _want_by_spec(self) -> None:
        standing = self._recall.order
        if standing is not None:
            self._wanted_by, self._wanted_at = f"{standing.who} (disable)", standing.at
            self._handle(told.WantedSet(standing.wanted, f"disable ordered by {standing.who}"))
        elif self.spec.enabled:
            self._handle(told.WantedSet(told.Wanted.RUNNING, "wanted by its entry"))
        else:
            self._handle(told.WantedSet(told.Wanted.DISABLED, "disabled in its entry"))

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
        before = self._standing(event) if isinstance(event, told.Ended) else _Standing.RETIRED
        if isinstance(event, told.Negotiated) and event.generation == self._lifecycle.generation:
            self._session_opened(self._generations[event.generation])
        for command in self._lifecycle.handle(event, anyio.current_time()):
            self._do(command)
        match event:
            case told.Restored():
                self.connection.stale = False
                self._connect_ended(event.generation, "ready")
            case told.Ended():
                self._generation_ended(event, before)
            case told.Closed(generation=number):
                self._generations.pop(number, None)
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
                self._retire(number, drain)
            case told.Serve(generation=number):
                self._serve(number)
            case told.TimedOut(generation=number):
                self._connect_ended(number, "start_timeout")
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
            hooks=self.reporter,
            processes=self.reporter,
            stderr=self.reporter.ring,
            subtree=self._shared.subtree,
            credentials=self._credentials,
            memory=self._http_memory,
        )
        generation = Generation(opening, self._means)
        self._generations[number] = generation
        self._tasks.start_soon(generation.run)

    def _retire(self, number: int, drain: float) -> None:
        generation = self._generations.get(number)
        if generation is not None:
            generation.retire(drain)
        if number == self._serving or self._serving is None:
            self._serving = None
            self.connection.carried_by(None)
            self.connection.stale = self.connection.offer is not NOTHING
        else:
            self._resume(self._generations[self._serving])

    @staticmethod
    def _resume(serving: Generation) -> None:
        """Let the generation that serves go on, should another one that was to take over be given up."""
        if serving.session is not None:
            serving.session.resume()

    def _serve(self, number: int) -> None:
        generation = self._generations[number]
        if self._serving is not None:
            self._restorer.reread()  # the lists of the last one may have been read after those of this one
        self._serving = number
        self.connection.era = generation.handshake.era if generation.handshake else None
        self.connection.carried_by(generation.session)

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
            self._since = time.time()
            if moved.old in ADMITTING and moved.new not in ADMITTING:
                self.subscriptions.detach("there is no session now")
        self.connection.moved(moved.new, moved.reason, due, returns=self._lifecycle.wanted is told.Wanted.RUNNING)
        self.reporter.moved(moved.old, moved.new, moved.reason, None if due is None else due - anyio.current_time())

    def _session_opened(self, generation: Generation) -> None:
        handshake = generation.handshake
        if handshake is None:
            return
        self.reporter.session_opened(generation.number, handshake, generation.transport, generation.handshake_seconds or 0.0)

    def _connect_ended(self, number: int, outcome: str) -> None:
        generation = self._generations.get(number)
        if generation is not None:
            self.reporter.connect_ended(number, outcome, anyio.current_time() - generation.opened_at)

    def _standing(self, event: told.Ended) -> _Standing:
        generation = self._generations.get(event.generation)
        if generation is None or generation.is_retired:
            return _Standing.RETIRED
        return _Standing.SERVING if event.generation == self._serving else _Standing.COMING

    def _generation_ended(self, event: told.Ended, standing: _Standing) -> None:
        match standing:
            case _Standing.COMING:
                self._connect_ended(event.generation, event.cause)
                if self._serving is not None:
                    self._restorer.reread()  # the lists of one that is not to serve may have been read by now
            case _Standing.SERVING:
                self.reporter.session_lost(event.generation, event.cause, event.detail)
            case _Standing.RETIRED:
                pass

    def recheck(self, after: float) -> None:
        """Probe the session that serves in so many seconds; what is on its way up proves itself."""
        generation = self._generations.get(self._serving or 0)
        if generation is not None and generation.session is not None:
            generation.session.recheck(after)

    def sampled(self, number: int, usage: Usage) -> None:
        """What the processes of a generation use was looked at."""
        if number == (self._serving or self._lifecycle.generation):
            self.reporter.sampled(usage)
            self._handle(told.MemorySampled(number, usage.resident_bytes))

    # Seen from outside

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each step of the server's life, and when what it offers changed; returns what ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _tell_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def status(self) -> ServerStatus:
        """The server as it is now."""
        generation = self._generations.get(self._serving or self._lifecycle.generation)
        wanted_by = BY_POLICY if self._lifecycle.is_done else self._wanted_by
        wanted_at = None if self._lifecycle.is_done else self._wanted_at
        return describe(
            self._lifecycle,
            self.connection,
            self.reporter,
            generation,
            since=self._since,
            wanted_by=wanted_by,
            wanted_at=wanted_at,
            token_expires_at=self._credentials.expires_at,
            subscriptions=self.subscriptions,
        )

"""Owns the set of servers: takes what is wanted, and runs one actor for each.

Usable as a library, in any anyio program::

    async with Supervisor() as supervisor:
        await supervisor.apply(specs)
        await supervisor.connection("files").request("tools/list", principal=Principal("me"))
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.abc

from mcpvisor.supervisor.actor import EDITED, ServerActor, Shared
from mcpvisor.supervisor.asking import decline
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.clocks import Jump, watch_clocks
from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.errors import OrderRefused, UnknownServer
from mcpvisor.supervisor.events import ClockJumped, Event, GuardianLost, ServerEvent
from mcpvisor.supervisor.instances import Instances
from mcpvisor.supervisor.invalid import InvalidEntries, InvalidEntry
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.log_level import LEVELS
from mcpvisor.supervisor.looks import LOOKS, Looks
from mcpvisor.supervisor.observer import CallObserver, NoObserver
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.opening import Opener
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree
from mcpvisor.supervisor.process.environment import Marker, known_in
from mcpvisor.supervisor.process.guardian import Guardian
from mcpvisor.supervisor.process.sampling import Usage
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.questions import QuestionSink
from mcpvisor.supervisor.signs import NO_SIGNS, Signs
from mcpvisor.supervisor.spec import PlannedChange, ServerSpec, plan_changes
from mcpvisor.supervisor.starts import StartGate
from mcpvisor.supervisor.status import Outline, ServerStatus
from mcpvisor.supervisor.store import MemoryStore, Store
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.transports.opening import open_wire
from mcpvisor.supervisor.usage import sample_usage

PARALLEL_STARTS: Final = 32
RECHECK_STEP: Final = 0.05
RECHECK_SECONDS: Final = 5.0
"""After a jump of the clocks sessions are probed one after another, so far apart, and all within so long."""


class Order(StrEnum):
    """What an operator may order. A stop lasts until the daemon's next start, a disable until an enable."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"
    ENABLE = "enable"
    DISABLE = "disable"


_WANTED: Final[dict[Order, Wanted | None]] = {
    Order.START: Wanted.RUNNING,
    Order.ENABLE: Wanted.RUNNING,
    Order.STOP: Wanted.STOPPED,
    Order.DISABLE: Wanted.DISABLED,
    Order.RESTART: None,
}


class Supervisor:
    """Keeps servers at their declared goal for as long as its context lasts; leaving it ends every one of them."""

    def __init__(
        self,
        *,
        observer: CallObserver | None = None,
        instance: str | None = None,
        parallel_starts: int = PARALLEL_STARTS,
        opener: Opener = open_wire,
        guarded: bool = True,
        subtree: Subtree = NOT_TAKEN,
        store: Store | None = None,
        looks: Looks = LOOKS,
        on_question: QuestionSink = decline,
        known_secrets: KnownSecrets | None = None,
    ) -> None:
        """`guarded`: a guardian process ends all servers should this process be killed.

        `on_question` answers what servers ask, but for the calls that bring an answerer of their own; it has to come to an end
        by itself. Without one elicitations are declined, and there are no roots and nobody to sample from.

        `subtree`: where servers get control groups of their own, as `take_subtree` returns it. `store`: what outlives the
        process; without one it is kept in memory. `known_secrets` learns what is secret in the specs of all servers.
        """
        self._known_secrets = known_secrets or KnownSecrets()
        self.bus = EventBus()
        self.instance = instance or secrets.token_hex(8)
        """Marks every process that is started here, so that none can be lost."""
        self._shared = Shared(
            bus=self.bus,
            observer=observer or NoObserver(),
            opener=opener,
            starts=StartGate(parallel_starts, random.random),
            instance=self.instance,
            subtree=subtree,
            store=store or MemoryStore(),
            known_secrets=self._known_secrets,
            on_question=on_question,
        )
        self._actors: dict[str, ServerActor] = {}
        self._private: dict[str, Instances] = {}
        self._parting: set[Instances] = set()
        """The instances of servers that were removed."""
        self._invalid = InvalidEntries(self.bus)
        self._leaving: set[ServerActor] = set()
        self._log_level: str | None = None
        self._stack = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._looking = anyio.CancelScope()
        self._guarded = guarded
        self._looks = looks

    async def __aenter__(self) -> Self:
        if self._guarded:
            await self._stack.enter_async_context(Guardian(self.instance, lost=self._guardian_lost))
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._tasks.start_soon(self._look)
        return self

    def _guardian_lost(self) -> None:
        self.bus.emit(GuardianLost(at=time.time()))

    async def _look(self) -> None:
        with self._looking:
            async with anyio.create_task_group() as tasks:
                clocks = partial(watch_clocks, self._looks.clocks, self._clock_jumped, interval=self._looks.clock_interval)
                tasks.start_soon(clocks)
                await sample_usage(self.instance, self._running, self._sampled, interval=self._looks.usage_interval)

    def _clock_jumped(self, jump: Jump) -> None:
        """One event, and one look at every session, spread over a while: what slept with us may be gone."""
        self.bus.emit(ClockJumped(at=time.time(), seconds=jump.seconds, asleep=jump.asleep))
        actors = [*self._actors.values(), *(one.actor for private in self._private.values() for one in private)]
        step = min(RECHECK_STEP, RECHECK_SECONDS / max(1, len(actors)))
        for number, actor in enumerate(actors):
            actor.recheck(number * step)

    def _sampled(self, marker: Marker, usage: Usage) -> None:
        actor = self._labelled().get(marker.server)
        if actor is not None:
            actor.sampled(marker.generation, usage)

    def _labelled(self) -> dict[str, ServerActor]:
        """Everything that runs, by the name that marks its processes."""
        private = {one.label: one.actor for instances in self._private.values() for one in instances}
        return {**self._actors, **private}

    def _running(self) -> dict[Marker, int]:
        return {
            Marker(self.instance, label, generation): pid
            for label, actor in self._labelled().items()
            for pid, generation in actor.reporter.processes.running.items()
        }

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.close()
        self._looking.cancel()
        try:
            return await self._stack.__aexit__(kind, value, tb)
        except BaseExceptionGroup as group:
            if group.exceptions != (value,):
                raise
            return None  # an error of the body leaves as it was, not in a group of one

    async def close(self) -> None:
        """End every server, all at once, each by its own ladder; returns when nothing is left."""
        for name in self.names():
            self._remove(name, "the supervisor is stopping")
        for gone in [actor.gone for actor in self._leaving]:
            await gone.wait()
        for instances in list(self._parting):
            await instances.gone()

    def stop_seconds(self) -> float:
        """The most that servers are given to end by themselves, should `close` be called now."""
        return max((actor.spec.stop_seconds for actor in (*self._actors.values(), *self._leaving)), default=0.0)

    # What is wanted

    def plan(self, specs: Iterable[ServerSpec]) -> list[PlannedChange]:
        """What `apply` would do, without doing it."""
        return plan_changes({name: actor.spec for name, actor in self._actors.items()}, {spec.name: spec for spec in specs})

    async def apply(self, specs: Iterable[ServerSpec], *, reason: str = EDITED) -> list[PlannedChange]:
        """Make these the servers; whatever is the same in both stays untouched. `reason` is shown where one restarts for it.

        Returns the whole plan, in name order, once it is what is wanted; waits for no server. A server whose name is still
        held by a removed one starts when that one is gone entirely.
        """
        wanted = {spec.name: spec for spec in specs}
        plan = self.plan(wanted.values())
        self._known_secrets.learn(value for spec in wanted.values() for value in known_in(spec, os.environ))
        self._invalid.drop(wanted)
        for planned in plan:
            spec = wanted.get(planned.server)
            if spec is None:
                self._remove(planned.server, "it was removed from the configuration")
            elif planned.server in self._actors:
                self._actors[planned.server].apply(spec, reason)
                self._private[planned.server].apply(spec)
            else:
                self._add(spec)
        return plan

    def _add(self, spec: ServerSpec) -> None:
        if self._tasks is None:
            raise RuntimeError("a supervisor is used inside its context")
        actor = ServerActor(spec, self._shared)
        actor.want_log_level(self._log_level)
        self._actors[spec.name] = actor
        actor.connection.private = self._private[spec.name] = Instances(actor, self._shared, self._tasks)
        self._private[spec.name].want_log_level(self._log_level)
        former = [leaving.gone for leaving in self._leaving if leaving.spec.name == spec.name]
        self._tasks.start_soon(self._run, actor, former)

    async def _run(self, actor: ServerActor, former: list[anyio.Event]) -> None:
        # Shielded: whoever cancels the supervisor's user must not cut off the orderly end, which is `close`.
        with anyio.CancelScope(shield=True):
            for gone in former:
                await gone.wait()
            try:
                await actor.run()
            finally:
                self._leaving.discard(actor)
                actor.gone.set()

    def _remove(self, name: str, reason: str) -> None:
        actor = self._actors.pop(name)
        self._leaving.add(actor)
        actor.remove(reason)
        private = self._private.pop(name)
        private.end_all(reason)
        self._parting = {one for one in self._parting if list(one)} | {private}

    def show_invalid(self, entries: Iterable[InvalidEntry]) -> None:
        """Show these entries, which cannot be servers as they are written, as failed beside the servers."""
        self._invalid.show(entry for entry in entries if entry.name not in self._actors)

    async def order(self, name: str, order: Order, *, who: str) -> None:
        """Take an operator's order; returns once it is what is wanted. Raises UnknownServer, and OrderRefused."""
        status = self._actor(name).status()
        if order in (Order.START, Order.RESTART) and status.wanted == Wanted.DISABLED:
            raise OrderRefused(f"{name} is disabled by {status.wanted_by}: `mcpvisor enable {name}` first")
        self._actor(name).order(order.value, _WANTED[order], who)
        self._private[name].order(order.value, who)

    def want_log_level(self, level: str | None) -> None:
        """Bring all servers of the older era to this log level, now and after each new session; returns at once.

        None: nobody wants one. A session that was told a level is set back to `info` then, a new one is told nothing. Servers
        of the newer era are asked with each request (`log_level` of `Connection.request`). Raises ValueError for a level that
        the protocol does not know.
        """
        if level is not None and level not in LEVELS:
            raise ValueError(f"{level!r} is no log level; there are {', '.join(LEVELS)}")
        self._log_level = level
        for actor in self._actors.values():
            actor.want_log_level(level)
        for private in self._private.values():
            private.want_log_level(level)

    def session_ended(self, client: Principal) -> None:
        """A conversation of a client is over: what ran for it alone is ended."""
        for private in self._private.values():
            private.session_ended(client)

    # What is

    def names(self) -> list[str]:
        """The servers, in name order."""
        return sorted(self._actors)

    def connection(self, name: str) -> Connection:
        """The door to a server. Raises UnknownServer."""
        return self._actor(name).connection

    def spec(self, name: str) -> ServerSpec | None:
        """What is wanted of a server; None for an entry that is not valid. Raises UnknownServer."""
        return None if name in self._invalid else self._actor(name).spec

    def status(self, name: str) -> ServerStatus:
        """One server, or invalid entry, as it is now. Raises UnknownServer."""
        if name in self._invalid:
            return self._invalid.status(name)
        status, private = self._actor(name).status(), self._private[name]
        return replace(status, instances=len(private), instance_failing=private.failing) if private else status

    def statuses(self) -> list[ServerStatus]:
        """All servers, those that are on their way out too, and invalid entries as they are now, in name order."""
        leaving = {actor.spec.name: actor.status for actor in self._leaving}
        seen = leaving | {name: partial(self.status, name) for name in (*self._actors, *self._invalid.names())}
        return [seen[name]() for name in sorted(seen)]

    def outlines(self) -> list[Outline]:
        """The same in short, for those who ask often."""
        actors = {actor.spec.name: actor for actor in self._leaving} | self._actors
        seen = {name: actor.outline for name, actor in actors.items()}
        seen |= {name: partial(self._invalid.status, name) for name in self._invalid.names()}
        return [seen[name]() for name in sorted(seen)]

    def subscriptions(self, name: str) -> Subscriptions:
        """Which resources of a server are watched, and for whom; it ends with the server. Raises UnknownServer."""
        return self._actor(name).subscriptions

    def stderr_tail(self, name: str, lines: int = 50) -> list[str]:
        """The newest cleaned lines of a server's stderr, oldest first. Raises UnknownServer."""
        return [] if name in self._invalid else self._actor(name).reporter.ring.tail(lines)

    def stderr_lines(self, name: str, lines: int = 50) -> list[StderrLine]:
        """As `stderr_tail`, each line with when it was written. Raises UnknownServer."""
        return [] if name in self._invalid else self._actor(name).reporter.ring.timed_tail(lines)

    def history(self, name: str) -> list[Event]:
        """The newest events of a server, oldest first. Raises UnknownServer."""
        return [event for _, event in self.numbered_history(name)]

    def numbered_history(self, name: str) -> list[tuple[int, Event]]:
        """The same, each with its number in the order in which events of all servers came. Raises UnknownServer."""
        return self._invalid.numbered(name) if name in self._invalid else list(self._actor(name).reporter.numbered)

    def signs(self, name: str) -> Signs:
        """What is wrong with a server now, besides its state. Raises UnknownServer."""
        return NO_SIGNS if name in self._invalid else self._actor(name).signs()

    def tell(self, event: ServerEvent) -> None:
        """Hand on what happened to a server outside of the supervisor; while the server is configured it is in its history."""
        if event.server in self._actors:
            reporter = self._actors[event.server].reporter
            reporter.emit(reporter.of_others(event))
        else:
            self.bus.emit(event)

    def has_given(self, name: str, texts: Sequence[str]) -> None:
        """A server gets these as the answer to a question: they are masked in what it says from now on."""
        if name in self._actors:
            self._actors[name].reporter.mask.learn_passing(texts, "answer")
            self._private[name].has_given(texts)

    def told(self, name: str, value: Any) -> Any:
        """A text or plain value of a server as it may be shown, without secrets of its own or of others."""
        return self._actors[name].reporter.mask.told(value) if name in self._actors else self._known_secrets.value(value)

    async def told_offer(self, name: str) -> Offer:
        """What a server offers, as `told`. Raises UnknownServer."""
        actor = self._actor(name)
        return await actor.told_offer()

    async def wait_until(self, name: str, accept: Callable[[ServerStatus], bool]) -> ServerStatus:
        """Return as soon as `accept` likes the server's status; the caller brings the deadline. Raises UnknownServer."""
        actor = self._actor(name)
        while True:
            status = actor.status()
            if accept(status):
                return status
            changed = anyio.Event()
            forget = actor.watch(changed.set)
            try:
                await changed.wait()
            finally:
                forget()

    def _actor(self, name: str) -> ServerActor:
        try:
            return self._actors[name]
        except KeyError:
            if name in self._invalid:
                raise UnknownServer(self._invalid.reason(name)) from None
            raise UnknownServer(f"no server is named {name!r}; `mcpvisor status` lists them all") from None

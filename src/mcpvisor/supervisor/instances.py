"""Owns the instances of one server that run for one client each: who has one, how many, and when each of them ends."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import anyio
import anyio.abc

from mcpvisor.supervisor import events
from mcpvisor.supervisor.actor import ServerActor, Shared
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import ServerSpec, Sharing
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.store import MemoryStore
from mcpvisor.supervisor.target import target_digest
from mcpvisor.supervisor.transports.wire import Wire

MAX_INSTANCES: Final = 32
"""Instances of one server that run for one client each; a client more is refused."""

IDLE_SECONDS: Final = 600.0
"""Seconds without a call after which an instance ends; the next call starts another one."""

LEFT_SECONDS: Final = 60.0
"""Seconds without a call after which an instance counts as left, where all are taken and its place is needed."""

FULL_RETRY: Final = 30.0
LEAVING_RETRY: Final = 1.0
"""Seconds after which it is worth to come again where all are taken: none can be ended, or one is ending already."""

PASSED_ON: Final = (
    events.ServerNotified,
    events.QuestionAsked,
    events.QuestionAnswered,
    events.StderrWritten,
    events.MessageRefused,
    events.AccessDenied,
)
"""What an instance tells in the name of its server; all else is of a state, a process or a catalog, and those are told of the
shared one only."""

_AT_REST: Final = (State.STOPPED, State.DISABLED)
_FAILING: Final = (State.BACKOFF, State.CRASH_LOOP, State.FAILED, State.AUTH_REQUIRED)

_numbers = itertools.count(1)


class _OwnBus(EventBus):
    """The events of one instance: the few that concern others are passed on."""

    def __init__(self, bus: EventBus, client: Principal) -> None:
        super().__init__()
        self._bus = bus
        self._client = client

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.ServerNotified):
            event = replace(event, client=self._client)
        if isinstance(event, PASSED_ON):
            self._bus.emit(event)


@dataclass(slots=True, eq=False)
class Instance:
    """One instance. `label` is the server's name with a number of its own, and marks its processes."""

    label: str
    client: Principal
    """Whose it is; without a session where it is for all of an identity."""
    actor: ServerActor
    uses: int = 0
    used_at: float = 0.0
    released: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when the last of its calls is over."""

    @property
    def connection(self) -> Connection:
        return self.actor.connection

    @contextmanager
    def in_use(self) -> Generator[None]:
        """A call is under way."""
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1
            self.used_at = anyio.current_time()
            if not self.uses:
                released, self.released = self.released, anyio.Event()
                released.set()


class Instances:
    """The instances of one server beside the shared one, which serves the catalog, subscriptions and the operator."""

    def __init__(self, parent: ServerActor, shared: Shared, tasks: anyio.abc.TaskGroup) -> None:
        self._parent = parent
        self._shared = shared
        self._tasks = tasks
        self._spec = parent.spec
        self._log_level: str | None = None
        self._of: dict[Principal, Instance] = {}
        self._leaving: set[Instance] = set()
        self._emptied = anyio.Event()

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[Instance]:
        """Those that run, and those that are ending."""
        return iter([*self._of.values(), *self._leaving])

    @property
    def failing(self) -> str:
        """One of them that cannot serve, in words; empty where all can."""
        for one in self._of.values():
            door = one.connection
            if door.state in _FAILING:
                return f"{one.label} of {one.client.name} is {door.state.value}: {door.reason}"
        return ""

    # The door

    def of(self, principal: Principal) -> Instance | None:
        """The instance that the calls of a client go to, which is started where there is none; None: the shared one.

        Raises RequestFailed (`rejected`) where there are too many.
        """
        key = self._key(principal)
        if key is None or self._parent.connection.state in _AT_REST:
            return None
        one = self._of.get(key)
        if one is None or (one.uses and principal.session is None and self._spec.sharing is Sharing.PER_CLIENT):
            if len(self._of) + len(self._leaving) >= MAX_INSTANCES:
                if not self._leaving:
                    self._make_room(key.name)
                text = f"{self._spec.name} runs for {MAX_INSTANCES} clients already (sharing), and an end of one is waited for"
                seconds = LEAVING_RETRY if self._leaving else FULL_RETRY
                raise RequestFailed(Outcome.REJECTED, "too_many_instances", text, retry_after_s=seconds)
            one = self._of[key] = self._started(key)
        return one

    def _make_room(self, asker: str) -> None:
        """End what was not called for longest, of whoever has the most; nobody who has fewer than `asker` loses any.

        Who has clearly more than `asker` loses what is not in use just now, everybody else what counts as left.
        """
        share = Counter(one.client.name for one in self._of.values())
        left_at = anyio.current_time() - LEFT_SECONDS
        idle = [
            one
            for one in self._of.values()
            if not one.uses
            and share[one.client.name] >= share[asker]
            and (share[one.client.name] > share[asker] + 1 or one.used_at <= left_at)
        ]
        if idle:
            self._end(
                min(idle, key=lambda one: (-share[one.client.name], one.used_at)), "its place was needed for another client"
            )

    def existing(self, principal: Principal) -> Instance | None:
        """The instance of a client, if it has one."""
        key = self._key(principal)
        return None if key is None else self._of.get(key)

    def _key(self, principal: Principal) -> Principal | None:
        """Whose instance it would be; None for calls that go to the shared one."""
        if principal.is_operator or self._spec.sharing is Sharing.SHARED:
            return None
        if self._spec.sharing is Sharing.PER_IDENTITY:
            return Principal(principal.name)
        return principal if principal.session is not None else self._free(principal.name)

    def _free(self, name: str) -> Principal:
        """Under what a call without a session runs: each that is under way may be of another client, and has one of its own."""
        keys = [Principal(name, f"call {number}") for number in range(MAX_INSTANCES)]
        idle = (key for key in keys if key in self._of and not self._of[key].uses)
        return next(idle, next((key for key in keys if key not in self._of), keys[0]))

    # What is wanted

    def apply(self, spec: ServerSpec) -> None:
        """A new spec, for all of them; who is to share with whom may be another question by it."""
        former, self._spec = self._spec, spec
        if former.sharing is not spec.sharing or not spec.enabled:
            self.end_all("its entry was edited")
        for one in self._of.values():
            one.actor.apply(_own(spec))

    def has_given(self, texts: Sequence[str]) -> None:
        """The server gets these as an answer, whichever of them has asked: see `Supervisor.has_given`."""
        for one in self._of.values():
            one.actor.reporter.mask.learn_passing(texts, "answer")

    def order(self, order: str, who: str) -> None:
        """An operator's order: what is not to run has no instances, and a restart is one of each."""
        if order in ("stop", "disable"):
            self.end_all(f"{order} ordered by {who}")
        elif order == "restart":
            for one in self._of.values():
                one.actor.order(order, None, who)

    def want_log_level(self, level: str | None) -> None:
        """See `Supervisor.want_log_level`."""
        self._log_level = level
        for one in self._of.values():
            one.actor.want_log_level(level)

    def session_ended(self, client: Principal) -> None:
        """That conversation is over, and with it what ran for it alone."""
        one = self._of.get(client)
        if one is not None and client.session is not None:
            self._end(one, "its client has left")

    def end_all(self, why: str) -> None:
        """End every one of them, each in good order."""
        for one in list(self._of.values()):
            self._end(one, why)

    async def gone(self) -> None:
        """Return when nothing of any of them is left."""
        while self._of or self._leaving:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    # Life

    def _started(self, client: Principal) -> Instance:
        label = f"{self._spec.name}@{next(_numbers)}"
        shared = replace(
            self._shared,
            bus=_OwnBus(self._shared.bus, client),
            store=self._memory(),
            opener=partial(self._opened, label),
        )
        one = Instance(label, client, ServerActor(_own(self._spec), shared), used_at=anyio.current_time())
        one.actor.want_log_level(self._log_level)
        self._tasks.start_soon(self._live, one)
        self._told(events.InstanceStarted(at=time.time(), server=self._spec.name, label=label, client=client.name))
        return one

    def _opened(self, label: str, opening: Opening) -> AbstractAsyncContextManager[Wire]:
        return self._shared.opener(replace(opening, label=label))

    def _memory(self) -> MemoryStore:
        """What is known of the server, for one that nobody remembers after its end."""
        memory, target = MemoryStore(), target_digest(self._spec)
        known = self._shared.store.recall(self._spec.name, target)
        if known is not None:
            memory.remember(self._spec.name, target, known)
        return memory

    async def _live(self, one: Instance) -> None:
        # Shielded, as every server is: whoever cancels the supervisor's user must not cut off the orderly end.
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch_idle, one)
                    await one.actor.run()
                    tasks.cancel_scope.cancel()
            finally:
                one.actor.gone.set()
                self._leaving.discard(one)
                if self._of.get(one.client) is one:
                    del self._of[one.client]
                if not self._of and not self._leaving:
                    self._emptied.set()

    async def _watch_idle(self, one: Instance) -> None:
        while one.uses or anyio.current_time() < one.used_at + IDLE_SECONDS:
            if one.uses:
                await one.released.wait()
            else:
                await anyio.sleep_until(one.used_at + IDLE_SECONDS)
        self._end(one, "nobody has called it for a while")

    def _end(self, one: Instance, why: str) -> None:
        if self._of.get(one.client) is not one:
            return
        del self._of[one.client]
        self._leaving.add(one)
        one.actor.remove(why)
        self._told(
            events.InstanceEnded(at=time.time(), server=self._spec.name, label=one.label, client=one.client.name, why=why)
        )

    def _told(self, event: events.Event) -> None:
        self._shared.bus.emit(event)


def _own(spec: ServerSpec) -> ServerSpec:
    """The spec of an instance. Nobody has waited for it to be up before its first call, which therefore may take as long."""
    return replace(spec, required=False, subscriptions=(), wait_ready=max(spec.wait_ready, spec.start_timeout))

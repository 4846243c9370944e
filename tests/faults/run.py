"""Owns a fault run: callers on every server, faults as fast as recovery allows, and a record of all that is seen."""

from __future__ import annotations

import gc
import os
import random
import signal
import time
from collections import Counter

import anyio
import psutil
from tests.faults.ledger import Ledger
from tests.faults.oracles import Called, Moved, Recovery, Span, Updated
from tests.faults.pace import Pace
from tests.faults.plan import Fault, Kind
from tests.faults.puppets import Puppet

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import Event, ProcessEnded, ProcessStarted, ResourceUpdated, ServerStateChanged, StderrWritten
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

ME = Principal("caller")
CALLERS = 2
LAST_WORDS = 1.0
"""Seconds at the end in which what has changed last may be told."""

RESCUE = 20.0
"""Seconds that a server is waited for which has not recovered in time, so that the run can go on and tell of all."""

ENOUGH = 5
"""Servers that do not come back at all; nothing more is done then."""


class FaultRun:
    """One run over puppets under one supervisor; what it finds is in the ledger, and in the puppets' logs."""

    def __init__(self, supervisor: Supervisor, puppets: list[Puppet], pace: Pace, ledger: Ledger, seed: int) -> None:
        self.supervisor = supervisor
        self.puppets = {puppet.name: puppet for puppet in puppets}
        self.pace = pace
        self.ledger = ledger
        self.done: Counter[Kind] = Counter()
        self.resident: dict[int, int] = {}
        """Resident bytes of this process after so many faults."""
        self.complaints: list[str] = []
        """What stdio puppets have written to stderr, which is nothing unless they have a fault that nobody ordered."""
        self.began = self.over = 0.0
        """When every server was well, and when it was well again; what changed between the two must have been told."""
        self._seed = seed
        self._lost = 0
        """How many times a server did not come back."""
        self._marks: tuple[int, ...] = ()
        self._dead: dict[str, tuple[int, float, str]] = {}
        """Stdio servers that are dead or stopped: the pid, since when, and by what."""

    async def run(self, planned: dict[str, list[Fault]], marks: tuple[int, ...]) -> None:
        """All faults; returns once every server has recovered from its last one. Memory is looked at after `marks` faults."""
        self._marks = marks
        self.supervisor.bus.attach(self._heard)
        async with anyio.create_task_group() as load:
            load.start_soon(self.ledger.watch_stalls)
            async with anyio.create_task_group() as drivers:
                for name in planned:
                    await self._recover(name, "its start", time.monotonic())
                self.began = time.monotonic()
                for number, name in enumerate(planned):
                    for caller in range(CALLERS):
                        load.start_soon(self._call, name, random.Random(f"{self._seed}/{number}/{caller}"), caller)
                for name, faults in planned.items():
                    drivers.start_soon(self._drive, name, faults)
            self.over = time.monotonic()
            await anyio.sleep(LAST_WORDS)
            load.cancel_scope.cancel()
        for name in list(self._dead):
            self._revived(name)
        self.supervisor.bus.detach(self._heard)

    # Load

    async def _call(self, name: str, dice: random.Random, caller: int) -> None:
        connection, http = self.supervisor.connection(name), self.puppets[name].server.transport == "http"
        for number in range(1_000_000):
            ident, deadline = f"{name}/{caller}/{number}", round(dice.uniform(0.3, 2.0), 3)
            arguments = {"id": ident, "work": dice.choice((0, 0, 0.02, 0.2)), "stream": http and dice.random() < 0.5}
            began = time.monotonic()
            try:
                params = {"name": "do", "arguments": arguments}
                result = await connection.request("tools/call", params, principal=ME, deadline=deadline)
                outcome, text = "ok", result["content"][0]["text"]
            except RequestFailed as failure:
                outcome, text = failure.outcome.value, f"{failure.cause}: {failure.message}"
            self.ledger.add(Called(name, ident, began, time.monotonic(), deadline, outcome, text))
            await anyio.sleep(dice.uniform(0.05, 0.25))  # what makes the load, not a wait for anything

    # Faults

    async def _drive(self, name: str, faults: list[Fault]) -> None:
        for fault in faults:
            await anyio.sleep(fault.pause)
            while self._lost < ENOUGH and not await self._inject(fault):
                await self._recover(name, "what came before it", time.monotonic())
            if self._lost >= ENOUGH:
                return
            self._count(fault.kind)
            if fault.settles:
                await self._recover(name, f"{fault.kind.value} {fault.options}", time.monotonic())
        await self.puppets[name].order(do="mend")
        await self._recover(name, "all of it", time.monotonic())

    def _count(self, kind: Kind) -> None:
        self.done[kind] += 1
        if self.done.total() in self._marks:
            self.resident[self.done.total()] = resident()

    async def _inject(self, fault: Fault) -> bool:
        """Do it; False when the server is in no state to have it."""
        puppet, options = self.puppets[fault.server], fault.options
        if puppet.server.transport == "stdio" and fault.kind in (Kind.KILL, Kind.STOP):
            return await self._hit_stdio(fault)
        match fault.kind:
            case Kind.KILL:
                return await self._kill_http(puppet, options["away"])
            case Kind.STOP:
                return await self._stop_http(puppet, options["lasts"])
            case Kind.STDOUT:
                return await puppet.order(do="close_stdout", **options)
            case Kind.RESET:
                return await puppet.order(do="reset")
            case Kind.WIPE:
                return await puppet.order(do="wipe", **options)
            case Kind.UNAUTHORIZED:
                return await puppet.order(do="refuse", status=401, **options)
            case Kind.BUSY:
                return await puppet.order(do="refuse", status=429, **options)
            case Kind.CUT:
                return await puppet.order(do="cut", **options)
            case Kind.SLOW:
                return await puppet.order(do="slow", **options)

    async def _hit_stdio(self, fault: Fault) -> bool:
        name = fault.server
        pid = self.supervisor.status(name).pid
        if pid is None or name in self._dead:
            return False
        os.kill(pid, signal.SIGKILL if fault.kind is Kind.KILL else signal.SIGSTOP)
        self._dead[name] = pid, time.monotonic(), f"{fault.kind.value} {fault.options}"
        if fault.options.get("lasts") is not None:
            await anyio.sleep(fault.options["lasts"])
            if self._dead.get(name, (None,))[0] == pid == self.supervisor.status(name).pid:
                self._revived(name)
                os.kill(pid, signal.SIGCONT)
        return True

    def _revived(self, name: str) -> None:
        _, since, what = self._dead.pop(name)
        self.ledger.add(Span(since, time.monotonic(), name, what))

    async def _kill_http(self, puppet: Puppet, away: float) -> bool:
        since = time.monotonic()
        puppet.end()
        await anyio.sleep(away)
        await puppet.launch()
        self.ledger.add(Span(since, time.monotonic(), puppet.name, f"kill, away {away}"))
        return True

    async def _stop_http(self, puppet: Puppet, lasts: float) -> bool:
        assert puppet.process is not None
        since = time.monotonic()
        puppet.process.send_signal(signal.SIGSTOP)
        await anyio.sleep(lasts)
        self.ledger.add(Span(since, time.monotonic(), puppet.name, f"stop, lasts {lasts}"))
        puppet.process.send_signal(signal.SIGCONT)
        return True

    # What is seen

    def _heard(self, event: Event) -> None:
        match event:
            case ServerStateChanged(server=server, new=new):
                self.ledger.add(Moved(server, time.monotonic(), new))
            case ResourceUpdated(server=server, reason=reason):
                self.ledger.add(Updated(server, time.monotonic(), exact=reason == "notified"))
            case StderrWritten(server=server, lines=lines):
                self.complaints += [f"{server}: {line}" for line in lines]
            case ProcessEnded(server=server, pid=pid) | ProcessStarted(server=server, pid=pid):
                if server in self._dead and (isinstance(event, ProcessStarted) or self._dead[server][0] == pid):
                    self._revived(server)

    async def _recover(self, name: str, fault: str, over: float) -> None:
        with anyio.move_on_after(RESCUE):
            await self._until_well(name)
            self.ledger.add(Recovery(name, fault, over, time.monotonic()))
            return
        self._lost += 1
        status = self.supervisor.status(name)
        self.ledger.add(Recovery(name, fault, over, None, f"{status.state.value}: {status.reason}"))

    async def _until_well(self, name: str) -> None:
        """Return once the server is shown ready, and has just answered."""
        connection = self.supervisor.connection(name)
        while True:
            await self.supervisor.wait_until(name, lambda status: status.state is State.READY)
            try:
                await connection.request("resources/read", {"uri": self.puppets[name].uri}, principal=ME, deadline=1.0)
            except RequestFailed:
                await anyio.sleep(0.02)  # it is shown ready still, and nothing tells when to ask again
                continue
            if self.supervisor.status(name).state is State.READY:
                return


def resident() -> int:
    """The bytes that this process holds now."""
    gc.collect()
    return psutil.Process().memory_info().rss


def descriptors() -> dict[str, str]:
    """The open file descriptors of this process, and what each is."""
    found: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that has read the folder
    return found

"""Planned replacements over servers in memory, under virtual time: who is served by what, whatever happens meanwhile."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import ConnectEnded, Event, ServerRestarted, ServerStateChanged, SessionLost
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import (
    Era,
    HttpTarget,
    Intensity,
    RestartPolicy,
    ServerSpec,
    StdioLaunch,
    StopGraces,
    WantedResource,
)
from mcpvisor.supervisor.states import ADMITTING, State
from mcpvisor.supervisor.supervisor import Order, Supervisor
from mcpvisor.supervisor.transports.wire import Wire, WireEnd
from tests.supervisor.memory_wire import MemoryServer
from tests.supervisor.resource_wire import ResourceServer


class ProcessServer(MemoryServer):
    """A server whose generations each have a process: its pid is a thousand above the number."""

    is_broken = False
    """Whether a further process exits at once."""

    @asynccontextmanager
    async def open(self, opening: Opening) -> AsyncIterator[Wire]:
        pid = 1000 + opening.generation
        opening.processes.process_started(pid)
        async with super().open(opening) as wire:
            if self.is_broken:
                wire.finish(EXITED)
            try:
                yield wire
            finally:
                wanted = wire.end is None or wire.end.cause != "process_exited"
                code = None if wanted else 3
                signal = 9 if wanted else None
                opening.processes.process_ended(pid, exit_code=code, signal=signal, seconds=1.0, wanted=wanted, why="")


ME = Principal("test")
EXITED = WireEnd(cause="process_exited", detail="the server exited with code 3", exit_code=3)
GONE = WireEnd(cause="connect_failed", detail="refused")

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


def web(edit: int = 0, **changes: object) -> ServerSpec:
    headers = (("x-edit", str(edit)),)
    return replace(ServerSpec(name="web", target=HttpTarget(url="http://127.0.0.1:1/mcp", headers=headers)), **changes)


def program(edit: int = 0, **changes: object) -> ServerSpec:
    target = StdioLaunch(command="memory", args=(str(edit),))
    return replace(ServerSpec(name="web", target=target, stop=StopGraces(stdin=0, term=0), overlap=True), **changes)


@asynccontextmanager
async def supervised(server: MemoryServer, spec: ServerSpec) -> AsyncIterator[Supervisor]:
    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(100_000):
        async with Supervisor(opener=opener, guarded=False) as supervisor:
            await supervisor.apply([spec])
            await settled(supervisor)
            yield supervisor
    assert server.opened == server.closed


async def settled(supervisor: Supervisor) -> None:
    await supervisor.wait_until("web", lambda status: status.is_settled)


async def call(supervisor: Supervisor) -> Any:
    return await supervisor.connection("web").request("tools/call", {"name": "echo"}, principal=ME)


async def test_calls_in_flight_finish_on_the_session_they_began_on() -> None:
    """The next call goes to the new session at once, and the old one is closed when its call is done."""
    server = MemoryServer(kind="http")

    async def slow(params: dict[str, Any]) -> Any:
        del params
        generation = server.opened
        await anyio.sleep(8)
        return {"content": [], "generation": generation}

    server.handlers["tools/call"] = slow
    results: list[int] = []
    async with supervised(server, web()) as supervisor, anyio.create_task_group() as tasks:

        async def caller() -> None:
            results.append((await call(supervisor))["generation"])

        tasks.start_soon(caller)
        await anyio.sleep(1)
        await supervisor.order("web", Order.RESTART, who="test")
        await settled(supervisor)
        tasks.start_soon(caller)
        await anyio.sleep(6)
        open_meanwhile = server.opened - server.closed
        await anyio.sleep(3)
        open_later = server.opened - server.closed

    assert ([1, 2], 2, 1) == (results, open_meanwhile, open_later)


async def test_a_session_that_does_not_come_up_hurts_no_call() -> None:
    """Calls go on as before, the lists are those of the session that serves, and the edit is in force once it can be."""
    server = MemoryServer(kind="http")
    async with supervised(server, web()) as supervisor:
        server.open_failure = GONE
        await supervisor.apply([web(1)])
        shown = await supervisor.wait_until("web", lambda status: status.state is State.DEGRADED)
        await call(supervisor)
        tried = [event.outcome for event in supervisor.history("web") if isinstance(event, ConnectEnded)]
        lost = [event for event in supervisor.history("web") if isinstance(event, SessionLost)]
        tools = [tool["name"] for tool in supervisor.connection("web").offer.tools]
        server.open_failure = None
        await settled(supervisor)
        await call(supervisor)

    assert "its entry was changed, but the next session did not come up (refused); the former one serves on" == shown.reason
    assert (True, False, False) == (shown.replacing, shown.is_healthy, shown.stale)
    assert (["ready", "connect_failed"], []) == (tried, lost)
    assert ["echo"] == tools


@pytest.mark.parametrize("make", [web, program])
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_one_session_is_left_that_serves(make: Any, seed: int) -> None:
    """Edits, orders, losses and refusals in any order: calls fail only where nothing serves, and it ends as it is wanted."""
    chance = random.Random(seed)
    server = MemoryServer(kind="http" if make is web else "stdio")
    policy = RestartPolicy(intensity=Intensity(ends=1000, within=60.0))
    wrong: list[str] = []
    async with supervised(server, make(restart=policy)) as supervisor:
        for step in range(150):
            match chance.randrange(6):
                case 0:
                    await supervisor.apply([make(step, restart=policy)])
                case 1:
                    await supervisor.order("web", chance.choice([Order.RESTART, Order.START]), who="test")
                case 2 if server.wire is not None and server.wire.end is None:
                    server.end("session_lost" if make is web else "process_exited")
                case 3:
                    server.open_failure = chance.choice([GONE, None])
                case _:
                    await anyio.sleep(chance.choice([0.0, 0.001, 0.5, 5.0, 20.0]))
            serves = supervisor.status("web").state in ADMITTING
            try:
                await call(supervisor)
            except RequestFailed as failure:
                if serves and failure.cause not in ("connect_failed", "session_lost", "process_exited", "backoff"):
                    wrong.append(f"{step}: {failure!r}")
        server.open_failure = None
        await supervisor.order("web", Order.RESTART, who="test")
        await settled(supervisor)
        await call(supervisor)
        await anyio.sleep(60)
        left = server.opened - server.closed

    assert ([], 1) == (wrong, left)


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_the_session_that_serves_on_keeps_its_subscriptions(era: Era) -> None:
    """A session that was to take over and was lost on its way leaves the watched resources to the one that serves."""
    server = ResourceServer(kind="http")
    watched = web(era=era, subscriptions=(WantedResource(uri="x://1"),))
    async with supervised(server, watched) as supervisor:
        first = server.wire

        async def lose(params: dict[str, Any]) -> Any:
            if server.wire is first:
                return {"resources": []}
            server.end("connect_failed")
            return await anyio.sleep_forever()

        server.handlers["resources/list"] = lose
        await supervisor.apply([replace(web(1), era=era, subscriptions=watched.subscriptions)])
        await supervisor.wait_until("web", lambda status: status.state is State.DEGRADED and status.replacing)
        server.open_failure = GONE
        with anyio.fail_after(30):
            while not supervisor.subscriptions("web").working:
                await supervisor.subscriptions("web").stirred.wait()
        [shown] = supervisor.subscriptions("web").statuses()

    assert ("active", "") == (shown.state.value, shown.reason)


async def test_a_successor_that_died_lends_nothing_to_the_one_that_serves() -> None:
    """Pid and generation are those of the process that serves; how another one ended is told with its own."""
    server = ProcessServer()
    async with supervised(server, program()) as supervisor:
        server.is_broken = True
        await supervisor.apply([program(1)])
        shown = await supervisor.wait_until("web", lambda status: status.last_exit != "")
        server.is_broken = False
        await settled(supervisor)
        await anyio.sleep(5)
        later = supervisor.status("web")

    assert (1, 1001) == (shown.generation, shown.pid)
    exit_shown = (shown.last_exit, shown.last_exit_generation, shown.last_exit_pid, shown.last_exit_wanted)
    assert ("exited with code 3 after 1.0 s", 2, 1002, False) == exit_shown
    assert later.generation > 2
    assert 1000 + later.generation == later.pid
    assert ("was killed by SIGKILL after 1.0 s", 1, 1001, True) == (
        later.last_exit,
        later.last_exit_generation,
        later.last_exit_pid,
        later.last_exit_wanted,
    )


async def test_while_a_successor_is_tried_no_time_of_a_try_is_told() -> None:
    """The time that was told is over when the try begins: events, and so metrics, name none until the next one is known."""
    server = MemoryServer(kind="http")
    told: list[float | None] = []
    async with supervised(server, web()) as supervisor:

        def take(event: Event) -> None:
            told.extend([event.next_attempt] if isinstance(event, ServerStateChanged) else [])

        server.open_failure = GONE
        await supervisor.apply([web(1)])
        await supervisor.wait_until("web", lambda status: status.next_attempt is not None)
        supervisor.bus.attach(take)
        before = server.opened
        server.open_failure = None
        server.silent.add("initialize")
        trying = await supervisor.wait_until("web", lambda status: server.opened > before and status.next_attempt is None)
        during = list(told)
        server.open_failure = GONE
        server.silent.clear()
        server.end("connect_failed", "refused")
        waiting = await supervisor.wait_until("web", lambda status: status.next_attempt is not None)

    assert (State.DEGRADED, True, [None]) == (trying.state, trying.replacing, during)
    assert "and is tried again now; the former one serves on" in trying.reason
    assert (State.DEGRADED, True) == (waiting.state, told[1] is not None)


async def test_tries_of_a_successor_are_no_restarts_and_have_a_time() -> None:
    """Each failed try is a connect with its outcome, and the next one has a time, told anew; a restart is what took over."""
    server = MemoryServer(kind="http")
    async with supervised(server, web()) as supervisor:
        server.open_failure = GONE
        await supervisor.apply([web(1)])
        await supervisor.wait_until("web", lambda status: status.generation == 1 and server.opened >= 5)
        waiting = await supervisor.wait_until("web", lambda status: status.next_attempt is not None)
        tried = [event.outcome for event in supervisor.history("web") if isinstance(event, ConnectEnded)]
        due = [event.next_attempt for event in supervisor.history("web") if isinstance(event, ServerStateChanged)]
        restarted = [event for event in supervisor.history("web") if isinstance(event, ServerRestarted)]
        server.open_failure = None
        await settled(supervisor)
        status = supervisor.status("web")
        told = [event.reason for event in supervisor.history("web") if isinstance(event, ServerRestarted)]

    failed = tried.count("connect_failed")
    assert (State.DEGRADED, 0, True) == (waiting.state, waiting.restarts, failed >= 4)
    assert failed == len({at for at in due if at is not None})
    assert ([], 1, ["spec"]) == (restarted, status.restarts, told)
    assert status.next_attempt is None


async def test_an_order_does_not_hide_that_an_edit_is_not_in_force() -> None:
    """A restart that is ordered meanwhile tries at once, and the reason goes on to say that the edit is not in force."""
    server = MemoryServer(kind="http")
    async with supervised(server, web()) as supervisor:
        server.open_failure = GONE
        await supervisor.apply([web(1)])
        await supervisor.wait_until("web", lambda status: server.opened >= 6 and status.next_attempt is not None)
        before = server.opened
        await supervisor.order("web", Order.RESTART, who="test")
        at_once = supervisor.status("web")
        later = await supervisor.wait_until("web", lambda status: server.opened > before and status.next_attempt is not None)

    edit, serves = "its entry was changed, but the next session did not come up (refused)", "; the former one serves on"
    assert (State.DEGRADED, f"{edit}, and is tried again now{serves}") == (at_once.state, at_once.reason)
    assert (State.DEGRADED, f"{edit}{serves}") == (later.state, later.reason)


async def test_a_successor_that_is_not_to_be_started_again_is_not() -> None:
    """An exit code of `prevent_codes` holds for a successor as well, and the reason says so."""
    server = ProcessServer()
    policy = RestartPolicy(prevent_codes=(3,))
    async with supervised(server, program(restart=policy)) as supervisor:
        server.is_broken = True
        await supervisor.apply([program(1, restart=policy)])
        shown = await supervisor.wait_until("web", lambda status: status.state is State.DEGRADED)
        await anyio.sleep(10)

    assert ("(restart.prevent_codes)" in shown.reason, None, 2) == (True, shown.next_attempt, server.opened)

"""Planned replacements of real processes: calls in flight finish, are never repeated, and the reason is said."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from tests.e2e.case import Case

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import ProcessEnded, ProcessStarted, ServerRestarted, ServerStateChanged
from mcpvisor.supervisor.looks import Looks
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.spec import RestartPolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order, Supervisor

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024


async def sleeping(case: Case, texts: list[str], seconds: float) -> None:
    """A call that is in flight for a while."""
    texts.append(await case.call("sleep", seconds=seconds))


async def test_an_overlap_serves_without_a_gap(case: Callable[..., Awaitable[Case]]) -> None:
    """The next process is up before the last is told to end; what is in flight finishes, what comes goes to the new one."""
    puppet = await case("stdio_moody", overlap=True)
    first = await puppet.call("pid")
    texts: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleeping, puppet, texts, 1.5)
        await puppet.until(lambda: puppet.asked("tools/call") == 2)
        await puppet.supervisor.order("puppet", Order.RESTART, who="test")
        seen = [await puppet.call("pid")]
        await puppet.until(lambda: puppet.status.generation == 2 and not puppet.status.reason)
        second = await puppet.call("pid")
        both = {int(first), int(second)} <= set(find_marked(puppet.supervisor.instance))
    await puppet.until(lambda: bool(puppet.told(ProcessEnded)))

    assert ["slept"] == texts
    assert set(seen) <= {first, second}
    assert first != second
    assert both
    assert [(1, int(first)), (2, int(second))] == [(one.generation, one.pid) for one in puppet.told(ProcessStarted)]
    assert [(1, int(first), True)] == [(one.generation, one.pid, one.wanted) for one in puppet.told(ProcessEnded)]
    assert State.DRAINING not in [event.new for event in puppet.told(ServerStateChanged)]
    assert int(second) == puppet.status.pid


async def test_a_new_entry_that_does_not_come_up_leaves_the_old_process_in_service(
    supervisor: Supervisor, servers: Path, tmp_path: Path
) -> None:
    """The reason says so; an edit that is right takes over."""

    def spec(script: str) -> ServerSpec:
        target = StdioLaunch(command=sys.executable, args=(str(servers / script),))
        return ServerSpec(name="puppet", target=target, overlap=True, stop=StopGraces(stdin=0.2, term=0.2))

    case = Case(supervisor, "puppet", tmp_path / "none")
    await supervisor.apply([spec("stdio_moody.py")])
    first = await case.call("pid")
    await supervisor.apply([spec("not_there.py")])
    shown = await case.reach(State.DEGRADED)
    same = await case.call("pid")
    await supervisor.apply([spec("stdio_sleeper.py")])
    await case.until(lambda: case.status.state is State.READY and not case.status.reason)

    assert "its entry was changed, but the next session did not come up (the server exited with code 2" in shown.reason
    assert shown.reason.endswith("; the former one serves on")
    assert first == same
    assert first != await case.call("pid")


async def test_a_call_that_comes_in_a_restart_waits_for_it(case: Callable[..., Awaitable[Case]]) -> None:
    """Without an overlap there is a gap, and whoever comes in it is served by the next process."""
    puppet = await case("stdio_moody")
    first = await puppet.call("pid")
    texts: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleeping, puppet, texts, 0.7)
        await puppet.until(lambda: puppet.asked("tools/call") == 2)
        await puppet.supervisor.order("puppet", Order.RESTART, who="test")
        draining = puppet.status.state
        second = await puppet.call("pid")

    assert (["slept"], State.DRAINING) == (texts, draining)
    assert first != second


@pytest.mark.parametrize("overlap", [False, True])
async def test_who_uses_too_much_memory_is_recycled_in_good_order(servers: Path, tmp_path: Path, overlap: bool) -> None:
    """Calls in flight finish, none runs twice, the reason says why, and it is done once in `stable_after`."""
    log = tmp_path / "log"
    target = StdioLaunch(command=sys.executable, args=(str(servers / "stdio_moody.py"),), env=(("FIELD_LOG", str(log)),))
    spec = ServerSpec(
        name="puppet", target=target, overlap=overlap, stop=StopGraces(stdin=0.2, term=0.2),
        restart=RestartPolicy(max_memory=60 * MIB, stable_after=300.0),
    )  # fmt: skip
    texts: list[str] = []
    async with Supervisor(looks=Looks(usage_interval=0.2)) as supervisor:
        case = Case(supervisor, "puppet", log)
        await supervisor.apply([spec])
        first = await case.call("grow", mib=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleeping, case, texts, 1.2)
            await case.call("grow", mib=80)
            await case.until(lambda: bool(case.told(ServerRestarted)))
        await case.until(lambda: case.status.generation == 2 and case.status.state is State.READY)
        second = await case.call("grow", mib=80)
        with anyio.move_on_after(1):
            await supervisor.wait_until("puppet", lambda status: status.generation == 3)
        reasons = [event.reason for event in case.told(ServerStateChanged)]
        causes = [event.reason for event in case.told(ServerRestarted)]
        generation = case.status.generation
    left = find_marked(supervisor.instance)

    assert ["slept"] == texts
    assert first != second
    assert any("over the 60 MiB of restart.max_memory" in reason for reason in reasons)
    assert ["memory"] == causes
    assert (2, []) == (generation, left)
    assert 4 == case.asked("tools/call") == len(case.noted("done"))


async def test_what_is_cut_off_at_the_end_of_its_drain_is_never_repeated(case: Callable[..., Awaitable[Case]]) -> None:
    """A call that outlasts `drain` fails as one that may have run."""
    puppet = await case("stdio_moody", drain=0.3)
    await puppet.call("pid")
    failures: list[RequestFailed] = []

    async def call() -> None:
        failures.append(await puppet.failure("tools/call", {"name": "sleep", "arguments": {"seconds": 30}}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await puppet.until(lambda: puppet.asked("tools/call") == 2)
        await puppet.supervisor.order("puppet", Order.RESTART, who="test")
    await puppet.reach(State.READY)

    assert [Outcome.MAYBE_EXECUTED] == [failure.outcome for failure in failures]
    assert 2 == puppet.asked("tools/call")

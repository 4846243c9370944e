"""Servers that are killed: what callers see, how soon the next call works, and that nothing is ever left."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.spec import RestartPolicy, ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio
ME = Principal("test")


def sleeper(servers: Path, *flags: str) -> ServerSpec:
    launch = StdioLaunch(command=sys.executable, args=(str(servers / "stdio_sleeper.py"), *flags))
    return ServerSpec(name="sleeper", target=launch, restart=RestartPolicy(intensity=None))


async def ready(supervisor: Supervisor) -> int:
    status = await supervisor.wait_until("sleeper", lambda status: status.state is State.READY)
    assert status.pid is not None
    return status.pid


async def call(supervisor: Supervisor, tool: str, **arguments: object) -> str:
    params = {"name": tool, "arguments": arguments}
    result = await supervisor.connection("sleeper").request("tools/call", params, principal=ME)
    return result["content"][0]["text"]


def zombies() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] == b"Z" and int(fields[1]) == os.getpid():
                found.append(int(name))
    return found


@pytest.mark.alone
@pytest.mark.parametrize(("flags", "within"), [((), 0.1), (("--hold",), 0.3)])
async def test_calls_in_flight_fail_at_once(
    supervisor: Supervisor, servers: Path, flags: tuple[str, ...], within: float
) -> None:
    """Within 100 ms, or 300 ms while another process holds the server's stdout, as `maybe_executed`."""
    with anyio.fail_after(20):
        await supervisor.apply([sleeper(servers, *flags)])
        pid = await ready(supervisor)
        failures: list[tuple[RequestFailed, float]] = []

        async def caller() -> None:
            try:
                await call(supervisor, "sleep", seconds=60)
            except RequestFailed as failure:
                failures.append((failure, time.monotonic()))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(caller)
            await call(supervisor, "echo", text="so the calls are out")
            killed_at = time.monotonic()
            os.kill(pid, signal.SIGKILL)

    assert {(failure.outcome, failure.cause) for failure, _ in failures} == {(Outcome.MAYBE_EXECUTED, "process_exited")}
    assert max(at - killed_at for _, at in failures) < within


@pytest.mark.alone
async def test_the_next_call_succeeds_within_a_second(supervisor: Supervisor, servers: Path) -> None:
    """A caller who comes right after the kill waits for the new process and gets its answer."""
    with anyio.fail_after(20):
        await supervisor.apply([sleeper(servers)])
        pid = await ready(supervisor)
        await call(supervisor, "echo", text="one")
        os.kill(pid, signal.SIGKILL)
        await supervisor.wait_until("sleeper", lambda status: status.state is not State.READY)
        began = time.monotonic()
        new_pid = int(await call(supervisor, "pid"))
        took = time.monotonic() - began

    assert new_pid != pid
    assert took < 1.0


async def test_two_hundred_kills_leave_nothing(supervisor: Supervisor, servers: Path) -> None:
    """No descriptor, no process with our mark, no zombie; the server is there after each of them."""
    with anyio.fail_after(120):
        await supervisor.apply([sleeper(servers)])
        pids = {await ready(supervisor)}
        await call(supervisor, "echo", text="warm")
        descriptors = len(os.listdir("/proc/self/fd"))
        for number in range(200):
            pid = int(await call(supervisor, "pid"))
            pids.add(pid)
            os.kill(pid, signal.SIGKILL)
            await supervisor.wait_until("sleeper", lambda status, number=number: status.generation > number + 1)
        last = int(await call(supervisor, "pid"))
        after = len(os.listdir("/proc/self/fd"))
        marked = find_marked(supervisor.instance)

    assert len(pids) == 200
    assert after == descriptors
    assert marked == [last]
    assert zombies() == []

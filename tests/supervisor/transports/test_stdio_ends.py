"""How the wire to a stdio server ends, and what is left of its processes then: nothing."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.spec import StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.stdio import open_stdio
from mcpvisor.supervisor.transports.wire import OpenFailed

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def failure_of(wire, method, params=None) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await wire.request(method, params or {})
    return caught.value


async def gone(pid: int) -> None:
    """Wait until a process is no more than a zombie."""
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        await anyio.sleep(0.005)


@pytest.mark.alone
async def test_killed_server_fails_what_is_in_flight_at_once(opened, told):
    """After kill -9 a request in flight fails within 100 ms as maybe executed, and the reason names the signal."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await wire.request("echo", {})
            failures: list[tuple[RequestFailed, float]] = []

            async def call() -> None:
                failure = await failure_of(wire, "silent")
                failures.append((failure, time.perf_counter() - began))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                began = time.perf_counter()
                os.kill(wire.pid, signal.SIGKILL)
            failure, seconds = failures[0]

    assert Outcome.MAYBE_EXECUTED == failure.outcome
    assert "process_exited" == failure.cause
    assert "killed by SIGKILL" in failure.message
    assert seconds < 0.1
    assert signal.SIGKILL == wire.end.signal
    assert [{"pid": wire.pid, "exit_code": None, "signal": 9, "wanted": False, "why": ""}] == [
        {key: value for key, value in end.items() if key != "seconds"} for end in told.ended
    ]


@pytest.mark.alone
async def test_kill_is_seen_although_another_process_holds_stdout(opened, told):
    """A process in a session of its own that holds stdout delays the failure to 300 ms at most, and is killed on leaving."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            holder = (await wire.request("offspring", {"session": True}))["pid"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(failure_of, wire, "silent")
                await anyio.wait_all_tasks_blocked()
                began = time.perf_counter()
                os.kill(wire.pid, signal.SIGKILL)
            seconds = time.perf_counter() - began
        await gone(holder)

    assert seconds < 0.3
    assert [] == told.living()


@pytest.mark.parametrize("params", [{}, {"session": True}, {"bare": True}], ids=["group", "own-session", "no-mark"])
async def test_offspring_dies_with_a_server_that_ends_by_itself(opened, told, params):
    """What a server has started is killed on its end, whether in its group, in its own session, or without the mark."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            child = (await wire.request("offspring", params))["pid"]
            await failure_of(wire, "exit", {"code": 3})
            end = wire.end
        await gone(child)

    assert ("process_exited", 3) == (end.cause, end.exit_code)
    assert end.detail.startswith("the server exited with code 3 after ")
    assert [] == told.living()
    assert [(3, None, False)] == [(one["exit_code"], one["signal"], one["wanted"]) for one in told.ended]


async def test_last_answer_of_a_server_that_exits_is_delivered(opened):
    """What a server has written before its exit still comes in, however large."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            result = await wire.request("answer_and_exit", {"size": 60_000})
            await wire.ended.wait()

    assert 60_000 == len(result["last"])
    assert "process_exited" == wire.end.cause


async def test_closed_stdout_is_an_end(opened, told):
    """A server that closes its stdout and lives on ends the wire with that as the reason, and is ended."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            failure = await failure_of(wire, "close_stdout")

    assert (Outcome.MAYBE_EXECUTED, "stdout_closed") == (failure.outcome, failure.cause)
    assert [(signal.SIGTERM, True)] == [(one["signal"], one["wanted"]) for one in told.ended]


async def test_closed_stdin_is_an_end(opened):
    """A server that closes its stdin ends the wire at the next request, which surely was not sent."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await wire.request("close_stdin", {})
            failure = await failure_of(wire, "echo")

    assert (Outcome.NOT_SENT, "stream_failed") == (failure.outcome, failure.cause)
    assert "closed its stdin" in failure.message


async def test_request_after_the_end_is_not_sent(opened):
    """A request on a wire that has ended fails at once, as one that was not sent."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py") as wire:
            await failure_of(wire, "exit")
            failure = await failure_of(wire, "echo")

    assert (Outcome.NOT_SENT, "process_exited") == (failure.outcome, failure.cause)


async def test_server_that_leaves_at_the_end_of_stdin_is_not_signalled(opened, told):
    """Closing stdin is enough for a server in good order: it exits by itself, with its own code."""
    with anyio.fail_after(20):
        async with opened("stdio_scripted.py", graces=StopGraces(stdin=20, term=4)) as wire:
            await wire.request("echo", {})

    assert [(0, None, True)] == [(one["exit_code"], one["signal"], one["wanted"]) for one in told.ended]


@pytest.mark.alone
async def test_stubborn_tree_is_ended_in_the_graces(opened, told, handshake):
    """A launcher whose child ignores SIGTERM and the end of stdin is ended with its child, in the graces and a second."""
    with anyio.fail_after(8):
        async with opened("stdio_stubborn_tree.py") as wire:
            await handshake(wire)
            members = told.living()
            began = time.perf_counter()
        seconds = time.perf_counter() - began

    assert 2 == len(members)
    assert seconds < 1.6
    assert [] == told.living()


async def test_ending_cannot_be_cancelled(opened, told):
    """A cancelled generation ends its processes all the same."""
    with anyio.fail_after(20), anyio.move_on_after(0.3):
        async with opened("stdio_stubborn_tree.py"):
            await anyio.sleep_forever()

    assert 1 == len(told.ended)
    assert [] == told.living()


async def test_server_that_chatters_while_it_ends_is_not_held_up(opened, told):
    """A server that writes much on stderr and stdout after the end of its stdin can do so, and exits by itself."""
    script = "import sys; sys.stdin.read(); [f.write('x' * 999_999) for f in (sys.stderr, sys.stdout)]; sys.stdout.flush()"
    with anyio.fail_after(60):
        async with opened("stdio_inline.py", script, graces=StopGraces(stdin=20, term=1)):
            pass

    assert [(0, None)] == [(one["exit_code"], one["signal"]) for one in told.ended]


async def test_two_hundred_kills_leave_nothing(opened, told):
    """After 200 rounds of open, kill -9 and close there are the same descriptors, no process of ours and no zombie."""

    def children() -> str:
        return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()

    async def round_of(command: partial) -> None:
        async with command() as wire:
            os.kill(wire.pid, signal.SIGKILL)
            await wire.ended.wait()

    with anyio.fail_after(60):
        await round_of(partial(opened, "stdio_scripted.py"))
        before, kin = sorted(os.listdir("/proc/self/fd")), children()
        for _ in range(200):
            await round_of(partial(opened, "stdio_scripted.py"))
        after = sorted(os.listdir("/proc/self/fd"))

    assert before == after
    assert kin == children()
    assert [] == told.living()
    assert 201 == len(told.ended)


# Not under trio, whose guest mode, as the test runner uses it, waits for readiness in threads of its own.
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_thread_is_kept_for_a_child(opened):
    """Ten servers at one time cost not one thread."""
    with anyio.fail_after(20):
        before = len(os.listdir("/proc/self/task"))
        async with anyio.create_task_group() as tasks:
            ready = []

            async def hold(done: anyio.Event) -> None:
                async with opened("stdio_scripted.py") as wire:
                    await wire.request("echo", {})
                    ready.append(wire)
                    await done.wait()

            done = anyio.Event()
            for _ in range(10):
                tasks.start_soon(hold, done)
            while len(ready) < 10:
                await anyio.sleep(0.01)
            during = len(os.listdir("/proc/self/task"))
            done.set()

    assert during <= before  # idle workers of earlier sweeps may have left meanwhile


async def test_missing_program_is_told_with_the_path(told):
    """A program that is not there raises OpenFailed before anything is started."""
    context = open_stdio(
        StdioLaunch(command="no-such-program-here", env=(("PATH", "/nowhere"),)),
        told,
        StderrRing(told.stderr),
        marker=Marker(told.instance, "puppet", 1),
        graces=StopGraces(),
        max_message=1000,
        processes=told,
    )
    with pytest.raises(OpenFailed) as caught:
        async with context:
            pass

    assert "no_such_program" == caught.value.end.cause
    assert "PATH=/nowhere" in caught.value.end.detail
    assert [] == told.started


@pytest.mark.parametrize("end", ["\\n", ""])
async def test_the_last_answer_is_read_however_long_that_takes(opened, end):
    """A server that answers at length and exits has answered, with a line end or without."""
    script = (
        "import sys, json; m = json.loads(sys.stdin.readline());"
        "rows = [{'number': n, 'name': 'x' * 20, 'values': [n, 1.5, None]} for n in range(60_000)];"
        f"sys.stdout.write(json.dumps({{'jsonrpc': '2.0', 'id': m['id'], 'result': {{'rows': rows}}}}) + '{end}')"
    )
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            until = time.thread_time() + 0.001  # a loop that is busy, where reading takes four times as long
            while time.thread_time() < until:
                pass
            turns += 1
            await anyio.lowlevel.checkpoint()

    with anyio.fail_after(30):
        async with opened("stdio_inline.py", script) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            result = await wire.request("rows", {})
            tasks.cancel_scope.cancel()

    assert 60_000 == len(result["rows"])
    assert turns > 100

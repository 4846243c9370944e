"""Servers that fall silent in every way there is, as real processes: each is noticed within the probes' own time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.e2e.case import ME, Case
from tests.ports import kept_port

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import ProbeMissed, ServerRestarted, SessionLost
from mcpvisor.supervisor.spec import HttpTarget, ProbePolicy, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

PROBE = ProbePolicy(interval=0.6, timeout=0.3, failures=3)
WITHIN = PROBE.interval + PROBE.timeout * PROBE.failures
SLACK = 1.0
"""What a busy machine may add."""


async def until_replaced(case: Case) -> float:
    """Seconds until the generation that serves now is given up."""
    began = time.monotonic()
    with anyio.fail_after(10):
        await case.supervisor.wait_until(case.name, lambda status: status.state not in (State.READY, State.DEGRADED))
    return time.monotonic() - began


class TestProcesses:
    @pytest.mark.alone
    async def test_a_stopped_process(self, case: Callable[..., Awaitable[Case]]) -> None:
        """A child under SIGSTOP shows as degraded first and is then replaced by one that runs."""
        puppet = await case("stdio_moody", probe=PROBE)
        pid = (await puppet.reach(State.READY)).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        took = await until_replaced(puppet)
        after = await puppet.reach(State.READY)

        assert took < WITHIN + SLACK
        assert [1, 2, 3] == [event.misses for event in puppet.told(ProbeMissed)]
        assert ["probe"] == [event.cause for event in puppet.told(SessionLost)]
        assert after.pid != pid

    @pytest.mark.alone
    async def test_a_deaf_process(self, case: Callable[..., Awaitable[Case]]) -> None:
        """A child that reads no more, whether or not its pipe is full."""
        puppet = await case("stdio_moody", probe=PROBE, call_timeout=0.5, concurrency=64)
        await puppet.reach(State.READY)
        await puppet.call("deaf")

        async def fill() -> None:
            with suppress(RequestFailed):
                await puppet.call("pid", text="x" * 100_000)

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(fill)
            took = await until_replaced(puppet)

        # The calls excuse it for as long as they have time themselves.
        assert took < 0.5 + WITHIN + PROBE.timeout + SLACK
        await puppet.reach(State.READY)
        assert await puppet.call("pid")

    @pytest.mark.alone
    async def test_a_closed_stdout(self, case: Callable[..., Awaitable[Case]]) -> None:
        """A child that can say nothing any more is found out at once, and its call fails then."""
        puppet = await case("stdio_moody", probe=PROBE)
        await puppet.reach(State.READY)
        began = time.monotonic()
        failure = await puppet.failure("tools/call", {"name": "close_stdout"})

        assert ("maybe_executed", "stdout_closed") == (failure.outcome.value, failure.cause)
        assert time.monotonic() - began < SLACK
        await puppet.reach(State.READY)

    async def test_one_that_is_silent_to_ping_alone(self, case: Callable[..., Awaitable[Case]]) -> None:
        """It is not started again for that: its lists are asked for instead."""
        puppet = await case("stdio_moody", "--mute", "ping", probe=ProbePolicy(interval=0.2, timeout=2.0, failures=2))
        pid = (await puppet.reach(State.READY)).pid
        await puppet.until(lambda: puppet.asked("tools/list") > 8)

        assert (pid, 1) == (puppet.status.pid, puppet.status.generation)
        assert 2 == puppet.asked("ping")

    async def test_a_busy_process_is_left_alone(self, case: Callable[..., Awaitable[Case]]) -> None:
        """One that is stopped in the middle of a call has the time of that call, and may go on."""
        puppet = await case("stdio_moody", probe=PROBE, call_timeout=30.0)
        pid = (await puppet.reach(State.READY)).pid
        assert pid is not None
        texts: list[str] = []

        async def call() -> None:
            texts.append(await puppet.call("sleep", seconds=0.1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await puppet.until(lambda: puppet.asked("tools/call") == 1)
            os.kill(pid, signal.SIGSTOP)
            try:
                await puppet.until(lambda: len(puppet.told(ProbeMissed)) > PROBE.failures)
                reason = puppet.status.reason
            finally:
                os.kill(pid, signal.SIGCONT)

        assert (["slept"], 1) == (texts, puppet.status.generation)
        assert "busy: a probe was not answered" == reason


@pytest.fixture
def address() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The URL of an HTTP server, and its process."""
    script = Path(__file__).parents[1] / "servers" / "lite.py"
    with kept_port() as port:
        process = subprocess.Popen([sys.executable, str(script), "--http", str(port)])
        try:
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def reached(supervisor: Supervisor, spec: ServerSpec) -> AsyncIterator[Case]:
    await supervisor.apply([spec])
    case = Case(supervisor, spec.name, Path("/nonexistent"))
    await case.reach(State.READY)
    yield case


class TestHttp:
    @pytest.mark.alone
    async def test_a_server_that_accepts_and_never_answers(
        self, supervisor: Supervisor, address: tuple[str, subprocess.Popen[bytes]]
    ) -> None:
        """The kernel goes on to take connections for a stopped server; once it goes on it is ready again."""
        url, process = address
        spec = ServerSpec(name="web", target=HttpTarget(url=url), probe=PROBE, start_timeout=1.0)
        async with reached(supervisor, spec) as case:
            process.send_signal(signal.SIGSTOP)
            try:
                took = await until_replaced(case)
            finally:
                process.send_signal(signal.SIGCONT)
            await case.reach(State.READY, seconds=20)

            assert took < WITHIN + SLACK
            assert ["probe"] == [event.cause for event in case.told(SessionLost)]

    async def test_a_planned_restart_never_stops_to_serve(
        self, supervisor: Supervisor, address: tuple[str, subprocess.Popen[bytes]]
    ) -> None:
        """An edit brings up the next session while calls go on with the last one: none fails, and none waits."""
        url, _ = address
        spec = ServerSpec(name="web", target=HttpTarget(url=url))
        edited = ServerSpec(name="web", target=HttpTarget(url=url, headers=(("x-team", "search"),)))
        answers: list[str] = []
        states: set[State] = set()
        async with reached(supervisor, spec) as case, anyio.create_task_group() as tasks:
            door = supervisor.connection("web")

            async def caller() -> None:
                while True:
                    result = await door.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, principal=ME)
                    answers.append(result["content"][0]["text"])
                    states.add(case.status.state)

            tasks.start_soon(caller)
            await case.until(lambda: len(answers) > 20)
            former = case.status.generation
            await supervisor.apply([edited])
            await case.until(lambda: case.status.generation > former and not case.status.reason)
            more = len(answers)
            await case.until(lambda: len(answers) > more + 20)
            tasks.cancel_scope.cancel()

        assert {"x"} == set(answers)
        assert {State.READY} == states
        assert ["spec"] == [event.reason for event in case.told(ServerRestarted) if event.generation > former]

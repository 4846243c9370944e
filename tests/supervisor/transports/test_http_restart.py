"""Callers of a server that is killed and started again: each of them gets an outcome."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import anyio
import pytest
from tests.ports import kept_port
from tests.supervisor.transports.http_rig import BOTH, SERVERS, echo, session
from tests.waiting import until

from mcpvisor.supervisor.errors import RequestFailed

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


@pytest.fixture
def port() -> Iterator[int]:
    """Where the server is started, and started again."""
    with kept_port() as port:
        yield port


async def test_restart_under_100_callers(port: int) -> None:
    """With 100 callers at once, a kill and a restart leave nobody waiting, and the new server's refusal ends the session."""
    outcomes: Counter[str] = Counter()
    first = await started(port)
    try:
        async with session(f"http://127.0.0.1:{port}/mcp") as wire:

            async def call() -> None:
                while wire.end is None:
                    try:
                        await echo(wire)
                        outcomes["ok"] += 1
                    except RequestFailed as failure:
                        outcomes[f"{failure.outcome.value} {failure.cause}"] += 1
                        await anyio.sleep(0.01)

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for _ in range(100):
                        tasks.start_soon(call)
                    await until(lambda: outcomes["ok"] >= 300)
                    end(first)
                    await until(lambda: outcomes["not_sent connect_failed"] >= 100)
                    first = await started(port)
            assert wire.end is not None
            assert ("session_lost", True, 0) == (wire.end.cause, wire.suspect, wire.in_flight)
    finally:
        end(first)
    known = {
        "ok",
        "maybe_executed stream_failed",
        "not_sent connect_failed",
        "maybe_executed session_lost",
        "not_sent session_lost",
    }
    assert set() == set(outcomes) - known
    assert outcomes["maybe_executed stream_failed"] <= 100
    assert outcomes["maybe_executed session_lost"] <= 100


async def started(port: int) -> subprocess.Popen[bytes]:
    """The small server on a port, once it listens."""
    process = subprocess.Popen([sys.executable, str(SERVERS / "lite.py"), "--http", str(port)])
    with anyio.fail_after(20):
        while True:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.01)
            else:
                await stream.aclose()
                return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()

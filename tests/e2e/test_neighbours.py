"""Servers that cannot start must not slow down those that can, and each must say what is wrong with it."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import anyio
import pytest

from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.alone]
RUNS = 5


def python(name: str, script: Path, *arguments: str, **more: object) -> ServerSpec:
    return ServerSpec(name=name, target=StdioLaunch(command=sys.executable, args=(str(script), *arguments)), **more)


def good(servers: Path) -> list[ServerSpec]:
    return [python(f"good{number}", servers / "lite.py") for number in range(5)]


def bad(servers: Path) -> list[ServerSpec]:
    return [
        python("hangs", servers / "stdio_sleeper.py", "--hang-init", start_timeout=4.0),
        ServerSpec(name="missing", target=StdioLaunch(command="no-such-mcp-server")),
        python("floods", servers / "stdio_stderr_flood.py", "4096"),
    ]


async def ready_seconds(servers: list[ServerSpec]) -> float:
    """How long the good servers take until all are ready."""
    async with Supervisor() as supervisor:
        began = time.monotonic()
        await supervisor.apply(servers)
        for name in supervisor.names():
            if name.startswith("good"):
                await supervisor.wait_until(name, lambda status: status.state is State.READY)
        return time.monotonic() - began


async def test_bad_servers_do_not_slow_down_good_ones(servers: Path) -> None:
    """The median time of five good servers over five alternating runs differs by less than 50 ms."""
    alone: list[float] = []
    beside: list[float] = []
    with anyio.fail_after(120):
        for _ in range(RUNS):
            alone.append(await ready_seconds(good(servers)))
            beside.append(await ready_seconds([*good(servers), *bad(servers)]))

    assert statistics.median(beside) - statistics.median(alone) < 0.05, (alone, beside)

"""What one call over stdio costs: our wire beside the SDK's own transport, against the same server.

    python benchmarks/wires_stdio.py [calls]

Prints calls per second and CPU microseconds per call (of this process, not of the server), medians of three.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.spec import StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.stdio import open_stdio

LITE = Path(__file__).parent.parent / "tests" / "servers" / "lite.py"
Call = Callable[[], Awaitable[object]]


class Silent:
    """Hooks that take everything and do nothing."""

    def notified(self, method, params, *, to_caller=False): ...
    def noise(self, excerpt): ...
    def refused(self, reason, detail): ...
    def process_started(self, pid): ...
    def process_ended(self, pid, *, exit_code, signal, seconds, wanted): ...
    def stderr(self, lines, dropped): ...
    async def answer(self, method, params, call): ...


@asynccontextmanager
async def ours() -> AsyncIterator[Call]:
    silent = Silent()
    launch = StdioLaunch(command=sys.executable, args=(str(LITE),))
    async with (
        open_stdio(
            launch,
            silent,
            StderrRing(silent.stderr),
            marker=Marker("bench", "lite", 1),
            graces=StopGraces(),
            max_message=32 * 1024 * 1024,
            processes=silent,
        ) as wire,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(wire.run, None, None)
        info = {"name": "bench", "version": "1"}
        await wire.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        await wire.notify("notifications/initialized", None)
        yield lambda: wire.request("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def sdk() -> AsyncIterator[Call]:
    parameters = StdioServerParameters(command=sys.executable, args=[str(LITE)])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.list_tools()
        yield lambda: session.call_tool("echo", {"text": "hello"})


async def measure(opened, calls: int) -> tuple[float, float]:
    async with opened() as call:
        for _ in range(200):
            await call()
        usage, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(calls):
            await call()
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return calls / seconds, cpu / calls * 1e6


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    print(f"{'wire':6} {'backend':8} {'calls/s':>9} {'CPU us/call':>12}")
    for name, opened in (("ours", ours), ("sdk", sdk)):
        for backend in ("asyncio", "trio"):
            rounds = [anyio.run(measure, opened, calls, backend=backend) for _ in range(3)]
            rate, cpu = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"{name:6} {backend:8} {rate:9.0f} {cpu:12.0f}")


if __name__ == "__main__":
    main()

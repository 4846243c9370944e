#!/usr/bin/env python3
"""What one call costs over HTTP: our wire beside the SDK's client, against the cheapest server there is.

    benchmarks/wires_http.py [--calls N]

Prints calls per second and CPU microseconds of this process per call, one at a time and 16 at a time. The server is a
process of its own on the same machine, so calls per second are a lower bound.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from mcpvisor.supervisor.spec import HttpTarget, ServerSpec
from mcpvisor.supervisor.transports.open_http import open_http

LITE = Path(__file__).parent.parent / "tests" / "servers" / "lite.py"
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
ECHO = {"name": "echo", "arguments": {"text": "hello"}}


class Silent:
    """Hooks for a server that says nothing by itself."""

    def notified(self, method: str, params: dict, *, to_caller: bool = False) -> None: ...

    async def answer(self, *_: object) -> dict:
        return {}

    def noise(self, excerpt: bytes) -> None: ...

    def refused(self, reason: str, detail: str) -> None: ...


async def measure(label: str, call: Callable[[], Awaitable[object]], calls: int) -> None:
    for width in (1, 16):
        await many(call, calls // 4, width)
        before, began = cpu(), time.perf_counter()
        await many(call, calls, width)
        seconds, burned = time.perf_counter() - began, cpu() - before
        print(
            f"{label:<28} {width:>3} at a time  {calls / seconds:>8.0f} calls/s  {burned / calls * 1e6:>7.0f} us CPU per call"
        )


async def many(call: Callable[[], Awaitable[object]], calls: int, width: int) -> None:
    left = calls

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    async with anyio.create_task_group() as tasks:
        for _ in range(width):
            tasks.start_soon(work)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def ours(url: str, calls: int) -> None:
    spec = ServerSpec(name="lite", target=HttpTarget(url=url))
    async with open_http(spec, Silent()) as wire, anyio.create_task_group() as tasks:
        await tasks.start(wire.run, None, None)
        await wire.request("initialize", HANDSHAKE)
        wire.negotiated("2025-11-25", modern=False)
        await wire.notify("notifications/initialized", None)
        await measure("HttpWire", lambda: wire.request("tools/call", ECHO), calls)
        tasks.cancel_scope.cancel()


async def theirs(url: str, calls: int) -> None:
    async with streamable_http_client(url) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.list_tools()  # else each call lists them
        await measure("SDK client, ClientSession", lambda: session.call_tool("echo", {"text": "hello"}), calls)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--calls", type=int, default=4000)
    calls = options.parse_args().calls
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(LITE), "--http", str(port)])
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        url = f"http://127.0.0.1:{port}/mcp"
        anyio.run(ours, url, calls)
        anyio.run(theirs, url, max(calls // 8, 100))
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()

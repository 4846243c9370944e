"""What one tools/call costs in the gateway alone: CPU per call and calls per second, for both eras.

The gateway runs in a process of its own, in front of a door that answers at once; plain sockets call it, so that the client
costs little. Usage: `python benchmarks/gateway_calls.py [CALLS]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
RESULT = {"content": [{"type": "text", "text": "x" * 100}]}


def serve() -> None:
    """The gateway: prints its address, serves until its stdin ends."""
    import anyio

    from mcpvisor.daemon.gateway.gateway import Gateway
    from mcpvisor.daemon.gateway.settings import GatewaySettings
    from mcpvisor.supervisor.bus import EventBus
    from mcpvisor.supervisor.offer import Offer
    from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch

    class Door:
        spec = ServerSpec(name="bench", target=StdioLaunch(command="true"))
        offer = Offer(tools=({"name": "echo", "inputSchema": {"type": "object"}},))
        stale = False
        era = "legacy"

        def __init__(self) -> None:
            self.first_try = anyio.Event()
            self.first_try.set()

        async def request(self, *_: Any, **__: Any) -> Any:
            return RESULT

    class Doors:
        bus = EventBus()

        def __init__(self) -> None:
            self._door = Door()

        def names(self) -> list[str]:
            return ["bench"]

        def connection(self, _: str) -> Door:
            return self._door

        def want_log_level(self, _: str | None) -> None: ...

    async def main() -> None:
        with tempfile.TemporaryDirectory() as state:
            settings = GatewaySettings(listen=("127.0.0.1:0",), auth="open", state_dir=Path(state))
            async with Gateway(Doors(), settings, instance="bench", health=lambda *_: (200, "ok")) as gateway:
                print(gateway.addresses[0], flush=True)
                await anyio.to_thread.run_sync(sys.stdin.read)

    anyio.run(main)


class Connection:
    """One kept-alive connection with a request at a time."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self.port = port
        self.headers = headers

    async def open(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def post(self, message: Any) -> tuple[dict[str, str], bytes]:
        body = json.dumps(message).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in {**self.headers, "content-length": len(body)}.items())
        self.writer.write(f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}\r\n".encode() + body)
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        fields = (line.partition(": ") for line in raw.split("\r\n")[1:] if line)
        answer = {name.lower(): value for name, _, value in fields}
        return answer, await self.reader.readexactly(int(answer.get("content-length", 0)))


def call(number: int, modern: bool) -> Any:
    params: dict[str, Any] = {"name": "bench__echo", "arguments": {"text": "hello"}}
    if modern:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(port: int, pid: int, *, modern: bool, in_flight: int, calls: int) -> str:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if modern:
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "bench__echo"}
    else:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        first = await Connection(port, headers).open()
        answer, _ = await first.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        headers |= {"mcp-session-id": answer["mcp-session-id"]}
    numbers = iter(range(1, calls + 1))
    took: list[float] = []

    async def worker() -> None:
        connection = await Connection(port, headers).open()
        for number in numbers:
            began = time.perf_counter()
            _, body = await connection.post(call(number, modern))
            took.append(time.perf_counter() - began)
            assert b'"result"' in body, body
        connection.writer.close()

    began, cpu = time.perf_counter(), cpu_of(pid)
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    elapsed, spent = time.perf_counter() - began, cpu_of(pid) - cpu
    took.sort()
    era = MODERN if modern else "legacy"
    return (
        f"{era:>10}  {in_flight:>2} in flight: {calls / elapsed:7.0f} calls/s, {1000 * spent / calls:.3f} ms CPU a call, "
        f"p50 {1000 * took[len(took) // 2]:.2f} ms, p99 {1000 * took[len(took) * 99 // 100]:.2f} ms"
    )


def main(calls: int) -> None:
    server = subprocess.Popen([sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    port = int(server.stdout.readline().rpartition(":")[2])
    try:
        for modern in (False, True):
            for in_flight in (1, 32):
                asyncio.run(measure(port, server.pid, modern=modern, in_flight=in_flight, calls=calls // 10))  # to warm up
                print(asyncio.run(measure(port, server.pid, modern=modern, in_flight=in_flight, calls=calls)))
    finally:
        server.communicate("", timeout=15)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)

"""A daemon that is killed under its clients, and started again: they go on as if nothing had been."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import psutil
import pytest
from tests.daemon.gateway.wire import Wire, call, events, initialize
from tests.e2e.running import RunningDaemon, entry, puppet
from tests.waiting import until

pytestmark = pytest.mark.anyio

HTTP, STDIO = 180, 20
CLIENTS = 50
"""Of each era."""
SOON = 2.0
"""Seconds within which a call to a ready server is answered, counted from the first answer of `/livez`."""
READY_SECONDS = 60
"""For all servers, on a machine that has more to do; what it really takes is printed."""
RETRY = 0.2
"""Seconds after which a client tries again while nobody listens."""
CHANGED = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


class Counting:
    """A process that serves any number of HTTP servers, and writes down what it runs."""

    def __init__(self, script: Path, log: Path) -> None:
        command = [sys.executable, str(script), "0", str(log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self._log = log

    def runs(self) -> list[str]:
        """The keys of the calls that were run, as often as each was."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [line["key"] for line in lines if line["event"] == "run"]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def counting(servers: Path, tmp_path: Path) -> Iterator[Callable[[], Counting]]:
    """Starts such processes."""
    started: list[Counting] = []

    def start() -> Counting:
        started.append(Counting(servers / "http_counting.py", tmp_path / f"runs{len(started)}"))
        return started[-1]

    yield start
    for one in started:
        one.end()


@dataclass
class Ended:
    """How one call ended for its client: with a result, an error's outcome, or `cut` where the connection was."""

    how: str
    server: str
    at: float = field(default_factory=time.time)


class Client:
    """One client that calls one server again and again, in either era, and keeps how each call ended."""

    def __init__(self, address: str, number: int, *, modern: bool) -> None:
        self.wire = Wire(address)
        self.wire.http.timeout = httpx2.Timeout(60)
        self.name = f"{'modern' if modern else 'legacy'}{number}"
        self.modern = modern
        self.number = number
        self.ends: list[Ended] = []
        self.told: list[str] = []
        self._calls = 0

    @property
    def server(self) -> str:
        """Every tenth client calls a server over stdio."""
        return f"s{self.number % STDIO:03}" if self.number % 10 == 0 else f"h{(7 * self.number + self.modern) % HTTP:03}"

    async def call(self, seconds: float = 0.0) -> None:
        """Make one call and keep its end. While nobody listens it is made again, since it was not sent to anybody."""
        self._calls += 1
        tool, arguments = "count", {"key": f"{self.name}-{self._calls}", "seconds": seconds}
        if self.server.startswith("s"):
            tool = "sleep"
        message = call(f"{self.server}__{tool}", self._calls, arguments=arguments)
        while True:
            try:
                answer = await (self.wire.modern(message) if self.modern else self.wire.post(message))
                break
            except httpx2.ConnectError:
                await anyio.sleep(RETRY)
            except httpx2.TransportError:
                self.ends.append(Ended("cut", self.server))
                return
        self.ends.append(Ended(how(answer), self.server))

    async def listen(self) -> None:
        """Keep a stream of notifications open, and note what it brings."""
        headers = {"mcp-session-id": self.wire.session or ""}
        while True:
            try:
                async with self.wire.http.stream("GET", "/mcp", headers=headers) as stream:
                    assert stream.status_code == 200, stream.status_code
                    async for chunk in stream.aiter_text():
                        self.told += [event["method"] for event in events(chunk)]
            except httpx2.TransportError:
                await anyio.sleep(RETRY)


def how(answer: httpx2.Response) -> str:
    """The end of a call that was answered. Over HTTP 200 everything but a JSON-RPC answer is named by its status."""
    if answer.status_code != 200:
        return f"HTTP {answer.status_code}"
    body = answer.json() if answer.headers["content-type"].startswith("application/json") else events(answer.text)[-1]
    return "ok" if "result" in body else str(body["error"].get("data", {}).get("mcpvisor", {}).get("outcome", body["error"]))


@asynccontextmanager
async def clients(address: str) -> AsyncIterator[list[Client]]:
    """Fifty clients of each era; the legacy ones have a session and its stream."""
    every = [Client(address, number, modern=modern) for number in range(CLIENTS) for modern in (False, True)]
    async with anyio.create_task_group() as listening:
        for client in every:
            if not client.modern:
                await client.wire.open()
                listening.start_soon(client.listen)
        yield every
        listening.cancel_scope.cancel()
    for client in every:
        await client.wire.http.aclose()


async def all_call(every: list[Client], seconds: float = 0.0) -> None:
    async with anyio.create_task_group() as calling:
        for client in every:
            calling.start_soon(client.call, seconds)


async def apart(work: Callable[[], Any]) -> Any:
    """The result of what blocks, while the clients go on."""
    return await anyio.to_thread.run_sync(work)


def used_cpu(running: RunningDaemon) -> float:
    """What the daemon has used of a processor, in seconds: on a busy machine this is what can be compared."""
    times = psutil.Process(running.pid).cpu_times()
    return times.user + times.system


async def until_in_flight(running: RunningDaemon, calls: int) -> None:
    """Return once the daemon has so many calls in flight."""
    with anyio.fail_after(30):
        while sum(one["in_flight"] for one in (await apart(running.status))["servers"]) < calls:
            await anyio.sleep(0.1)


def until_all_ready(running: RunningDaemon, names: list[str]) -> dict[str, float]:
    """When each of these servers got ready."""

    def look() -> dict[str, float]:
        ready = {one["name"]: one["since"] for one in running.status()["servers"] if one["state"] == "ready"}
        return {name: ready[name] for name in names} if ready.keys() >= set(names) else {}

    running.until_serving()
    return running.until(look, "all servers", READY_SECONDS)


async def alive(address: str) -> float:
    """When `/livez` was answered first."""
    async with Wire(address) as probe:
        with anyio.fail_after(READY_SECONDS):
            while True:
                try:
                    assert (await probe.http.get("/livez")).status_code == 200
                    return time.time()
                except httpx2.TransportError:
                    await anyio.sleep(0.005)


async def first_list(address: str) -> tuple[list[dict[str, Any]], float]:
    """The tools that a new client is shown, and when it had them."""
    async with Wire(address) as client:
        await client.open()
        answer = await client.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        return answer.json()["result"]["tools"], time.time()


@pytest.mark.alone
async def test_a_kill_under_a_hundred_clients(
    counting: Callable[[], Counting],
    daemon: Callable[..., RunningDaemon],
    servers: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No client has to initialise anew (F-E11), every call ends once, ready servers are called within 2 s of `/livez`.

    One more server does not come back; what it offers is listed all the same (F-D9), and no list waits for it.
    """
    many, hung = counting(), counting()
    names = [*(f"h{number:03}" for number in range(HTTP)), *(f"s{number:03}" for number in range(STDIO))]
    entries = [entry(name, url=many.url, wait_ready="30s") for name in names[:HTTP]]
    entries += [puppet(name, servers / "stdio_sleeper.py", wait_ready="30s") for name in names[HTTP:]]
    address = f"unix:{tmp_path_factory.mktemp('g')}/gw.sock"
    env = {"MCPVISOR_GATEWAY__LISTEN": address, "MCPVISOR_GATEWAY__FIRST_LIST_WAIT": "60"}
    running = await apart(partial(daemon, "".join([*entries, entry("hung", url=hung.url)]), auth="auto", env=env))
    await apart(partial(running.until_ready, READY_SECONDS))
    before, _ = await first_list(address)
    async with clients(address) as every:
        await all_call(every)
        async with anyio.create_task_group() as in_flight:
            in_flight.start_soon(all_call, every, 60.0)
            over_http = sum(client.server.startswith("h") for client in every)
            await until(lambda: len(many.runs()) == 2 * over_http)
            await until_in_flight(running, len(every))
            hung.process.send_signal(signal.SIGSTOP)
            os.kill(running.pid, signal.SIGKILL)
        await apart(running.process.wait)
        started = time.time()
        async with anyio.create_task_group() as again:
            again.start_soon(all_call, every)
            await apart(running.start)
            lived = await alive(address)
            cpu = [used_cpu(running)]
            shown, listed = await first_list(address)
            cpu.append(used_cpu(running))
        cpu.append(used_cpu(running))
        ready_at = await apart(partial(until_all_ready, running, names))
        await until(lambda: all(len(client.told) >= len(CHANGED) for client in every if not client.modern))
        running.write("mark.toml", puppet("mark", servers / "lite.py"))
        await until(lambda: all(len(client.told) > len(CHANGED) for client in every if not client.modern))
    waits = [end.at - max(lived, ready_at[end.server]) for end in (client.ends[-1] for client in every)]
    print(
        f"after the start: /livez {lived - started:.2f} s; after that: the first list {listed - lived:.2f} s, calls answered"
        f" {min(client.ends[-1].at for client in every) - lived:.2f} s to"
        f" {max(client.ends[-1].at for client in every) - lived:.2f} s, all ready {max(ready_at.values()) - lived:.2f} s;"
        f" the longest wait for a ready server {max(waits):.2f} s; the daemon's CPU time by /livez {cpu[0]:.2f} s, by the first"
        f" list {cpu[1]:.2f} s, by the last call {cpu[2]:.2f} s"
    )

    assert Counter(end.how for client in every for end in client.ends) == {"ok": 2 * len(every), "cut": len(every)}
    assert {len(client.ends) for client in every} == {3}
    assert Counter(Counter(many.runs()).values()) == {1: 3 * over_http}
    assert [tool["name"] for tool in shown] == [tool["name"] for tool in before]
    assert [tool["_meta"] for tool in shown if tool["name"] == "hung__count"] == [{"mcpvisor/stale": True}]
    assert max(waits) < SOON
    assert {tuple(client.told) for client in every if not client.modern} == {(*CHANGED, CHANGED[0])}


async def test_an_orderly_restart(
    daemon: Callable[..., RunningDaemon], servers: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sessions on `/mcp` and on the endpoint of one server go on; one that its client ended does not."""
    address = f"unix:{tmp_path_factory.mktemp('g')}/gw.sock"
    running = daemon(puppet("plain", servers / "lite.py"), auth="auto", env={"MCPVISOR_GATEWAY__LISTEN": address})
    running.until_ready()
    async with Wire(address) as joint, Wire(address) as alone, Wire(address) as ended:
        for client, path in ((joint, "/mcp"), (alone, "/mcp/plain"), (ended, "/mcp")):
            answer = await client.http.post(path, json=initialize())
            client.session = answer.headers["mcp-session-id"]
        await ended.delete()
        await apart(running.end)
        running.start()
        await alive(address)
        answers = [
            how(await joint.post(call("plain__echo"))),
            how(await alone.post(call("echo"), path="/mcp/plain")),
            how(await ended.post(call("plain__echo"))),
        ]

    assert answers == ["ok", "ok", "HTTP 404"]

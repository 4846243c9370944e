"""Clients of a real daemon watch resources of real servers: both eras on either side, both transports, kills of either."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.daemon.gateway.hearing import Hearing, listening, opened, subscribe
from tests.daemon.gateway.wire import Wire, call
from tests.e2e.running import RunningDaemon, entry, puppet
from tests.supervisor.transports.http_rig import puppet as http_puppet
from tests.waiting import until

from mcpvisor.daemon.cli.client import server_path

pytestmark = pytest.mark.anyio

ONE, OTHER = "memo://a", "MiXeD://Host/Path/"
URIS = [flag for uri in (ONE, OTHER) for flag in ("--list", uri)]
SECONDS = 20.0
"""For anything that one waits for, on a machine that has more to do."""


async def apart(work: Callable[[], Any]) -> Any:
    """The result of what blocks, while the clients go on."""
    return await anyio.to_thread.run_sync(work)


async def apart_until(running: RunningDaemon, look: Callable[[], Any], what: str) -> Any:
    return await apart(partial(running.until, look, what, SECONDS))


class Upstream:
    """The server that is watched: its entry, a way to have a resource change, and what it is subscribed to."""

    def __init__(self, era: str, transport: str, folder: Path, servers: Path, stack: ExitStack) -> None:
        self.log = folder / "log"
        keys: dict[str, Any] = {"era": era, "restart": {"intensity": "off"}}
        script = servers / "resource_streams.py"
        if transport == "stdio":
            self.entry = puppet("notes", script, "--log", str(self.log), *URIS, **keys)
        elif era == "modern":
            self.http = stack.enter_context(http_puppet(script.name, "--http", "0", "--log", str(self.log), *URIS))
            self.entry = entry("notes", url=self.http.url, **keys)
        else:
            self.http = stack.enter_context(http_puppet("http_resource_subs.py"))
            self.entry = entry("notes", url=self.http.url, **keys)
        self.is_stdio = transport == "stdio"
        self.is_logged = self.is_stdio or era == "modern"
        self.era = era

    async def touch(self, client: Wire, uri: str) -> None:
        """Have a resource change: by a call through the gateway, or by the puppet's own door."""
        if self.is_stdio:
            answer = await client.modern(call("notes__touch", arguments={"uri": uri}))
            assert answer.status_code == 200, answer.text
        else:
            await apart(partial(self.http.control, "touch", uri=uri))

    def lines(self) -> list[dict[str, Any]]:
        """What it has written down of subscriptions."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def subscribed(self) -> list[str]:
        """What its newest session is subscribed to now."""
        if not self.is_logged:
            uris: list[str] = self.http.state()["subscribed"]
            return uris
        lines = self.lines()
        mine = [line for line in lines if line["pid"] == lines[-1]["pid"]]
        held: list[str] = []
        for line in mine:
            if line["what"] == "listen":
                held = line["uris"]
            elif line["what"] == "subscribe":
                held = [*held, *line["uris"]]
            elif line["what"] == "unsubscribe":
                held = [uri for uri in held if uri not in line["uris"]]
        return sorted(held)


@pytest.fixture
def upstream(servers: Path, tmp_path: Path) -> Iterator[Callable[[str, str], Upstream]]:
    """Makes the server of an era and a transport."""
    with ExitStack() as stack:
        yield lambda era, transport: Upstream(era, transport, tmp_path, servers, stack)


def held(running: RunningDaemon) -> dict[str, list[str]]:
    """What `explain` shows: each URI that is watched, and the eras of those who hold it."""
    explained = running.control.get(server_path("notes", ""))
    return {
        one["uri"]: sorted({"session": "legacy", "stream": "modern"}[who.split()[0]] for who in one["holders"])
        for one in explained["subscriptions"]
    }


def counted(running: RunningDaemon) -> set[str]:
    """`mcpvisor_subscriptions` of the server, as far as it is not zero."""
    with urllib.request.urlopen(f"http://{running.addresses('metrics')[0].removeprefix('http://')}/metrics") as page:
        lines = page.read().decode().splitlines()
    return {line for line in lines if line.startswith("mcpvisor_subscriptions{") and not line.endswith(" 0.0")}


class Clients:
    """Two clients of each era: the first of each watches both resources, the second one of them."""

    def __init__(self, wires: list[Wire], tasks: anyio.abc.TaskGroup) -> None:
        self.legacy, self.legacy2, self.modern, self.modern2 = wires
        self.tasks = tasks
        self.heard: dict[str, Hearing] = {}

    async def watch(self) -> None:
        """Open sessions, streams and subscriptions."""
        for name, wire, uris in (("legacy", self.legacy, (ONE, OTHER)), ("legacy2", self.legacy2, (OTHER,))):
            await wire.open()
            self.heard[name] = opened(wire, self.tasks)
            for uri in uris:
                assert (await subscribe(wire, uri)).get("result") == {}
        self.heard["modern"] = await listening(self.modern, self.tasks, ONE, OTHER)
        self.heard["modern2"] = await listening(self.modern2, self.tasks, OTHER)

    @property
    def updated(self) -> dict[str, list[str]]:
        """What each was told of."""
        return {name: hearing.updated for name, hearing in self.heard.items()}


@pytest.fixture
async def clients(anyio_backend: str) -> AsyncIterator[Callable[[str], Awaitable[Clients]]]:
    """Opens the four clients at an address."""
    async with anyio.create_task_group() as tasks:
        wires: list[Wire] = []

        async def at(address: str) -> Clients:
            wires.extend(Wire(address) for _ in range(4))
            for wire in wires:
                wire.http.timeout = 60
            return Clients(wires, tasks)

        yield at
        tasks.cancel_scope.cancel()
    for wire in wires:
        await wire.http.aclose()


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_each_era_on_either_side(
    daemon: Callable[..., RunningDaemon],
    upstream: Callable[[str, str], Upstream],
    clients: Callable[[str], Awaitable[Clients]],
    era: str,
    transport: str,
):
    """Clients of both eras hear of a server of either, each of its own; the last to let go lets the server go."""
    server = upstream(era, transport)
    running = await apart(partial(daemon, server.entry))
    await apart(running.until_ready)
    four = await clients(running.addresses("gateway")[0])
    await four.watch()
    shown = await apart(partial(held, running)), (await apart(partial(running.server, "notes")))["subscriptions"]
    await apart_until(running, lambda: counted(running), "the metrics")
    metrics = counted(running)
    before = server.subscribed()
    for uri in (ONE, OTHER):
        await server.touch(four.modern, uri)
        await until(lambda uri=uri: all(uri in told for told in (four.updated["legacy"], four.updated["modern"])), SECONDS)
    await until(lambda: all(OTHER in told for told in four.updated.values()), SECONDS)
    told = four.updated
    await subscribe(four.legacy, ONE, way="unsubscribe")
    still = await apart(partial(held, running))
    four.heard["modern"].scope.cancel()
    await apart_until(running, lambda: server.subscribed() == [OTHER], "the end of one subscription at the server")
    await four.legacy.delete()
    await four.legacy2.delete()
    four.heard["modern2"].scope.cancel()
    await apart_until(running, lambda: server.subscribed() == [], "the end of the last one")
    left = (await apart(partial(running.server, "notes")))["subscriptions"]

    assert shown == (
        {ONE: ["legacy", "modern"], OTHER: ["legacy", "legacy", "modern", "modern"]},
        {"wanted": 2, "active": 2},
    )
    assert metrics == {'mcpvisor_subscriptions{server="notes",state="active"} 2.0'}
    assert before == sorted([ONE, OTHER])
    assert told == {"legacy": [ONE, OTHER], "legacy2": [OTHER], "modern": [ONE, OTHER], "modern2": [OTHER]}
    assert still == {ONE: ["modern"], OTHER: ["legacy", "legacy", "modern", "modern"]}
    assert left == {"wanted": 0, "active": 0}


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_hundred_kills(
    daemon: Callable[..., RunningDaemon],
    upstream: Callable[[str, str], Upstream],
    clients: Callable[[str], Awaitable[Clients]],
    era: str,
):
    """After each kill of the server every client is told once that what it watches may have changed, and then of a change."""
    server = upstream(era, "stdio")
    running = await apart(partial(daemon, server.entry))
    await apart(running.until_ready)
    four = await clients(running.addresses("gateway")[0])
    await four.watch()
    expected: list[str] = []
    for _ in range(100):
        os.kill((await apart(partial(running.server, "notes")))["pid"], signal.SIGKILL)
        expected.append(OTHER)
        await until(lambda: all(told.count(OTHER) >= len(expected) for told in four.updated.values()), SECONDS)
        await server.touch(four.modern, OTHER)
        expected.append(OTHER)
        await until(lambda: all(told.count(OTHER) >= len(expected) for told in four.updated.values()), SECONDS)
    status = await apart(partial(running.server, "notes"))

    assert {name: told.count(OTHER) for name, told in four.updated.items()} == dict.fromkeys(four.heard, 200)
    assert {name: told.count(ONE) for name, told in four.updated.items()} == {
        "legacy": 100,
        "modern": 100,
        "legacy2": 0,
        "modern2": 0,
    }
    assert (status["generation"], status["subscriptions"]) == (101, {"wanted": 2, "active": 2})


async def test_a_kill_of_the_daemon(
    daemon: Callable[..., RunningDaemon],
    upstream: Callable[[str, str], Upstream],
    clients: Callable[[str], Awaitable[Clients]],
    tmp_path_factory: pytest.TempPathFactory,
):
    """What sessions watch is asked for by the next daemon before they come back, and may have changed when they do."""
    server = upstream("legacy", "stdio")
    address = f"unix:{tmp_path_factory.mktemp('g')}/gw.sock"
    running = await apart(partial(daemon, server.entry, auth="auto", env={"MCPVISOR_GATEWAY__LISTEN": address}))
    await apart(running.until_ready)
    four = await clients(address)
    await four.watch()
    kept = "SELECT count(*) FROM sessions WHERE watched IS NOT NULL"
    await apart_until(running, lambda: running.rows(kept) == [(2,)], "both sessions in the state file")
    os.kill(running.pid, signal.SIGKILL)
    await apart(running.process.wait)
    await apart(running.start)
    await apart(running.until_serving)
    await apart(running.until_ready)
    waiting = await apart(partial(held, running))
    asked = server.subscribed()
    for name, wire in (("legacy", four.legacy), ("legacy2", four.legacy2)):
        four.heard[name] = opened(wire, four.tasks)
    await until(lambda: (sorted(four.updated["legacy"]), four.updated["legacy2"]) == ([OTHER, ONE], [OTHER]), SECONDS)
    four.heard["modern"] = await listening(four.modern, four.tasks, ONE)
    await server.touch(four.modern, ONE)
    await until(lambda: [len(told) for told in four.updated.values()] == [3, 1, 1, 0], SECONDS)
    await four.legacy.delete()
    four.heard["modern"].scope.cancel()
    await apart_until(running, lambda: held(running) == {OTHER: ["legacy"]}, "what is left")

    assert waiting == {ONE: ["legacy"], OTHER: ["legacy", "legacy"]}
    assert asked == sorted([ONE, OTHER])
    assert four.updated["legacy"][2:] == four.updated["modern"] == [ONE]

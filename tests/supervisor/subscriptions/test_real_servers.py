"""Subscriptions over real processes and sockets, in both eras: whatever is taken away comes back, and no gap goes untold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.ports import kept_port
from tests.supervisor.transports.http_rig import SERVERS, Puppet, puppet

from mcpvisor.supervisor.events import ResourceUpdated
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import Era, HttpTarget, ServerSpec, StdioLaunch, StopGraces, WantedResource
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

ME = Principal("test")
URIS = ("memo://a", "MiXeD://Host/Path/", "file:///C:/My Notes/plan é.txt", "res://x?b=2&a=1#frag")
LIMIT = 30.0
"""Seconds for a whole test, on a machine that has much else to do."""


class Told:
    """The updates that subscribers were told of: URI and reason; `cleared` begins a new list."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.updates: list[tuple[str, str]] = []
        self._came = anyio.Event()
        supervisor.bus.attach(self._take)

    def _take(self, event: Any) -> None:
        if isinstance(event, ResourceUpdated):
            self.updates.append((event.uri, event.reason))
            self._came.set()

    def cleared(self) -> None:
        self.updates = []

    async def until(self, is_so: Callable[[list[tuple[str, str]]], bool]) -> None:
        while not is_so(self.updates):
            self._came = anyio.Event()
            await self._came.wait()


@asynccontextmanager
async def supervised(spec: ServerSpec) -> AsyncIterator[tuple[Supervisor, Told]]:
    with anyio.fail_after(LIMIT):
        async with Supervisor(guarded=False) as supervisor:
            told = Told(supervisor)
            await supervisor.apply([spec])
            yield supervisor, told


def wanted(uris: tuple[str, ...] = URIS) -> tuple[WantedResource, ...]:
    return tuple(WantedResource(uri=uri) for uri in uris)


def over_stdio(log: Path, era: Era, *args: str, uris: tuple[str, ...] = URIS) -> ServerSpec:
    command = StdioLaunch(command=sys.executable, args=(str(SERVERS / "resource_streams.py"), "--log", str(log), *args))
    stop = StopGraces(stdin=0.3, term=0.3)
    return ServerSpec(name="files", target=command, era=era, stop=stop, subscriptions=wanted(uris))


def over_http(url: str, **keys: Any) -> ServerSpec:
    return ServerSpec(name="files", target=HttpTarget(url=url), **{"subscriptions": wanted(), **keys})


def noted(log: Path) -> list[tuple[str, list[str]]]:
    """What the server was asked for, oldest first."""
    return [(one["what"], one["uris"]) for one in map(json.loads, log.read_text().splitlines())] if log.exists() else []


def asked(log: Path) -> list[str]:
    """The URIs that the server was asked for, in either era."""
    return sorted(uri for what, uris in noted(log) if what in ("subscribe", "listen") for uri in uris)


def resyncs(uris: tuple[str, ...] = URIS) -> list[tuple[str, str]]:
    return sorted((uri, "resync") for uri in uris)


async def ready(supervisor: Supervisor, generation: int = 1) -> ServerStatus:
    return await supervisor.wait_until("files", lambda one: one.state is State.READY and one.generation >= generation)


async def tool(supervisor: Supervisor, name: str, **arguments: Any) -> None:
    await supervisor.connection("files").request("tools/call", {"name": name, "arguments": arguments}, principal=ME)


@contextmanager
def streams_over_http(port: int, log: Path) -> Iterator[Puppet]:
    with puppet("resource_streams.py", "--http", str(port), "--log", str(log)) as server:
        yield server


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_after_a_kill_all_are_restored(era: Era, tmp_path: Path) -> None:
    """Each once, letter by letter, each told once as one that may have changed; then updates come again."""
    log = tmp_path / "log"
    async with supervised(over_stdio(log, era)) as (supervisor, told):
        status = await ready(supervisor)
        first, begun = sorted(told.updates), asked(log)
        told.cleared()
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        status = await ready(supervisor, 2)
        after = sorted(told.updates)
        await tool(supervisor, "touch", uri=URIS[1])
        await told.until(lambda updates: (URIS[1], "notified") in updates)

    assert (resyncs(), resyncs()) == (first, after)
    assert (sorted(URIS), sorted(URIS * 2)) == (begun, asked(log))
    assert (len(URIS), len(URIS)) == (status.subscriptions_wanted, status.subscriptions_active)


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_a_failing_one_among_good_ones(era: Era, tmp_path: Path) -> None:
    """The server is degraded and says why; the others are restored after a kill too, and bring updates."""
    log, bad = tmp_path / "log", URIS[2]
    async with supervised(over_stdio(log, era, "--unknown", bad)) as (supervisor, told):
        for generation in (1, 2):
            status = await supervisor.wait_until(
                "files", lambda one, least=generation: one.state is State.DEGRADED and one.generation >= least
            )
            if generation == 1:
                assert status.pid is not None
                os.kill(status.pid, signal.SIGKILL)
        await tool(supervisor, "touch", uri=URIS[0])
        await told.until(lambda updates: (URIS[0], "notified") in updates)
        shown = {one.uri: one.state.value for one in supervisor.subscriptions("files").statuses()}

    assert status.reason.startswith(f"1 of 4 subscriptions does not work, such as {bad}: the server ")
    assert {uri: "failed" if uri == bad else "active" for uri in URIS} == shown


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_another_configuration_in_place(era: Era, tmp_path: Path) -> None:
    """The process is the same, what is new brings updates, and the server is told of what is gone."""
    log = tmp_path / "log"
    async with supervised(over_stdio(log, era, uris=("memo://a", "memo://b"))) as (supervisor, told):
        before = await ready(supervisor)
        told.cleared()
        await supervisor.apply([over_stdio(log, era, uris=("memo://b", "memo://c"))])
        await told.until(lambda updates: ("memo://c", "resync") in updates)
        with anyio.fail_after(LIMIT):
            while not {"unsubscribe", "withdrawn"} & {what for what, _ in noted(log)}:
                await tool(supervisor, "touch", uri="memo://nobody")
        after = supervisor.status("files")
        for uri in ("memo://a", "memo://b", "memo://c"):
            await tool(supervisor, "touch", uri=uri)
        await told.until(lambda updates: ("memo://c", "notified") in updates)

    assert (before.pid, 2, 2) == (after.pid, after.subscriptions_wanted, after.subscriptions_active)
    assert [("memo://b", "notified"), ("memo://c", "notified"), ("memo://c", "resync")] == sorted(told.updates)
    gone = {Era.LEGACY: ("unsubscribe", ["memo://a"]), Era.MODERN: ("withdrawn", ["memo://a", "memo://b"])}
    assert gone[era] == next(one for one in noted(log) if one[0] in ("unsubscribe", "withdrawn"))


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_an_update_before_the_acknowledgement(era: Era, tmp_path: Path) -> None:
    """What a server pushes before it has answered is told, and the answer is followed by a "may have changed"."""
    async with supervised(over_stdio(tmp_path / "log", era, "--ack-delay", "0.5", uris=("memo://a",))) as (supervisor, told):
        await ready(supervisor)

    assert [("memo://a", "notified"), ("memo://a", "resync")] == told.updates


async def test_after_a_session_wipe_all_are_restored() -> None:
    """Over HTTP in the older era: exactly the wanted set, none twice, and each told once."""
    with puppet("http_resource_subs.py") as server:
        async with supervised(over_http(server.url, era=Era.LEGACY)) as (supervisor, told):
            await ready(supervisor)
            begun = server.state()
            told.cleared()
            server.control("drop")
            await ready(supervisor, 2)
            restored = sorted(told.updates)
            state = server.state()
            server.control("touch", uri=URIS[2])
            await told.until(lambda updates: (URIS[2], "notified") in updates)
            strangers = supervisor.subscriptions("files").strangers

    assert (sorted(URIS), sorted(URIS)) == (begun["subscribed"], state["subscribed"])
    assert (2 * len(URIS), None) == (state["subscribe_calls"], state.get("bad_uris"))
    assert (resyncs(), True) == (restored, strangers >= 1)


async def test_one_that_is_gone_after_a_session_wipe() -> None:
    """The others are subscribed and bring updates; the reason names the one."""
    with puppet("http_resource_subs.py", "gone") as server:
        async with supervised(over_http(server.url, era=Era.LEGACY)) as (supervisor, told):
            await ready(supervisor)
            server.control("drop")
            status = await supervisor.wait_until("files", lambda one: one.state is State.DEGRADED and one.generation == 2)
            server.control("touch", uri=URIS[1])
            await told.until(lambda updates: (URIS[1], "notified") in updates)
            state = server.state()

    assert "1 of 4 subscriptions does not work, such as memo://a: the server knows no such resource: Resource not found" == (
        status.reason
    )
    assert sorted(URIS[1:]) == state["subscribed"]


@pytest.mark.parametrize("poll", [None, 1.0])
async def test_a_server_without_a_push_channel(poll: float | None) -> None:
    """What it accepts dies with the request: that is said, unless the resource is read; updates in answers are taken."""
    subscriptions = (WantedResource(uri="memo://a", poll=poll),)
    with puppet("http_resource_subs.py", "post") as server:
        async with supervised(over_http(server.url, era=Era.LEGACY, subscriptions=subscriptions)) as (supervisor, told):
            wanted_state = State.DEGRADED if poll is None else State.READY
            status = await supervisor.wait_until("files", lambda one: one.state is wanted_state)
            [shown] = supervisor.subscriptions("files").statuses()
            server.control("touch", uri="memo://a")
            await supervisor.connection("files").request("tools/list", principal=ME)
            await told.until(lambda updates: ("memo://a", "notified") in updates)

    assert "no push channel: GET was answered 405" in shown.reason
    assert ("failed" if poll is None else "polled", poll is not None) == (shown.state.value, status.subscriptions_active == 1)


async def test_a_push_stream_that_is_cut_again_and_again() -> None:
    """Each time it is back the resource may have changed; the session and the subscription are the same throughout."""
    subscriptions = (WantedResource(uri="res://counter"),)
    with puppet("http_sse_recycle.py", "no-ids", "--life", "0.5") as server:
        async with supervised(over_http(server.url, era=Era.LEGACY, subscriptions=subscriptions)) as (supervisor, told):
            await told.until(lambda updates: updates.count(("res://counter", "resync")) == 3)
            await told.until(lambda updates: ("res://counter", "notified") in updates)
            generation = supervisor.status("files").generation
        state = server.state()

    assert (1, 1) == (generation, state["initializes"])


async def test_after_a_restart_over_http_in_the_newer_era(tmp_path: Path) -> None:
    """The server is killed and comes back under its address: one stream with everything, each told once."""
    log = tmp_path / "log"
    with kept_port() as port, streams_over_http(port, log) as server:
        async with supervised(over_http(server.url, era=Era.MODERN)) as (supervisor, told):
            await ready(supervisor)
            begun = asked(log)
            server.process.kill()
            server.process.wait()
            await supervisor.wait_until("files", lambda one: one.subscriptions_active == 0)
            told.cleared()
            with streams_over_http(port, log) as again:
                await supervisor.wait_until("files", lambda one: one.subscriptions_active == len(URIS))
                await ready(supervisor)
                restored = sorted(told.updates)
                again.control("touch", uri=URIS[3])
                await told.until(lambda updates: (URIS[3], "notified") in updates)

    assert (sorted(URIS), resyncs()) == (begun, restored)
    assert sorted(URIS) == asked(log)[::2]


@pytest.mark.parametrize("how", ["end_streams", "cut_streams"])
async def test_after_the_end_of_a_stream_over_http(how: str, tmp_path: Path) -> None:
    """In good order or not: another one follows in the same session, and each is told once."""
    log = tmp_path / "log"
    with streams_over_http(0, log) as server:
        async with supervised(over_http(server.url, era=Era.MODERN)) as (supervisor, told):
            await ready(supervisor)
            told.cleared()
            server.control(how)
            await told.until(lambda updates: len(updates) == len(URIS))
            status = await ready(supervisor)
            server.control("touch", uri=URIS[0])
            await told.until(lambda updates: (URIS[0], "notified") in updates)

    assert (sorted([*resyncs(), (URIS[0], "notified")]), 1) == (sorted(told.updates), status.generation)
    assert sorted(URIS * 2) == asked(log)


async def test_another_set_over_http_in_the_newer_era(tmp_path: Path) -> None:
    """The old stream is withdrawn by closing it, once the new one stands."""
    log = tmp_path / "log"
    with streams_over_http(0, log) as server:
        async with supervised(over_http(server.url, era=Era.MODERN, subscriptions=wanted(("memo://a",)))) as (supervisor, told):
            await ready(supervisor)
            await supervisor.apply([over_http(server.url, era=Era.MODERN, subscriptions=wanted(("memo://a", "memo://b")))])
            await told.until(lambda updates: ("memo://b", "resync") in updates)
            while ("withdrawn", ["memo://a"]) not in noted(log):
                await tool(supervisor, "touch", uri="memo://nobody")

    assert [("memo://a", "resync"), ("memo://b", "resync")] == told.updates
    assert [("listen", ["memo://a"]), ("listen", ["memo://a", "memo://b"])] == noted(log)[:2]


def test_the_puppet_ends_with_its_input() -> None:
    """A puppet that outlives its test would hold its files."""
    script = str(SERVERS / "resource_streams.py")
    assert 0 == subprocess.run([sys.executable, script], stdin=subprocess.DEVNULL, timeout=LIMIT, check=False).returncode

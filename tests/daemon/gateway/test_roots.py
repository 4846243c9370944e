"""A client that works in other folders: who is told, and how often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
import trio.testing
from tests.daemon.gateway.puppet import PuppetConnection, PuppetSupervisor, gateway
from tests.daemon.gateway.wire import Wire
from tests.waiting import until

from mcpvisor.daemon.gateway.roots import METHOD, PAUSE, RootsNews
from mcpvisor.supervisor.principal import Principal

pytestmark = pytest.mark.anyio

ANN, BOB = Principal("ann", "1"), Principal("bob", "2")
CHANGED = {"jsonrpc": "2.0", "method": METHOD}


@pytest.fixture
def asking() -> PuppetConnection:
    """A server that may ask for roots."""
    door = PuppetConnection("asking")
    door.spec = replace(door.spec, allow=("roots",))
    return door


@pytest.mark.parametrize("path", ["/mcp", "/mcp/asking"])
async def test_servers_that_may_ask_are_told(asking: PuppetConnection, tmp_path: Path, path: str):
    """That a client's roots are others is told, in the name of its session, to the servers that may ask for them alone."""
    other = PuppetConnection("other")
    async with gateway(PuppetSupervisor(asking, other), tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open(path)
        answer = await client.post(CHANGED, path=path)
        await until(lambda: bool(asking.other_roots))

    assert 202 == answer.status_code
    assert [Principal("anonymous", client.session)] == asking.other_roots
    assert [] == other.other_roots


@pytest.mark.parametrize("anyio_backend", [("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)})])
async def test_what_is_said_again_is_told_once(asking: PuppetConnection):
    """However often a client says so, its servers are told at once, and once more for all that came within the pause."""
    news = RootsNews(PuppetSupervisor(asking), None)
    told: list[int] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(news.changed, ANN)
            await anyio.wait_all_tasks_blocked()
        tasks.start_soon(news.changed, BOB)
        await anyio.sleep(PAUSE / 2)
        told.append(asking.other_roots.count(ANN))
    told.append(asking.other_roots.count(ANN))
    await news.changed(ANN)
    told.append(asking.other_roots.count(ANN))

    assert [1, 2, 3] == told
    assert 1 == asking.other_roots.count(BOB)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/other"])
async def test_who_cannot_say_so(asking: PuppetConnection, tmp_path: Path, path: str):
    """A client of 2026-07-28 has no such message, and one server's endpoint concerns that server alone."""
    servers = PuppetSupervisor(asking, PuppetConnection("other"))
    async with gateway(servers, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.modern({**CHANGED, "params": {}}, path=path)
        await client.open("/mcp/other")
        await client.post(CHANGED, path="/mcp/other")
        await client.post({"jsonrpc": "2.0", "id": 3, "method": "ping"}, path="/mcp/other")

    assert [] == asking.other_roots

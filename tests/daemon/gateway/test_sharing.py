"""Servers of which each client has an instance of its own, through the gateway: who reaches which, and until when."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp_types import ElicitResult
from tests.waiting import until

from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.spec import ServerSpec, Sharing, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

LEGACY, MODERN = "legacy", "2026-07-28"


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Way:
    """A supervised server behind a gateway."""

    def __init__(self, gateway: Gateway, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.url = f"{gateway.addresses[0]}/mcp"

    def running(self) -> int:
        return len(find_marked(self.supervisor.instance))


@asynccontextmanager
async def way(servers: Path, tmp_path: Path, sharing: Sharing) -> AsyncIterator[Way]:
    settings = GatewaySettings(listen=("127.0.0.1:0",), auth="open", state_dir=tmp_path, first_list_wait=20)
    launch = StdioLaunch(command=sys.executable, args=("-S", str(servers / "asking.py")))
    spec = ServerSpec(name="puppet", target=launch, sharing=sharing, stop=StopGraces(stdin=1.0, term=1.0))
    with anyio.fail_after(60):
        async with Supervisor() as supervisor:
            await supervisor.apply([spec])
            await supervisor.wait_until("puppet", lambda status: status.state is State.READY)
            async with Gateway(supervisor, settings, instance=supervisor.instance, health=lambda *_: (200, "ok")) as gateway:
                yield Way(gateway, supervisor)


async def pid(client: Client) -> int:
    return json.loads((await client.call_tool("puppet__pid", {})).content[0].text)["pid"]


async def test_a_client_has_its_own_until_it_leaves(servers: Path, tmp_path: Path):
    """Two sessions have two processes; each ends with its session, and the shared one stays for the catalog."""
    async with way(servers, tmp_path, Sharing.PER_CLIENT) as to:
        async with Client(to.url, mode=LEGACY) as one:
            async with Client(to.url, mode=LEGACY) as other:
                pids = [await pid(client) for client in (one, other, one)]
                both = to.running()
            await until(lambda: to.running() == 2)
            still = await pid(one)
        await until(lambda: to.running() == 1)
        async with Client(to.url, mode=LEGACY) as third:
            names = {tool.name for tool in (await third.list_tools()).tools}
            listing = to.running()

    assert (pids[0] == pids[2] == still, pids[0] != pids[1], both, listing) == (True, True, 3, 1)
    assert "puppet__pid" in names


async def test_an_identity_has_one_for_all_its_clients(servers: Path, tmp_path: Path):
    """Whatever their era; it does not end with one of their sessions."""
    async with way(servers, tmp_path, Sharing.PER_IDENTITY) as to:
        async with Client(to.url, mode=LEGACY) as one, Client(to.url, mode=MODERN) as other:
            pids = {await pid(one), await pid(other)}
        left = to.running()

    assert (len(pids), left) == (1, 2)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_each_of_two_clients_is_asked_its_own(servers: Path, tmp_path: Path, era: str):
    """Over stdio, where the wire does not say whose a question is, both are asked at one time and each for its own call."""
    asked = {word: anyio.Event() for word in ("red", "blue")}

    def answers(word: str) -> Any:
        async def answer(*_: Any) -> ElicitResult:
            asked[word].set()
            for event in asked.values():
                await event.wait()
            return ElicitResult(action="accept", content={"answer": word})

        return answer

    heard: dict[str, Any] = {}
    async with way(servers, tmp_path, Sharing.PER_CLIENT) as to, anyio.create_task_group() as tasks:

        async def use(word: str) -> None:
            async with Client(to.url, mode=era, elicitation_callback=answers(word)) as client:
                heard[word] = json.loads((await client.call_tool("puppet__ask", {})).content[0].text)

        for word in asked:
            tasks.start_soon(use, word)

    assert heard == {word: {"action": "accept", "content": {"answer": word}} for word in asked}

"""The gateway in front of the real supervisor and a real server process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_from_start_to_kill(servers: Path, tmp_path: Path, era: str):
    """A client that comes while a server starts sees its tools, calls them, and goes on after the server was killed."""
    spec = ServerSpec(name="lite", target=StdioLaunch(command=sys.executable, args=(str(servers / "lite.py"),)))
    settings = GatewaySettings(listen=("127.0.0.1:0",), auth="open", state_dir=tmp_path, first_list_wait=20)
    async with Supervisor() as supervisor:
        doors: ServerDoors = supervisor
        await supervisor.apply([spec])
        async with (
            Gateway(doors, settings, instance=supervisor.instance, health=lambda *_: (200, "ok")) as gateway,
            Client(f"{gateway.addresses[0]}/mcp", mode=era) as client,
        ):
            tools = [one.name for one in (await client.list_tools()).tools]
            echoed = await client.call_tool("lite__echo", {"text": "hello"})
            pid = int((await client.call_tool("lite__pid", {})).content[0].text)
            os.kill(pid, signal.SIGKILL)
            with anyio.fail_after(20):
                await supervisor.wait_until("lite", lambda status: status.generation > 1 and status.state is State.READY)
            new_pid = int((await client.call_tool("lite__pid", {})).content[0].text)

    assert tools == ["lite__echo", "lite__pid", "lite__big"]
    assert echoed.content[0].text == "hello"
    assert new_pid != pid

"""The way of progress: from a call of the supervisor, past the bus, to whoever has asked for it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing
from tests.supervisor.memory_wire import MemoryServer

from mcpvisor.daemon.handlers.observing import ProgressObserver
from mcpvisor.supervisor.observer import NoObserver
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

ME = Principal("test")
SPEC = ServerSpec(name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Nothing here is real."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class Counting(NoObserver):
    """Counts calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def call_started(self, server: str) -> None:
        self.calls.append(server)


async def test_progress_of_a_call_is_told() -> None:
    """With its server and tool, where the caller has asked for it; counting is done by another."""
    server = MemoryServer()

    async def slow(params: dict[str, Any]) -> Any:
        assert server.wire is not None
        if (token := params.get("_meta", {}).get("progressToken")) is not None:
            body = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1,"total":4}}'
            server.wire._received(body % token)
        return {"content": []}

    def opener(opening: Opening) -> Any:
        return server.open(opening)

    server.handlers["tools/call"] = slow
    told: list[tuple[str, str | None, Any]] = []
    counts = Counting()
    observer = ProgressObserver(counts)
    observer.on_progress = lambda name, tool, progress: told.append((name, tool, progress["total"]))
    with anyio.fail_after(1000):
        async with Supervisor(opener=opener, guarded=False, observer=observer) as supervisor:
            await supervisor.apply([SPEC])
            await supervisor.wait_until("files", lambda status: status.state is State.READY)
            connection = supervisor.connection("files")
            await connection.request("tools/call", {"name": "echo"}, principal=ME, on_progress=lambda _: None)
            await connection.request("tools/call", {"name": "echo"}, principal=ME)

    assert ([("files", "echo", 4)], ["files", "files"]) == (told, counts.calls)

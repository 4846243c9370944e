"""What the reason of a server in memory says first, under virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.spec import Era, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.exchange import peer_error
from tests.supervisor.memory_wire import MemoryServer

pytestmark = pytest.mark.anyio

SPEC = ServerSpec(
    name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0), era=Era.LEGACY
)  # fmt: skip


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


async def test_what_hurts_calls_most_comes_first() -> None:
    """A probe that is missed stands before a list that cannot be read, whichever was found first."""
    server = MemoryServer()

    async def refuse(params: dict[str, Any]) -> Any:
        del params
        raise peer_error({"code": -32603, "message": "no list"})

    server.handlers["tools/list"] = refuse
    server.silent = {"ping"}

    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(3600):
        async with Supervisor(opener=opener, guarded=False) as supervisor:
            await supervisor.apply([SPEC])
            first = await supervisor.wait_until("files", lambda status: "no list" in status.reason)
            later = await supervisor.wait_until("files", lambda status: "missed" in status.reason)

    assert not first.reason.startswith("probe")
    assert later.reason.startswith("probe 1/3 missed; ")
    assert "no list" in later.reason

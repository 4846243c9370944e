"""The exit codes of a server in memory, under virtual time: each is honoured, however early the server exits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.spec import Era, RestartPolicy, RestartRule, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor
from tests.supervisor.memory_wire import MemoryServer

pytestmark = pytest.mark.anyio

SETTLED = frozenset({State.FAILED, State.STOPPED, State.CRASH_LOOP})


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


def spec(era: Era, policy: RestartPolicy) -> ServerSpec:
    made = ServerSpec(name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))
    return replace(made, era=era, restart=policy)


def exiting(code: int) -> MemoryServer:
    """A server that exits as soon as anything is said to it."""
    server = MemoryServer()

    async def leave(params: dict[str, Any]) -> Any:
        del params
        server.end(detail=f"exited with code {code}", exit_code=code)
        return await anyio.sleep_forever()

    server.handlers |= {"server/discover": leave, "initialize": leave}
    return server


async def settled(server: MemoryServer, made: ServerSpec) -> tuple[State, str]:
    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(100_000):
        async with Supervisor(opener=opener, guarded=False) as supervisor:
            await supervisor.apply([made])
            status = await supervisor.wait_until("files", lambda status: status.state in SETTLED)
            await anyio.sleep(250)  # it would have been started again by now
    return status.state, status.reason


@pytest.mark.parametrize("era", list(Era))
async def test_a_prevented_code_before_the_handshake_is_not_followed_by_a_start(era: Era) -> None:
    """A code of `prevent_codes` is taken at its word at once, be it the answer to a question for the era or to a handshake."""
    server = exiting(78)
    state, reason = await settled(server, spec(era, RestartPolicy(prevent_codes=(78,))))

    asked = "it exited with code 78 when asked for its era" if era is Era.AUTO else "exited with code 78"
    assert (State.FAILED, 1) == (state, server.opened)
    assert f"{asked}, after which it is not to be started again (restart.prevent_codes)" == reason


@pytest.mark.parametrize(("era", "starts"), [(Era.AUTO, 2), (Era.LEGACY, 1), (Era.MODERN, 1)])
@pytest.mark.parametrize(("code", "more"), [(0, {}), (143, {"success_codes": (143,)})])
async def test_a_good_end_before_the_handshake_is_left_at_that(era: Era, starts: int, code: int, more: Any) -> None:
    """With `on-failure` a server that ended well rests; only where it was asked for its era it is given one start without."""
    server = exiting(code)
    policy = RestartPolicy(policy=RestartRule.ON_FAILURE, **more)
    state, reason = await settled(server, spec(era, policy))

    assert (State.STOPPED, starts) == (state, server.opened)
    assert f"exited with code {code}; its restart policy is on-failure" == reason


async def test_a_code_that_is_not_classed_is_retried() -> None:
    """Any other code is an end like every one, and may become a crash loop."""
    server = exiting(7)
    state, _ = await settled(server, spec(Era.AUTO, RestartPolicy(prevent_codes=(78,))))

    assert (State.CRASH_LOOP, True) == (state, server.opened > 5)

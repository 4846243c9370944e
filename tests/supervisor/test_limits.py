"""Limits that cannot be enforced are told, once, and shown for as long as it is so."""

from __future__ import annotations

import anyio
import pytest

from mcpvisor.supervisor.events import LimitsNotEnforced, ProcessStarted
from mcpvisor.supervisor.process.delegation import Subtree
from mcpvisor.supervisor.spec import ResourceLimits, RestartPolicy, ServerSpec, StdioLaunch
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio
WHY = "this machine has control groups of version 1 only"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def spec(limits: ResourceLimits) -> ServerSpec:
    target = StdioLaunch(command="sh", args=("-c", "exit 3"), limits=limits)
    return ServerSpec(name="files", target=target, restart=RestartPolicy(delay=0.01, max_delay=0.01, intensity=None))


async def test_limits_that_do_not_hold_are_told_once_and_shown_until_they_are_gone() -> None:
    """One event for all restarts, the limits and the reason in the status; nothing more once the entry has no such limit."""
    with anyio.fail_after(20):
        async with Supervisor(guarded=False, subtree=Subtree(why_not=WHY)) as supervisor:
            await supervisor.apply([spec(ResourceLimits(memory=1024**3, cpu=0.5, files=99))])
            limited = await supervisor.wait_until("files", lambda status: status.generation > 3)
            await supervisor.apply([spec(ResourceLimits(files=99))])
            seen = limited.generation + 2
            free = await supervisor.wait_until("files", lambda status: status.generation > seen)
            history = supervisor.history("files")

    assert f"memory, cpu: {WHY}" == limited.limits_not_enforced
    assert "" == free.limits_not_enforced
    assert [(("memory", "cpu"), WHY)] == [(one.limits, one.why) for one in history if isinstance(one, LimitsNotEnforced)]
    assert len([one for one in history if isinstance(one, ProcessStarted)]) > 3

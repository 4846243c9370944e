"""A server in a crash loop, and its neighbours meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import anyio
import pytest

from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.spec import Intensity, RestartPolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

NEIGHBOURS = 40
LIMIT = 1.0


@pytest.mark.alone
async def test_a_crash_loop_costs_its_neighbours_nothing(servers: Path, tmp_path: Path) -> None:
    """A server that ends right after each handshake is in `crash_loop`, and stays tried.

    Each of forty others is meanwhile seen to be dead within a second of its kill, and ready within another.
    """
    # Tries come as soon in the loop as before it, so that it goes on for as long as the neighbours are looked at.
    looping = RestartPolicy(delay=0.05, max_delay=0.1, intensity=Intensity(ends=5, within=60.0), crash_loop_retry=0.1)
    short = StopGraces(stdin=0.2, term=0.2)
    env = (("FIELD_LOG", str(tmp_path / "looper.log")), ("FIELD_STATE", str(tmp_path / "looper.state")))
    looper_target = StdioLaunch(command=sys.executable, args=(str(servers / "stdio_exit_after_init.py"), "after-init"), env=env)
    looper = ServerSpec(name="looper", target=looper_target, restart=looping, stop=short)
    target = StdioLaunch(command=sys.executable, args=("-I", "-S", str(servers / "lite.py")))
    quick = RestartPolicy(delay=0.05)
    names = [f"n{number}" for number in range(NEIGHBOURS)]
    neighbours = [ServerSpec(name=name, target=target, restart=quick, stop=short) for name in names]

    noticed: dict[str, float] = {}
    started: dict[str, float] = {}
    with anyio.fail_after(120):
        async with Supervisor() as supervisor:
            await supervisor.apply([looper, *neighbours])
            await supervisor.wait_until("looper", lambda status: status.state is State.CRASH_LOOP)
            for name in names:
                await supervisor.wait_until(name, lambda status: status.state is State.READY)
            tries = supervisor.status("looper").generation
            for name in names:
                await supervisor.connection(name).request("tools/list", principal=Principal("test"))
                pid = supervisor.status(name).pid
                assert pid is not None
                killed = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                await supervisor.wait_until(name, lambda status: status.state is not State.READY)
                seen = time.monotonic()
                await supervisor.wait_until(name, lambda status: status.state is State.READY)
                noticed[name], started[name] = seen - killed, time.monotonic() - seen
            tried = supervisor.status("looper").generation - tries
            await supervisor.wait_until("looper", lambda status: status.state is State.CRASH_LOOP)
        assert [] == find_marked(supervisor.instance)

    print(
        f"noticed within {max(noticed.values()):.3f} s, started within {max(started.values()):.3f} s, {tried} tries meanwhile"
    )
    assert NEIGHBOURS == len(started)
    assert tried > 0
    assert max(noticed.values()) < LIMIT
    assert max(started.values()) < LIMIT

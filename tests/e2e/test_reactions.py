"""Why a real process did not come up, or ended, decides what follows: each cause has its own reaction."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.case import Case

from mcpvisor.supervisor.spec import RestartPolicy, RestartRule, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

FOREIGN = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    reply = {"jsonrpc": "2.0", "id": request.get("id")}
    if request.get("method") == "initialize":
        reply["result"] = {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
    else:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    if "id" in request:
        print(json.dumps(reply), flush=True)
"""


@pytest.fixture
async def started(supervisor: Supervisor, tmp_path: Path) -> Callable[..., Any]:
    """Puts a program under supervision."""

    async def start(command: str, *args: str, cwd: str | None = None, **policy: Any) -> Case:
        target = StdioLaunch(command=command, args=args, cwd=cwd)
        stop = StopGraces(stdin=0.2, term=0.2)
        restart = RestartPolicy(**{"delay": 0.05, **policy})
        await supervisor.apply([ServerSpec(name="puppet", target=target, restart=restart, stop=stop)])
        return Case(supervisor, "puppet", tmp_path / "none")

    return start


async def test_a_program_that_is_not_there(started: Callable[..., Any]) -> None:
    """`failed`, looked for again in minutes, and the reason names the program and the key."""
    case = await started("no-such-program")
    status = await case.reach(State.FAILED)

    assert "no program 'no-such-program' on PATH=" in status.reason
    assert 290 < status.next_attempt - status.since < 310


async def test_a_program_that_may_not_be_run(started: Callable[..., Any], tmp_path: Path) -> None:
    """The same, and the remedy is another one."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    case = await started(str(program))
    status = await case.reach(State.FAILED)

    assert "it needs the x bit" in status.reason
    assert status.next_attempt is not None


async def test_a_folder_that_is_not_there(started: Callable[..., Any], tmp_path: Path) -> None:
    """The same, and the reason names the key `cwd`."""
    case = await started(sys.executable, cwd=str(tmp_path / "nowhere"))
    status = await case.reach(State.FAILED)

    assert "edit the key `cwd`" in status.reason
    assert status.next_attempt is not None


async def test_a_protocol_version_that_nobody_knows(started: Callable[..., Any]) -> None:
    """No crash loop: an update or an edit mends it, and the reason names the version."""
    case = await started(sys.executable, "-c", FOREIGN)
    status = await case.reach(State.FAILED)

    assert "1999-01-01" in status.reason
    assert 290 < status.next_attempt - status.since < 310


@pytest.mark.parametrize(
    ("code", "policy", "state", "generations"),
    [
        (78, {"prevent_codes": (78,)}, State.FAILED, 1),
        (0, {"prevent_codes": (0,)}, State.STOPPED, 1),
        (143, {"policy": RestartRule.ON_FAILURE, "success_codes": (143,)}, State.STOPPED, 1),
        (1, {"policy": RestartRule.ON_FAILURE, "success_codes": (143,)}, State.CRASH_LOOP, 6),
    ],
)
async def test_exit_codes_are_classed(
    started: Callable[..., Any], code: int, policy: dict[str, Any], state: State, generations: int
) -> None:
    """As the entry says it, for a server that ends after its handshake."""
    script = FOREIGN.replace("1999-01-01", "2025-11-25") + f"    if 'id' not in request: sys.exit({code})\n"
    case = await started(sys.executable, "-c", script, **policy)
    status = await case.reach(state)

    assert f"exited with code {code}" in status.reason
    assert generations == status.generation
    assert (status.next_attempt is None) is (state is not State.CRASH_LOOP)

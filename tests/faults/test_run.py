"""A thousand random faults over twenty servers, and what holds all the while."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.faults.ledger import Ledger
from tests.faults.oracles import (
    Called,
    Moved,
    Recovery,
    Span,
    Updated,
    executed_twice,
    false_states,
    left_over,
    lost_updates,
    not_recovered,
    outlived_deadlines,
    untrue_outcomes,
)
from tests.faults.pace import Pace
from tests.faults.plan import SHARE, Kind, fleet, plan
from tests.faults.puppets import Puppet
from tests.faults.run import FaultRun, descriptors
from tests.faults.stores import MOUNTED, STORES, Making

from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).returncode != 0,
    reason="needs to mount",
)
FATES = [
    pytest.param(STORES["memory"], id="memory", marks=pytest.mark.alone),
    *(pytest.param(make, id=name) for name, make in STORES.items() if name != "memory"),
    *(pytest.param(make, id=name, marks=needs_mounts) for name, make in MOUNTED.items()),
]

PART = 32
EACH = 2
"""What is kept changes nothing of the faults: a part of them shows it, on so many servers of each kind."""

BESIDE_OTHERS = 2.0
"""The slack of such a part, which runs beside other tests. A store that lets anybody wait does so for good."""


@pytest.mark.slow
@pytest.mark.parametrize("make", FATES)
async def test_no_fault_is_more_than_a_fault(
    make: Making, seed: int, faults: int, pace: Pace, servers: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Calls end in time, once, and as told; states are true; every server comes back; nothing is left and nothing grows."""
    staff = fleet()
    if make is not STORES["memory"]:
        faults, staff, pace = faults // PART, fleet(EACH), replace(pace, slack=BESIDE_OTHERS)
    folder = tmp_path_factory.mktemp("f")
    puppets = [Puppet(server, folder, servers / "faulty.py") for server in staff]
    planned = plan(seed, staff, faults)
    ledger = Ledger(folder / "ledger")
    before, began = descriptors(), time.monotonic()
    try:
        async with anyio.create_task_group() as launching:
            for puppet in puppets:
                if puppet.server.transport == "http":
                    launching.start_soon(puppet.launch)
        async with make(folder) as kept, Supervisor(store=kept) as supervisor:
            await supervisor.apply([puppet.spec(pace) for puppet in puppets])
            run = FaultRun(supervisor, puppets, pace, ledger, seed)
            await run.run(planned, marks=(faults // 10, faults))
            statuses = supervisor.statuses()
        marked = find_marked(supervisor.instance)
    finally:
        for puppet in puppets:
            puppet.end()
    await anyio.lowlevel.checkpoint()
    after, took = descriptors(), time.monotonic() - began

    executed = [line["id"] for puppet in puppets for line in puppet.read("executed")]
    calls, stalls, recoveries = ledger.all(Called), ledger.stalls(), ledger.all(Recovery)
    print(f"{make.__name__}, seed {seed}: {run.done.total()} faults in {took:.0f} s: {dict(run.done)}")
    print(f"{len(calls)} calls {dict(Counter(call.outcome for call in calls))}, {len(executed)} executed; ledger {ledger.path}")
    changes = [change for puppet in puppets for change in puppet.changes() if run.began <= change.at <= run.over]
    updates = ledger.all(Updated)
    print(f"{len(changes)} changes, told by {dict(Counter('exact' if one.exact else 'maybe' for one in updates))}")
    print(f"stalls {sum(stall.end - stall.begin for stall in stalls):.1f} s; resident {run.resident}")
    print("slowest", sorted(((one.well or 1e9) - one.over, one.server, one.fault) for one in recoveries)[-3:])

    breaches = [
        *run.complaints,
        *(line for puppet in puppets for line in puppet.complaints()),
        *executed_twice(executed),
        *untrue_outcomes(calls, set(executed)),
        *outlived_deadlines(calls, pace.slack, stalls),
        *false_states(ledger.all(Moved), [span for span in ledger.all(Span) if span.server], pace.noticed + pace.slack, stalls),
        *lost_updates(changes, updates, pace.recovered + pace.slack, stalls),
        *not_recovered(recoveries, pace.recovered + pace.slack, stalls),
        *left_over(marked, before, after),
    ]
    ledger.close()
    assert [] == breaches, "\n".join(breaches)
    assert {server.name: (server.era, 0, 0) for server in staff} == {
        status.name: (status.era, status.in_flight, status.queued) for status in statuses
    }
    assert all(run.done[kind] >= faults // SHARE for kind in Kind)
    assert run.resident[faults] <= run.resident[faults // 10] * 1.1

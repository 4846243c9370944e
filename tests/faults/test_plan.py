"""What a fault run is going to do."""

from __future__ import annotations

import pytest
from tests.faults.plan import TAKES, Kind, Server, fleet, plan, suits, tally


@pytest.mark.parametrize("count", [200, 1000, 1017])
@pytest.mark.parametrize("seed", range(5))
def test_every_kind_has_its_share_and_the_number_is_met(seed: int, count: int) -> None:
    """Of 1,000 faults each kind is met at least 50 times, and there are neither more nor fewer."""
    counts = tally(plan(seed, fleet(), count))

    assert set(Kind) == set(counts)
    assert count == sum(counts.values())
    assert min(counts.values()) >= count / 20


@pytest.mark.parametrize("seed", range(5))
def test_no_server_is_busy_for_longer_than_the_others(seed: int) -> None:
    """A run takes as long as the server that is through last: none has more to do than one fault more than any other."""
    busy = [sum(TAKES[fault.kind] for fault in faults) for faults in plan(seed, fleet(), 1000).values()]

    assert max(busy) - min(busy) <= max(TAKES.values())


def test_a_seed_is_a_plan() -> None:
    """The same number makes the same run, another number another one."""
    assert plan(7, fleet(), 300) == plan(7, fleet(), 300)
    assert plan(7, fleet(), 300) != plan(8, fleet(), 300)


def test_no_server_has_a_fault_that_it_cannot_have() -> None:
    """A pipe is not reset, and no session is wiped where there is none."""
    servers = {server.name: server for server in fleet()}
    unfit = [
        fault for faults in plan(3, fleet(), 500).values() for fault in faults if not suits(fault.kind, servers[fault.server])
    ]

    assert [] == unfit
    assert not suits(Kind.WIPE, Server("x", "http", "modern"))

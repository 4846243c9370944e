"""Sessions are opened at a pace for each client, in virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.daemon.gateway.openings import Openings

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


async def take_all(openings: Openings, principal: str, count: int) -> list[float]:
    """When each of so many openings, asked for at once, had its turn: seconds from now."""
    began, at = anyio.current_time(), []

    async def take() -> None:
        await openings.take(principal)
        at.append(round(anyio.current_time() - began, 6))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(take)
    return sorted(at)


async def test_a_burst_goes_at_once_and_the_rest_at_the_pace():
    """What is above the burst is spread evenly, and is all opened in the end."""
    assert [0, 0, 0, 0.5, 1.0, 1.5] == await take_all(Openings(per_second=2, burst=3), "a", 6)


async def test_nobody_waits_for_another():
    """A principal's pace is its own."""
    openings = Openings(per_second=1, burst=1)
    await take_all(openings, "a", 5)

    assert [0, 1] == await take_all(openings, "b", 2)


async def test_a_burst_grows_again_and_no_further():
    """Time without openings gives the burst back, and no more than it."""
    openings = Openings(per_second=2, burst=3)
    await take_all(openings, "a", 3)
    await anyio.sleep(1)
    after_one = await take_all(openings, "a", 3)
    await anyio.sleep(100)
    after_many = await take_all(openings, "a", 4)

    assert [0, 0, 0.5] == after_one
    assert [0, 0, 0, 0.5] == after_many

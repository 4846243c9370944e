"""In which order requests begin."""

from __future__ import annotations

import asyncio

import pytest

from mcpvisor.daemon.gateway.turns import RUSH_TURN, Turns

pytestmark = pytest.mark.anyio


async def test_one_in_each_turn():
    """Of a hundred requests of one client one begins in each turn of the loop, in their order; another's waits for none."""
    turns, begun = Turns(), []

    async def request(client: str, number: int) -> None:
        await turns.take(client)
        begun.append((client, number))

    requests = [asyncio.create_task(request("many", number)) for number in range(100)]
    await asyncio.sleep(0)
    requests.append(asyncio.create_task(request("one", 0)))
    for _ in range(3):
        await asyncio.sleep(0)
    early = list(begun)
    await asyncio.gather(*requests)

    assert ("one", 0) in early
    assert len(early) < 10
    assert [("many", number) for number in range(100)] == [one for one in begun if one[0] == "many"]


async def test_the_rush_after_a_start():
    """Of clients that all come back at one time eight requests of each begin in a turn, for a while."""
    turns, begun = Turns(rush_seconds=60.0), []

    async def request(number: int) -> None:
        await turns.take("client")
        begun.append(number)

    requests = [asyncio.create_task(request(number)) for number in range(100)]
    counts = []
    while len(begun) < len(requests):
        before = len(begun)
        await asyncio.sleep(0)
        counts.append(len(begun) - before)
    await asyncio.gather(*requests)

    assert RUSH_TURN == max(counts)
    assert list(range(100)) == begun


async def test_cancelled_requests_hold_nobody_up():
    """A request that is cancelled while it waits gives its turn away, and nothing is left of a client that has gone."""
    turns, begun = Turns(), []

    async def request(number: int) -> None:
        await turns.take("client")
        begun.append(number)

    requests = [asyncio.create_task(request(number)) for number in range(3)]
    await asyncio.sleep(0)
    requests[1].cancel()
    await asyncio.gather(*requests, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)

    assert [0, 2] == begun
    assert {} == turns._waiting

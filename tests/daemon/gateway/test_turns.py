"""In which order requests begin."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from mcpvisor.daemon.gateway.places import Standing
from mcpvisor.daemon.gateway.turns import BUSY_SHARE, LONGEST_PAUSE, RUSH_TURN, Turns

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


async def test_lost_connections_leave_the_queue():
    """Whoever opens a connection, asks, and is gone before its turn has nothing wait here: only what is open has a limit."""
    turns, begun, standings = Turns(), [], [Standing() for _ in range(100)]

    async def request(number: int) -> None:
        if await turns.take("client", standings[number]):
            begun.append(number)

    standings[3].lose()  # before its request has begun to wait
    requests = [asyncio.create_task(request(number)) for number in range(100)]
    await asyncio.sleep(0)
    for standing in standings[2:99]:
        standing.lose()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    over = sum(one.done() for one in requests)
    await asyncio.gather(*requests)

    assert [0, 1, 99] == begun
    assert over >= 97
    assert {} == turns._waiting


class Worked:
    """A loop whose every request takes so many seconds of work, by clocks that tests move."""

    def __init__(self, cost: float) -> None:
        self.now = self.busy = 100.0
        self.begun: list[tuple[str, float]] = []
        self.turns = Turns(nobodys=("stranger",), clock=lambda: self.now, busy=lambda: self.busy)
        self._cost = cost

    async def request(self, client: str) -> None:
        await self.turns.take(client)
        self.begun.append((client, self.now))
        self.now += self._cost
        self.busy += self._cost

    async def backlog(self, count: int, *, beside: str = "", idle: float = 0.0005) -> list[float]:
        """Seconds between the beginnings of one client's requests, while another sends one after another `beside` them."""
        loop = asyncio.get_running_loop()
        later, loop.call_later = loop.call_later, lambda _, *what: loop.call_soon(*what)  # type: ignore[method-assign]
        try:
            requests = [asyncio.create_task(self.request("many")) for _ in range(count)]
            while not all(one.done() for one in requests):
                if beside:
                    await self.request(beside)
                self.now += idle
                await asyncio.sleep(0)
        finally:
            loop.call_later = later  # type: ignore[method-assign]
        times = [at for client, at in self.begun if client == "many"][1:]
        return [after - before for before, after in itertools.pairwise(times)]


async def test_a_backlog_takes_a_part_of_the_time_while_somebody_else_is_there():
    """Whoever sends all at once waits until half of the time has passed idle, where another sends one after another."""
    gaps = await Worked(0.002).backlog(20, beside="one")

    assert min(gaps) >= 0.002 / BUSY_SHARE
    assert max(gaps) < LONGEST_PAUSE + 0.006


async def test_a_loop_that_is_busy_all_the_time_lets_a_backlog_on():
    """Where the other takes all the time there is, one that has a backlog gets on all the same."""
    gaps = await Worked(0.004).backlog(10, beside="one", idle=0.0)

    assert LONGEST_PAUSE <= min(gaps)
    assert max(gaps) < LONGEST_PAUSE + 0.009


@pytest.mark.parametrize("beside", ["", "stranger"])
async def test_a_backlog_has_all_the_time_where_nobody_is_there(beside: str):
    """With nobody there whom it could hold up, or nobody whom we know, a backlog is worked off without a pause."""
    gaps = await Worked(0.002).backlog(20, beside=beside, idle=0.0)

    assert max(gaps) < 2.5 * 0.002


async def test_two_backlogs_do_not_wait_for_each_other():
    """Of two clients that both send more than can be handled at once none is made to pause for the other."""
    worked = Worked(0.002)
    others = [asyncio.create_task(worked.request("more")) for _ in range(30)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gaps = await worked.backlog(20, idle=0.0)
    await asyncio.gather(*others)

    assert max(gaps) < 2.5 * 0.002

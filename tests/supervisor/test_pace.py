"""The share of the loop that long work has."""

from __future__ import annotations

import time

import anyio
import anyio.lowlevel
import pytest

from mcpvisor.supervisor.pace import REST_FACTOR, SLICE, Account, Accounts, Pace, let_go

pytestmark = pytest.mark.anyio


def work(seconds: float = SLICE) -> None:
    """Hold the loop."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def test_a_short_step_is_followed_by_no_pause():
    """What takes no time costs nobody's turn."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        pace = Pace()
        for _ in range(100):
            await pace.pause()
        assert not turns
        work()
        await pace.pause()
        assert turns
        tasks.cancel_scope.cancel()


async def test_others_have_three_quarters_of_a_busy_loop():
    """Two long works together leave the loop to others for most of the time."""
    idle, busy = 0.0, 0.0
    done = anyio.Event()

    async def others():
        nonlocal idle
        while not done.is_set():
            work(2 * SLICE)
            idle += 2 * SLICE
            await anyio.lowlevel.checkpoint()

    async def long_work():
        nonlocal busy
        pace = Pace()
        for _ in range(40):
            work()
            busy += SLICE
            await pace.pause()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        async with anyio.create_task_group() as works:
            works.start_soon(long_work)
            works.start_soon(long_work)
        done.set()

    assert idle > busy * (REST_FACTOR - 1)


async def test_who_is_alone_hardly_rests(monkeypatch):
    """With nobody else at work the loop is not left idle."""
    rests: list[float] = []
    sleep = anyio.sleep

    async def watched(seconds: float) -> None:
        rests.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(anyio, "sleep", watched)
    pace = Pace()
    for _ in range(100):
        work()
        await pace.pause()

    assert len(rests) < 50  # a busy machine may make a turn of nobody a long one


async def test_one_turn_for_all_others_without_rests(monkeypatch):
    """What has to be done soon only takes turns with the others."""
    monkeypatch.setattr(anyio, "sleep", None)
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            work()
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        pace = Pace()
        for _ in range(5):
            work()
            await pace.pause(rests=False)
        assert turns >= 5
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("value", "least"),
    [([[] for _ in range(50_000)], 2), ({str(n): {"a": [n]} for n in range(20_000)}, 2), ([[[[1], {}], 2]], 0), ([], 0)],
)
async def test_what_is_let_go_is_freed_while_others_have_their_turns(value, least):
    """However it is made, nothing is left in it, and no step frees it all."""
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await let_go(value)
        tasks.cancel_scope.cancel()

    assert not value
    assert turns >= least


async def test_who_has_had_least_goes_first():
    """One who works for the first time does not wait behind those who have worked all the time."""
    ended: list[str] = []
    greedy = Account()

    async def others():
        while True:
            work(2 * SLICE)
            await anyio.lowlevel.checkpoint()

    async def long_work(name: str, account: Account, slices: int):
        pace = Pace(account)
        for _ in range(slices):
            work()
            await pace.pause()
        ended.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        async with anyio.create_task_group() as works:
            for _ in range(5):
                works.start_soon(long_work, "greedy", greedy, 20)
            while greedy.charge(0.0) < 10 * SLICE:
                await anyio.lowlevel.checkpoint()
            works.start_soon(long_work, "modest", Account(), 5)
        tasks.cancel_scope.cancel()

    assert "modest" == ended[0]


async def test_whoever_gives_up_waiting_holds_up_nobody():
    """Neither one that waits nor one that has just been called."""
    async with anyio.create_task_group() as tasks:

        async def long_work():
            pace = Pace()
            for _ in range(3):
                work()
                await pace.pause()

        for _ in range(20):
            scope = anyio.CancelScope()

            async def cancelled(scope: anyio.CancelScope = scope):
                with scope:
                    await long_work()

            tasks.start_soon(cancelled)
            tasks.start_soon(long_work)
            await anyio.lowlevel.checkpoint()
            scope.cancel()

    with anyio.fail_after(20):
        await long_work()


def test_whoever_comes_again_has_the_same_account():
    """A client that sends one large text after another is not served first with each, as one who had nothing yet."""
    accounts = Accounts()
    accounts.of("busy").charge(1.0)
    fresh = accounts.of("calm").charge(0.0)

    assert (fresh, accounts.of("busy").charge(0.0) > 0.5) == (0.0, True)


def test_accounts_that_rest_are_forgotten():
    """Names come and go: what is kept of those who have gone does not grow."""
    now = 0.0
    accounts = Accounts(clock=lambda: now)
    first = accounts.of("first")
    for second in range(100):
        now = float(second)
        accounts.of(f"name {second}")
        accounts.of("always")
    kept = accounts.of("always")

    assert accounts.of("always") is kept
    assert accounts.of("first") is not first
    assert accounts.number <= 23

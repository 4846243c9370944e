"""Who starts first when many wait for a place, and how first dials are spread."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.starts import ASIDE_SECONDS, AT_ONCE, FIRST_SECONDS, SPREAD_SECONDS, StartGate, Urgency

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


async def test_the_most_urgent_goes_first_and_the_first_come_among_equals() -> None:
    """Required, then awaited, then the others; a place is asked for anew each time that one is free."""
    gate, order, urgency = StartGate(1, lambda: 1.0), list[str](), dict.fromkeys("abcdef", Urgency.PLAIN)
    urgency["c"] = Urgency.AWAITED
    urgency["e"] = Urgency.REQUIRED

    async def start(name: str) -> None:
        place = await gate.enter(lambda: urgency[name])
        order.append(name)
        if name == "e":
            urgency["f"] = Urgency.AWAITED  # a call comes for one that waits already
        await anyio.sleep(1)
        place.release()

    async with anyio.create_task_group() as tasks:
        for name in urgency:
            tasks.start_soon(start, name)
            await anyio.wait_all_tasks_blocked()

    assert ["a", "e", "c", "f", "b", "d"] == order


async def test_a_place_is_held_for_the_first_seconds_at_the_most() -> None:
    """Whoever hangs holds nobody up for long."""
    gate = StartGate(1, lambda: 1.0)
    async with anyio.create_task_group() as tasks:
        place = await gate.enter(lambda: Urgency.PLAIN)
        tasks.start_soon(place.release_in_time)
        await gate.enter(lambda: Urgency.PLAIN)

    assert FIRST_SECONDS == anyio.current_time()


async def test_who_leaves_the_queue_takes_no_place_along() -> None:
    """Whether it waited or was just let in."""
    gate = StartGate(1, lambda: 1.0)

    async def pass_through() -> None:
        (await gate.enter(lambda: Urgency.PLAIN)).release()

    place = await gate.enter(lambda: Urgency.PLAIN)
    with anyio.move_on_after(1):
        await pass_through()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pass_through)
        await anyio.wait_all_tasks_blocked()
        place.release()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(1):
        await gate.enter(lambda: Urgency.REQUIRED)


async def test_dials_that_come_together_are_spread_and_bounded() -> None:
    """One alone never waits, nor does one that is required; of a thousand none waits for more than half a second."""
    gate, waited = StartGate(1, lambda: 1.0), list[float]()

    async def dial(urgency: Urgency) -> None:
        await gate.spread(lambda: urgency)
        waited.append(anyio.current_time())

    await dial(Urgency.PLAIN)
    async with anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(dial, Urgency.REQUIRED if number == 999 else Urgency.PLAIN)

    assert [0.0, 0.0] == waited[:2]
    assert max(waited) == SPREAD_SECONDS
    assert len(set(waited)) > 50


async def test_many_whose_offers_are_on_show_let_those_who_list_them_go_first() -> None:
    """The first few start at once, the others half a second later; one that is awaited, or unknown, does not wait."""
    gate, waited = StartGate(1, lambda: 1.0), list[tuple[Urgency, float]]()

    async def start(urgency: Urgency) -> None:
        await gate.step_aside(lambda: urgency)
        waited.append((urgency, anyio.current_time()))

    async with anyio.create_task_group() as tasks:
        for urgency in (*[Urgency.SHOWN] * (AT_ONCE + 3), Urgency.PLAIN, Urgency.AWAITED, Urgency.REQUIRED):
            tasks.start_soon(start, urgency)
    await start(Urgency.SHOWN)

    at_once = [Urgency.REQUIRED, Urgency.AWAITED, Urgency.PLAIN, *[Urgency.SHOWN] * AT_ONCE]
    assert at_once == sorted(urgency for urgency, at in waited if at == 0)
    late = [(urgency, at) for urgency, at in waited if at != 0]
    assert [(Urgency.SHOWN, ASIDE_SECONDS)] * 4 == late  # the last of them came then, alone, and waited for nothing

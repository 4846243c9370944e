"""What takes a while is done one by one, and the loop is free between."""

from __future__ import annotations

import itertools
import time

import anyio
import pytest

from mcpvisor.daemon.questions.pace import Pace

STEPS = 5
SECONDS = 0.01


@pytest.mark.anyio
async def test_the_loop_is_free_between_two_steps_for_as_long_as_the_first_has_taken() -> None:
    """However many want to do a step at one time, and whether it fails or not."""
    pace = Pace()
    done: list[tuple[float, float]] = []

    async def step(number: int) -> None:
        try:
            async with pace.step():
                began = time.perf_counter()
                while time.perf_counter() < began + SECONDS:
                    pass
                done.append((began, time.perf_counter()))
                if number % 2:
                    raise ValueError
        except ValueError:
            return

    async with anyio.create_task_group() as tasks:
        for number in range(STEPS):
            tasks.start_soon(step, number)
    pauses = [begun[0] - before[1] for before, begun in itertools.pairwise(done)]

    assert len(done) == STEPS
    assert min(pauses) >= SECONDS * 0.9

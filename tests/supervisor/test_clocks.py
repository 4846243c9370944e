"""What a jump of the clocks is, by readings alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.clocks import JUMP, Jump, Reading, jump_between, read_clocks

START = Reading(wall=1e9, monotonic=100.0, boottime=500.0)


def later(passed: float, *, set_by: float = 0.0, slept: float = 0.0) -> Reading:
    return Reading(START.wall + passed + slept + set_by, START.monotonic + passed, START.boottime + passed + slept)


@pytest.mark.parametrize(
    ("set_by", "slept", "jump"),
    [
        (0.0, 0.0, None),
        (5.0, 0.0, None),
        (-5.0, 0.0, None),
        (5.1, 0.0, Jump(5.1, 0.0)),
        (-5.1, 0.0, Jump(-5.1, 0.0)),
        (0.0, 4.0, None),
        (0.0, 60.0, Jump(60.0, 60.0)),
        (-60.0, 60.0, Jump(0.0, 60.0)),
        (3600.0, 60.0, Jump(3660.0, 60.0)),
    ],
)
def test_a_jump_is_over_five_seconds(set_by: float, slept: float, jump: Jump | None) -> None:
    """Of the wall clock against the monotonic one, or of sleep, also where somebody has set the clock meanwhile."""
    found = jump_between(START, later(2.0, set_by=set_by, slept=slept))

    assert (jump is None) == (found is None)
    if jump is not None and found is not None:
        assert (pytest.approx(jump.seconds), pytest.approx(jump.asleep)) == (found.seconds, found.asleep)


@given(passed=st.floats(0, 1e6), set_by=st.floats(-JUMP + 0.01, JUMP - 0.01))
def test_time_that_passes_is_no_jump(passed: float, set_by: float) -> None:
    """However late the look comes, and whatever a time service corrects in small steps."""
    assert jump_between(START, later(passed, set_by=set_by)) is None


def test_the_clocks_of_this_machine_go_on() -> None:
    """They are real ones: none of them goes back between two readings, and there is no jump."""
    before, after = read_clocks(), read_clocks()

    assert before.monotonic <= after.monotonic
    assert before.boottime <= after.boottime
    assert jump_between(before, after) is None

"""Each oracle sees the breach that it is there for, and nothing else."""

from __future__ import annotations

from tests.faults.oracles import (
    Called,
    Changed,
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

from mcpvisor.supervisor.states import State


def called(outcome: str, *, text: str = "c1", ended: float = 1.0, deadline: float = 1.0) -> Called:
    return Called("s", "c1", 0.0, ended, deadline, outcome, text)


def test_a_second_execution_is_seen() -> None:
    """An id that is twice in the log was executed twice."""
    assert ["c2 was executed 2 times"] == executed_twice(["c1", "c2", "c3", "c2"])
    assert [] == executed_twice(["c1", "c2"])


def test_an_untrue_outcome_is_seen() -> None:
    """Told unsent and done, told done and not, or given the answer of another."""
    assert ["c1 was told not_sent (away), and was executed"] == untrue_outcomes([called("not_sent", text="away")], {"c1"})
    assert ["c1 has a result, and was not executed"] == untrue_outcomes([called("ok")], set())
    assert ["c1 was given the answer to c7"] == untrue_outcomes([called("ok", text="c7")], {"c1"})
    assert [] == untrue_outcomes([called("maybe_executed")], set()) + untrue_outcomes([called("maybe_executed")], {"c1"})
    assert [] == untrue_outcomes([called("ok")], {"c1"}) + untrue_outcomes([called("not_sent")], set())


def test_a_call_that_outlives_its_deadline_is_seen() -> None:
    """Whatever became of it; only what the run itself stood still is taken off."""
    late = called("timeout", ended=1.5)

    assert ["c1 ended after 1.500 s of 1.000 s as timeout (c1)"] == outlived_deadlines([late], 0.2, [])
    assert ["c1 ended after 1.500 s of 1.000 s as timeout (c1)"] == outlived_deadlines([late], 0.2, [Span(0.0, 0.2)])
    assert [] == outlived_deadlines([late], 0.2, [Span(0.9, 1.3)])
    assert [] == outlived_deadlines([called("ok", ended=1.1)], 0.2, [])


def test_a_false_state_is_seen() -> None:
    """Ready for too long while stopped, be it since before that or again within it."""
    dead = [Span(10.0, 14.0, "s", "stop")]
    seen = ["s was shown ready for 2.000 s after it was hit (stop, at 10.000)"]

    assert seen == false_states([Moved("s", 5.0, State.READY), Moved("s", 12.0, State.DEGRADED)], dead, 1.0, [])
    assert seen == false_states([Moved("s", 5.0, State.BACKOFF), Moved("s", 12.0, State.READY)], dead, 1.0, [])
    assert [] == false_states([Moved("s", 5.0, State.READY), Moved("s", 10.9, State.DEGRADED)], dead, 1.0, [])
    assert [] == false_states([Moved("other", 5.0, State.READY)], dead, 1.0, [])
    assert [] == false_states([Moved("s", 5.0, State.READY), Moved("s", 11.5, State.BACKOFF)], dead, 1.0, [Span(10.0, 10.6)])


def test_a_lost_update_is_seen() -> None:
    """A change that no update tells, one that the update of another would have to tell, and one that is told too late."""
    changes = [Changed("s", 1.0), Changed("s", 2.0)]

    assert ["s changed at 2.000, which nobody was told"] == lost_updates(changes, [Updated("s", 2.1, exact=True)], 5.0, [])
    assert ["s changed at 2.000, which nobody was told"] == lost_updates(changes, [Updated("s", 1.1, exact=False)], 5.0, [])
    assert ["s changed at 2.000, which was told 7.000 s later"] == lost_updates(
        changes, [Updated("s", 1.1, exact=True), Updated("s", 9.0, exact=True)], 5.0, []
    )
    assert 2 == len(lost_updates(changes, [Updated("other", 3.0, exact=False)], 5.0, []))
    assert [] == lost_updates(changes, [Updated("s", 1.1, exact=True), Updated("s", 2.1, exact=True)], 5.0, [])
    assert [] == lost_updates(changes, [Updated("s", 3.0, exact=False)], 5.0, [])
    assert [] == lost_updates(changes, [Updated("s", 9.0, exact=False)], 5.0, [Span(2.0, 6.0)])


def test_a_server_that_does_not_recover_is_seen() -> None:
    """Not at all, or not in time."""
    assert ["s did not recover from kill: backoff"] == not_recovered([Recovery("s", "kill", 1.0, None, "backoff")], 3.0, [])
    assert ["s took 4.000 s to recover from kill"] == not_recovered([Recovery("s", "kill", 1.0, 5.0)], 3.0, [])
    assert [] == not_recovered([Recovery("s", "kill", 1.0, 3.5)], 3.0, [])
    assert [] == not_recovered([Recovery("s", "kill", 1.0, 5.0)], 3.0, [Span(2.0, 3.5)])


def test_what_is_left_is_seen() -> None:
    """A process with the mark, and a descriptor more than before."""
    before = {"1": "pipe:[1]"}

    assert ["process 77 is left"] == left_over([77], before, before)
    assert ["1 more of pipe:[2]"] == left_over([], before, {"1": "pipe:[1]", "5": "pipe:[2]"})
    assert [] == left_over([], before, before)

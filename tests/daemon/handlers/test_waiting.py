"""What waits for a handler: order, coalescing, bounds, delays and the circuit, with the time as an argument."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.handlers.circuit import CircuitState
from mcpvisor.daemon.handlers.contract import EventKind, HandlerEvent
from mcpvisor.daemon.handlers.specs import CircuitPolicy, HandlerSpec, LogOptions, RetryPolicy
from mcpvisor.daemon.handlers.waiting import Failure, HandlerQueue, Offered

BAD = Failure(why="no")


def event(event_id: str, uri: str = "a", kind: EventKind = "resource_updated", **data: Any) -> HandlerEvent:
    more = {"uri": uri} if kind == "resource_updated" else {}
    return HandlerEvent(id=event_id, kind=kind, server="s", at=1.0, data={**more, **data})


def queue(jitter: float = 0.0, most_bytes: int = 1000, **keys: Any) -> HandlerQueue:
    """A queue whose delays are half of each step."""
    return HandlerQueue(HandlerSpec(name="h", options=LogOptions(), **keys), lambda: jitter, most_bytes=most_bytes)


def offer(waits: HandlerQueue, *events: HandlerEvent, now: float = 0.0, **how: Any) -> list[Offered]:
    return [waits.offer(one, 10, now, **{"keep": False, **how})[0] for one in events]


def given_now(waits: HandlerQueue, now: float) -> list[str]:
    """The ids of all that is given out at a time."""
    found: list[str] = []
    while (one := waits.next(now)) is not None:
        found.append(one.id)
    return found


def test_one_lane_keeps_its_order() -> None:
    """What comes for a URI while one of it is with the handler waits for its end, also while that is tried again."""
    waits = queue(concurrency=4, retry=RetryPolicy(delay=2.0))
    offer(waits, event("1"))
    first = given_now(waits, 0)
    offer(waits, event("2"), event("3", uri="b"))
    beside = given_now(waits, 0)
    waits.failed("1", BAD, 0)
    early = given_now(waits, 0.9)
    again = given_now(waits, 1.0)
    waits.handled("1")

    assert (["1"], ["3"], [], ["1"], ["2"]) == (first, beside, early, again, given_now(waits, 1.0))


def test_updates_of_one_uri_are_one() -> None:
    """Updates that wait for the same URI are told as one, with the first id and time and the newest data."""
    waits = queue()
    outcomes = offer(waits, event("1", reason="resync"), event("2", reason="notified"), event("3", uri="b"))

    assert [Offered.ACCEPTED, Offered.COALESCED, Offered.ACCEPTED] == outcomes
    assert HandlerEvent(
        id="1", kind="resource_updated", server="s", at=1.0, data={"uri": "a", "reason": "notified"}, coalesced=2
    ) == waits.next(0)


def test_nothing_is_put_into_what_was_tried() -> None:
    """An update that comes after a try of another is told by itself: who had seen the first id would pass over it."""
    waits = queue()
    offer(waits, event("1"))
    given_now(waits, 0)
    waits.failed("1", BAD, 0)

    assert [Offered.ACCEPTED, Offered.COALESCED] == offer(waits, event("2"), event("3"))
    assert ["1", "2"] == [waiting.event.id for waiting in waits]


@pytest.mark.parametrize(
    ("kind", "first", "second", "outcome"),
    [
        ("list_changed", {"list": "tools"}, {"list": "tools"}, Offered.COALESCED),
        ("list_changed", {"list": "tools"}, {"list": "prompts"}, Offered.ACCEPTED),
        ("progress", {"call": "1"}, {"call": "1"}, Offered.COALESCED),
        ("progress", {"call": "1"}, {"call": "2"}, Offered.ACCEPTED),
        ("state_changed", {}, {}, Offered.ACCEPTED),
        ("log_message", {}, {}, Offered.ACCEPTED),
    ],
)
def test_what_is_coalesced(kind: EventKind, first: dict[str, Any], second: dict[str, Any], outcome: Offered) -> None:
    """Changes of one list and progress of one call are told by the newest; no state and no message is left out."""
    waits = queue()
    offer(waits, event("1", kind=kind, **first))

    assert [outcome] == offer(waits, event("2", kind=kind, **second))


def test_a_full_queue_takes_nothing_more() -> None:
    """A queue is bounded in number and in bytes; what was accepted before has room in any case."""
    waits, narrow = queue(queue=2), queue(most_bytes=15)

    assert [Offered.ACCEPTED] * 2 + [Offered.OVERFLOW] == offer(waits, event("1"), event("2", "b"), event("3", "c"))
    assert [Offered.ACCEPTED, Offered.OVERFLOW] == offer(narrow, event("1"), event("2", "b"))
    assert [Offered.ACCEPTED] == offer(narrow, event("2", "b"), admit=True)


def test_what_is_not_on_disk_is_not_given() -> None:
    """An event that has to be committed is given once it is, and holds up only its own lane until then."""
    waits = queue(concurrency=4)
    offer(waits, event("1"), event("2", "b"), keep=True)
    before = given_now(waits, 0)
    waits.committed("2")
    one = given_now(waits, 0)
    waits.committed("1")

    assert ([], ["2"], ["1"]) == (before, one, given_now(waits, 0))


def test_concurrency() -> None:
    """No more events are with the handler at one time than it is to have."""
    waits = queue(concurrency=2)
    offer(waits, *(event(str(n), str(n)) for n in range(3)))
    first = given_now(waits, 0)
    waits.handled("0")

    assert (["0", "1"], ["2"]) == (first, given_now(waits, 0))


def test_delays_double() -> None:
    """Each try waits twice as long as the one before, up to the longest delay, by half to all of the step."""
    waits = queue(retry=RetryPolicy(delay=2.0, max_delay=5.0), circuit=CircuitPolicy(failures=100))
    offer(waits, event("1"))
    now, delays = 0.0, list[float]()
    for _ in range(4):
        given_now(waits, now)
        waits.failed("1", BAD, now)
        due = waits.wake_at()
        assert due is not None
        delays.append(due - now)
        now = due

    assert [1.0, 2.0, 2.5, 2.5] == delays


def test_retry_after_is_for_the_handler() -> None:
    """A receiver that names a time is given nothing before it, whatever waits."""
    waits = queue()
    offer(waits, event("1"), event("2", "b"))
    waits.next(0)
    waits.failed("1", Failure(why="busy", retry_after=7.0), 0)

    assert ([], 7.0, ["2"]) == (given_now(waits, 6.9), waits.wake_at(), given_now(waits, 7.0))


def test_an_event_that_alone_fails_is_given_up() -> None:
    """While others get through, an event is dead after its tries."""
    waits = queue(retry=RetryPolicy(attempts=3), circuit=CircuitPolicy(failures=2))
    offer(waits, event("bad"))
    now, verdicts = 0.0, list[bool]()
    while "bad" in waits:
        now += 100
        offer(waits, event(f"good{now}", "b"), now=now)
        for event_id in (waits.next(now), waits.next(now)):
            if event_id is None:
                continue
            if event_id.id == "bad":
                verdicts.append(waits.failed("bad", BAD, now).is_dead)
            else:
                waits.handled(event_id.id)
        while (one := waits.next(now)) is not None:
            waits.handled(one.id)

    assert [False, False, True] == verdicts


def test_nothing_is_given_up_while_a_handler_is_away() -> None:
    """Tries of an open circuit count for no event: after an outage of any length everything is still there."""
    waits = queue(retry=RetryPolicy(attempts=3), circuit=CircuitPolicy(failures=2, open_for=30.0))
    offer(waits, *(event(str(n), str(n)) for n in range(5)))
    now = 0.0
    for _ in range(1000):
        due = waits.wake_at()
        assert due is not None
        now = max(now, due)
        one = waits.next(now)
        assert one is not None
        assert not waits.failed(one.id, BAD, now).is_dead
    assert 5 == len(waits)
    done = list[str]()
    while (due := waits.wake_at()) is not None:
        now = max(now, due)
        one = waits.next(now)
        assert one is not None
        waits.handled(one.id)
        done.append(one.id)

    assert ["0", "1", "2", "3", "4"] == sorted(done)


def test_what_nobody_has_tried_does_not_count() -> None:
    """An event is not given up while nobody is there to take it, however few tries it has; the circuit opens all the same."""
    waits = queue(retry=RetryPolicy(attempts=1, delay=1.0), circuit=CircuitPolicy(failures=3, open_for=60.0))
    offer(waits, event("1"))
    verdicts = []
    for now in (0.0, 10.0, 20.0):
        assert ["1"] == given_now(waits, now)
        verdicts.append(waits.failed("1", Failure(why="no worker", was_tried=False), now).is_dead)
    state = waits.circuit.state
    given_now(waits, 100.0)
    waits.handled("1")
    offer(waits, event("2"), now=101.0)
    given_now(waits, 101.0)

    assert ([False] * 3, CircuitState.OPEN) == (verdicts, state)
    assert waits.failed("2", BAD, 101.0).is_dead


def test_the_circuit() -> None:
    """After failures in a row nothing is given, then one event, and what becomes of that decides."""
    waits = queue(concurrency=4, circuit=CircuitPolicy(failures=2, open_for=30.0), retry=RetryPolicy(delay=1.0))
    offer(waits, event("1", "1"), event("2", "2"), event("3", "3"), event("4", "4"), event("5", "5"))
    given_now(waits, 0)
    opened = [waits.failed(one, BAD, 0).opened for one in ("1", "2")]
    closed_by_a_late_one = (waits.handled("3"), waits.circuit.state)
    waits.failed("4", BAD, 1)
    opened_again = waits.failed("5", BAD, 1) if "5" in given_now(waits, 1) else None
    assert opened_again is not None
    state, wake = waits.circuit.state, waits.wake_at()
    nothing = given_now(waits, 30.9)
    one = given_now(waits, 31.0)
    half = waits.circuit.state
    waits.failed(one[0], BAD, 31)
    still = (waits.circuit.state, waits.wake_at())
    (other,) = given_now(waits, 61.0)
    closed = waits.handled(other)

    assert ([False, True], (True, CircuitState.CLOSED), True) == (opened, closed_by_a_late_one, opened_again.opened)
    assert (CircuitState.OPEN, 31.0, [], 1) == (state, wake, nothing, len(one))
    assert (CircuitState.HALF_OPEN, (CircuitState.OPEN, 61.0)) == (half, still)
    assert one != [other]
    assert (True, CircuitState.CLOSED) == (closed, waits.circuit.state)


def test_a_final_failure_is_final() -> None:
    """What would fail again is dead at once, and counts for the circuit: a wrong address must not use up all events."""
    waits = queue(circuit=CircuitPolicy(failures=2))
    offer(waits, *(event(str(n), str(n)) for n in range(3)))
    verdicts = []
    while (one := waits.next(0)) is not None:
        verdicts.append(waits.failed(one.id, Failure(why="gone", is_final=True), 0))

    assert [(True, False), (True, True)] == [(verdict.is_dead, verdict.opened) for verdict in verdicts]
    assert 1 == len(waits)


def test_another_handler_starts_afresh() -> None:
    """A handler that is specified anew gets what waits at once, with all its tries."""
    waits = queue(retry=RetryPolicy(attempts=2), circuit=CircuitPolicy(failures=1))
    offer(waits, event("1"))
    given_now(waits, 0)
    waits.failed("1", BAD, 0)
    waits.respecified(HandlerSpec(name="h", options=LogOptions(), retry=RetryPolicy(attempts=2)))
    (again,) = given_now(waits, 1)

    assert not waits.failed(again, BAD, 1).is_dead


def empty(waits: HandlerQueue, out: list[HandlerEvent], now: float) -> None:
    """Let everything be handled; fails where something is left that is never given."""
    for waiting in list(waits):
        waits.committed(waiting.event.id)
    for one in out:
        waits.handled(one.id)
    while len(waits):
        due = waits.wake_at()
        assert due is not None
        now = max(now, due)
        left = waits.next(now)
        assert left is not None
        waits.handled(left.id)


@given(st.lists(st.tuples(st.sampled_from(["offer", "give", "handled", "failed", "commit"]), st.integers(0, 5)), max_size=80))
def test_whatever_happens_the_queue_is_sound(steps: list[tuple[str, int]]) -> None:
    """No lane has two events with the handler, none is lost without a verdict, and there is always a way on."""
    waits = queue(concurrency=3, queue=6, circuit=CircuitPolicy(failures=3))
    now, number, out, alive = 0.0, 0, list[HandlerEvent](), set[str]()
    for what, pick in steps:
        now += pick
        if what == "offer":
            number += 1
            one = event(str(number), str(pick % 3))
            if waits.offer(one, 1, now, keep=pick > 3)[0] is Offered.ACCEPTED:
                alive.add(one.id)
        elif what == "give" and (given_one := waits.next(now)) is not None:
            out.append(given_one)
        elif what == "commit":
            for waiting in list(waits):
                waits.committed(waiting.event.id)
        elif out and what in {"handled", "failed"}:
            one = out.pop(pick % len(out))
            if what == "handled":
                waits.handled(one.id)
                alive.discard(one.id)
            elif waits.failed(one.id, BAD, now).is_dead:
                alive.discard(one.id)
        lanes = [waiting.event.data["uri"] for waiting in waits if waiting.is_given]
        assert len(set(lanes)) == len(lanes) == waits.given == len(out) <= 3
        assert alive == {waiting.event.id for waiting in waits}
        assert len(waits) <= 6
    empty(waits, out, now)

"""What is kept of events: how much, for how long, and what becomes of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpvisor.daemon.handlers.contract import HandlerEvent
from mcpvisor.daemon.handlers.ledger import Ledger, LedgerLimits, event_of
from mcpvisor.daemon.state.kept import KeptEvent
from mcpvisor.daemon.state.store import StateStore

pytestmark = pytest.mark.anyio


def event(event_id: str, text: str = "") -> HandlerEvent:
    return HandlerEvent(id=event_id, kind="resource_updated", server="s", at=1.0, data={"uri": "a", "text": text})


async def recalled(folder: Path) -> Ledger:
    """What a next run knows by the store of a folder."""
    store = StateStore(folder / "state.db")
    await store.open()
    ledger = Ledger(store)
    ledger.recall()
    await store.close()
    return ledger


@pytest.fixture
def anyio_backend() -> str:
    """The state store is for asyncio."""
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    """A store that is not open: it keeps in memory."""
    return StateStore(tmp_path / "state.db")


async def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    """Pending events and dead letters are the same in the next run, with their ids, times and reasons."""
    first = StateStore(tmp_path / "state.db")
    await first.open()
    ledger = Ledger(first)
    numbers = [ledger.accept("h", event(name, "\u00e4\u2028"), 10.0) for name in ("1", "2", "3")]
    on_disk = await ledger.until_written(max(numbers))
    ledger.buried("h", event("2"), "a bad day", 4, 20.0)
    ledger.handled("h", "3")
    await first.close()
    again = await recalled(tmp_path)

    assert on_disk
    assert [KeptEvent(handler="h", event=event("1", "\u00e4\u2028").as_json(), accepted_at=10.0)] == again.pending()
    assert [
        KeptEvent(handler="h", event=event("2").as_json(), accepted_at=10.0, tries=4, dead_at=20.0, why="a bad day")
    ] == again.dead_letters
    assert event("1", "\u00e4\u2028") == event_of(again.pending()[0].event)


async def test_events_come_back_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """Also those that were accepted after the wall clock was set back, and what is new of one leaves it in its place."""
    first = StateStore(tmp_path / "state.db")
    await first.open()
    ledger = Ledger(first)
    for name, now in (("z", 4000.0), ("y", 4001.0), ("x", 400.0), ("w", 401.0)):
        await ledger.until_written(ledger.accept("h", event(name), now))
    await ledger.until_written(ledger.accept("h", event("z", "more"), 402.0))
    await first.close()
    again = await recalled(tmp_path)

    assert ["z", "y", "x", "w"] == [kept.event["id"] for kept in again.pending()]


async def test_what_is_no_event_is_left_out(tmp_path: Path) -> None:
    """A row of a kind that this program does not know is not given to anybody."""
    store = StateStore(tmp_path / "state.db")
    odd = {**event("1").as_json(), "kind": "earthquake"}
    store.keep_event(KeptEvent(handler="h", event=odd, accepted_at=1.0))
    ledger = Ledger(store)
    ledger.recall()

    assert [] == ledger.pending()


async def test_dead_letters_are_bounded(store: StateStore) -> None:
    """The oldest go when there are too many, they are too large together, or too old; and are counted."""
    few = Ledger(store, LedgerLimits(dead_number=2))
    for number in range(4):
        few.buried("h", event(str(number)), "x", 1, float(number))
    small = Ledger(StateStore(store.path), LedgerLimits(dead_bytes=300))
    for number in range(4):
        small.buried("h", event(str(number), "x" * 100), "x", 1, float(number))
    old = Ledger(StateStore(store.path), LedgerLimits(dead_seconds=10.0))
    old.buried("h", event("1"), "x", 1, 0.0)
    old.buried("h", event("2"), "x", 1, 5.0)
    old.outdated(11.0)

    assert (["2", "3"], 2) == ([kept.event["id"] for kept in few.dead_letters], few.lost)
    assert ["2", "3"] == [kept.event["id"] for kept in store.kept_events()]
    assert ["3"] == [kept.event["id"] for kept in small.dead_letters]
    assert (["2"], 1) == ([kept.event["id"] for kept in old.dead_letters], old.lost)


async def test_pending_events_are_bounded(store: StateStore) -> None:
    """There is room for so many bytes, and what is coalesced into an event replaces it."""
    ledger = Ledger(store, LedgerLimits(pending_bytes=500, pending_share=0))
    ledger.accept("h", event("1", "x" * 300), 0.0)
    full = ledger.has_room("h", 200)
    ledger.accept("h", event("1"), 9.0)

    assert (False, True) == (full, ledger.has_room("h", 200))
    assert [0.0] == [kept.accepted_at for kept in ledger.pending()]


async def test_what_is_pending_for_too_long(store: StateStore) -> None:
    """Age is counted from when an event was accepted; one that was brought back is as good as new."""
    ledger = Ledger(store, LedgerLimits(pending_seconds=10.0))
    ledger.accept("h", event("1"), 0.0)
    ledger.accept("h", event("2"), 5.0)
    old = [kept.event["id"] for kept in ledger.outdated(11.0)]
    ledger.buried("h", event("1"), "old", 0, 11.0)
    (key,) = ledger.find_dead("1")
    ledger.revived(key, 11.0)

    assert (["1"], [], None) == (old, ledger.outdated(12.0), ledger.revived(key, 12.0))


async def test_what_others_keep_leaves_room(store: StateStore) -> None:
    """A handler has its share of room, and no more, while others fill what there is for all."""
    ledger = Ledger(store, LedgerLimits(pending_bytes=500, pending_share=400))
    ledger.accept("away", event("1", "x" * 450), 0.0)
    of_others = ledger.has_room("away", 10), ledger.has_room("good", 300)
    ledger.accept("good", event("2", "x" * 200), 0.0)
    used = ledger.has_room("good", 300)
    ledger.handled("good", "2")

    assert ((False, True), False, True) == (of_others, used, ledger.has_room("good", 300))


async def test_whoever_is_flooded_loses_its_own(store: StateStore) -> None:
    """Dead letters of one handler go for want of room before those of another, in number as in bytes."""
    few = Ledger(store, LedgerLimits(dead_number=3))
    few.buried("good", event("old"), "x", 1, 0.0)
    for number in range(9):
        few.buried("flooded", event(str(number)), "x", 0, 1.0 + number)
    small = Ledger(StateStore(store.path), LedgerLimits(dead_bytes=600))
    for number in range(3):
        small.buried("good", event(f"old {number}"), "x", 1, 0.0)
    for number in range(2):
        small.buried("flooded", event(str(number), "x" * 300), "x", 0, 1.0)

    assert (["old", "7", "8"], 7) == ([kept.event["id"] for kept in few.dead_letters], few.lost)
    assert ["old 0", "old 1", "old 2"] == [kept.event["id"] for kept in small.dead_letters]
    assert ["good/old", "flooded/7", "flooded/8"] == [kept.key for kept in store.kept_events()]


async def test_a_jump_of_the_clock_makes_nothing_older(store: StateStore) -> None:
    """A clock that is set years ahead, as where there was none at the boot, ends no event; one that is set back, none later."""
    ledger = Ledger(store, LedgerLimits(pending_seconds=10.0, dead_seconds=20.0))
    ledger.accept("h", event("1"), 0.0)
    ledger.buried("h", event("2"), "x", 1, 0.0)
    ledger.clock_jumped(1e9)
    after = ledger.outdated(1e9 + 5.0), [kept.event["id"] for kept in ledger.dead_letters]
    late = [kept.event["id"] for kept in ledger.outdated(1e9 + 11.0)]
    ledger.outdated(1e9 + 21.0)
    back = Ledger(StateStore(store.path), LedgerLimits(pending_seconds=10.0))
    back.clock_jumped(-1e9)
    back.accept("h", event("3"), 0.0)

    assert (([], ["2"]), ["1"], []) == (after, late, ledger.dead_letters)
    assert ([], ["3"]) == (back.outdated(9.0), [kept.event["id"] for kept in back.outdated(11.0)])

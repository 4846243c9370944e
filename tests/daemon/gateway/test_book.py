"""What is known of sessions beyond the end of a daemon, and for how long."""

from __future__ import annotations

from dataclasses import replace

from mcpvisor.daemon.gateway.book import MAX_OPENED_WITH, Book, hash_of
from mcpvisor.daemon.gateway.keeper import MemoryKeeper
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.state.kept import KeptSession

SETTLED = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
IDLE = 1800.0


class Clock:
    """The time of day, as a test sets it."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def kept(name: str, used_at: float = 1_000_000.0, principal: str = "me", view: str | None = None) -> KeptSession:
    return KeptSession(id_hash=hash_of(name), principal=principal, view=view, opened_with=SETTLED, used_at=used_at)


def keeper(*sessions: KeptSession) -> MemoryKeeper:
    full = MemoryKeeper()
    for session in sessions:
        full.keep_session(session)
    return full


def hashes(keeper: MemoryKeeper) -> set[str]:
    return {one.id_hash for one in keeper.sessions()}


def test_an_id_is_not_kept() -> None:
    """What is kept of an id is a hash, by which the next run finds the session again."""
    former, clock = MemoryKeeper(), Clock()
    Book(former, GatewayLimits(), clock).opened("the-id", "me", "files", SETTLED)
    (session,) = former.sessions()
    found = Book(former, GatewayLimits(), clock).find("the-id", "me", "files")

    assert "the-id" not in repr(session)
    assert found == session
    assert session == kept("the-id", view="files")


def test_whose_it_is() -> None:
    """A session is found by its own principal on its own endpoint, and by nobody else."""
    book = Book(keeper(kept("a", view="files")), GatewayLimits(), Clock())
    found = [book.find(*asked) for asked in (("a", "you", "files"), ("a", "me", None), ("b", "me", "files"))]

    assert found == [None, None, None]
    assert book.find("a", "me", "files") == kept("a", view="files")


def test_a_session_is_woken_once() -> None:
    """A woken session sleeps no longer, stays kept, and cannot be woken again."""
    former = keeper(kept("a"))
    book = Book(former, GatewayLimits(), Clock())
    woken = [book.wake(kept("a")), book.wake(kept("a"))]

    assert woken == [True, False]
    assert (len(book), book.asleep_of("me"), book.find("a", "me", None)) == (0, 0, None)
    assert hashes(former) == {hash_of("a")}


def test_expiry() -> None:
    """A session that was not used for its time is forgotten: at the start, when it is asked for, and by and by."""
    clock = Clock()
    former = keeper(kept("old", clock.now - IDLE - 1), kept("asked", clock.now - 20), kept("left", clock.now - 10))
    book = Book(former, GatewayLimits(session_idle_seconds=IDLE), clock)
    at_start = hashes(former)
    clock.now += IDLE - 15
    asked, left = book.find("asked", "me", None), book.find("left", "me", None)
    when_asked = hashes(former)
    clock.now += 10
    book.forget_expired()

    assert at_start == {hash_of("asked"), hash_of("left")}
    assert (asked, left) == (None, kept("left", 1_000_000.0 - 10))
    assert when_asked == {hash_of("left")}
    assert hashes(former) == set()


def test_a_clock_that_was_set_back() -> None:
    """A session that was used in the future, by the clock of today, expires no later than one that was used now."""
    clock = Clock()
    book = Book(keeper(kept("a", clock.now + 10 * IDLE)), GatewayLimits(session_idle_seconds=IDLE), clock)
    clock.now += IDLE + 1

    assert book.find("a", "me", None) is None


def test_limits_at_the_start() -> None:
    """Of more sessions than there may be the newest are known: of each principal, and in all."""
    former = keeper(*(kept(f"{who}{number}", 1_000_000.0 + number, who) for who in "xyz" for number in range(3)))
    clock = Clock(1_000_010.0)
    of_each = hashes(_loaded(former, GatewayLimits(sessions_per_principal=2), clock))
    in_all = hashes(_loaded(former, GatewayLimits(sessions=3), clock))

    assert of_each == {hash_of(f"{who}{number}") for who in "xyz" for number in (1, 2)}
    assert in_all == {hash_of(f"{who}2") for who in "xyz"}


def _loaded(former: MemoryKeeper, limits: GatewayLimits, clock: Clock) -> MemoryKeeper:
    copy = keeper(*former.sessions())
    Book(copy, limits, clock)
    return copy


def test_who_makes_room() -> None:
    """The sleeper that was not used for longest goes first, and only those of the principal that needs room."""
    former = keeper(kept("new", 1_000_002.0), kept("old", 1_000_001.0), kept("other", 1_000_000.0, "you"))
    book = Book(former, GatewayLimits(), Clock(1_000_003.0))
    left = []
    while book.forget_least_used("me"):
        left.append(hashes(former))

    assert left == [{hash_of("new"), hash_of("other")}, {hash_of("other")}]
    assert book.sleepers == {"you"}


def test_an_endpoint_that_is_gone() -> None:
    """With a server the sleepers on its own endpoint are forgotten, and no others."""
    former = keeper(kept("a", view="files"), kept("b", view="docs"), kept("c"))
    Book(former, GatewayLimits(), Clock()).forget_view("files")

    assert hashes(former) == {hash_of("b"), hash_of("c")}


def test_a_large_opening() -> None:
    """What a client said at its opening is kept up to a limit; with more than that the session is not kept at all."""
    former = MemoryKeeper()
    book = Book(former, GatewayLimits(), Clock())
    room = MAX_OPENED_WITH - len('{"x":""}')
    largest = book.opened("a", "me", None, {"x": "y" * room})
    over = book.opened("b", "me", None, {"x": "y" * (room + 1)})

    assert largest is not None
    assert over is None
    assert hashes(former) == {hash_of("a")}


def test_a_use_is_written() -> None:
    """A session that is used is kept with the time of that."""
    clock = Clock()
    former = keeper(kept("a"))
    clock.now += 60
    Book(former, GatewayLimits(), clock).used(kept("a"))

    assert former.sessions() == [replace(kept("a"), used_at=1_000_060.0)]

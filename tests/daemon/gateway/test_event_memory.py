"""What is kept of event streams: places in them, and how much of them at most."""

from __future__ import annotations

import base64

import pytest

from mcpvisor.daemon.gateway import event_memory
from mcpvisor.daemon.gateway.event_memory import EventMemory, Place, Shelf, Track, read_place
from mcpvisor.daemon.gateway.event_stream import is_preferred


def place(track: Track, number: int) -> Place:
    found = read_place(track.id_at(number))
    assert found is not None
    return found


def numbers(track: Track, after: int = 0) -> list[int]:
    return [number for number, _ in track.after(after)[0]]


@pytest.mark.parametrize("request_id", [1, "1", "a b/ü", -7, ""])
def test_an_id_names_its_place(request_id: int | str):
    """The id of an event names its stream, its place in it and the request."""
    memory = EventMemory(Shelf())
    track = memory.open(request_id)
    track.record(b"{}")

    assert Place(track.name, 1, is_push=False, request=request_id) == place(track, 1)
    assert track is memory.find(place(track, 1))
    assert memory.push is memory.find(place(memory.push, 0))


def test_a_long_request_id():
    """The id of a request that is too long is not repeated in those of events, which name their stream all the same."""
    memory = EventMemory(Shelf())
    track = memory.open("x" * 1000)

    assert len(track.id_at(0)) < 30
    assert place(track, 0).request is None
    assert track is memory.find(place(track, 0))


@pytest.mark.parametrize(
    "text", ["", "17", "p", "a.1", "pAAAAAAAAAAAAAAAA.1.MQ", "aAAAAAAAAAAAAAAAA.1", "pAAAAAAAAAAAAAAAA.\u0661"]
)
def test_ids_that_are_none_of_ours(text: str):
    """What no stream of ours has given names no place."""
    assert read_place(text) is None


@pytest.mark.parametrize("request_id", ['"\\ud800"', "1.5", "NaN", "true", "[1]", "1 2"])
def test_forged_ids_of_requests(request_id: str):
    """What no request can have for its id, as half of a character that cannot be written in an answer, names none."""
    written = base64.urlsafe_b64encode(request_id.encode()).decode().rstrip("=")

    assert Place("A" * 16, 0, is_push=False, request=None) == read_place(f"a{'A' * 16}.0.{written}")


def test_an_answer_too_large_to_be_kept_costs_no_other():
    """It costs the session nothing else of what is kept, and counts as lost."""
    memory = EventMemory(Shelf())
    small, large = memory.open(1), memory.open(2)
    small.record(b"{}", is_last=True)
    memory.ended(small)
    large.record(b"{}")
    large.record(b" " * event_memory.BYTES_OF_SESSION, is_last=True)

    assert [1] == numbers(small)
    assert ([1], True) == (numbers(large), large.after(0)[1])


def test_streams_of_another_session():
    """A place is known in its own session alone, and one that was not reached yet in none."""
    shelf = Shelf()
    mine, other = EventMemory(shelf), EventMemory(shelf)
    track = mine.open(1)

    assert other.find(place(track, 0)) is None
    assert other.find(place(mine.push, 0)) is None
    assert mine.find(place(track, 1)) is None


def test_many_events():
    """Of many events of one stream the latest are kept, and who comes for the earlier ones is told that some are lost."""
    memory = EventMemory(Shelf())
    track = memory.open(1)
    for _ in range(event_memory.EVENTS_OF_STREAM + 3):
        track.record(b"{}")

    assert numbers(track)[0] == 4
    assert track.after(2)[1]
    assert not track.after(3)[1]


def test_large_events():
    """A session keeps so many bytes; answers that are over for longest go first, and what is gone is counted nowhere."""
    shelf = Shelf()
    memory = EventMemory(shelf)
    tracks = [memory.open(number) for number in range(6)]
    for track in tracks:
        track.record(b"x" * (event_memory.BYTES_OF_SESSION // 4), is_last=True)
        memory.ended(track)

    assert memory.size <= event_memory.BYTES_OF_SESSION
    assert shelf.size == memory.size == sum(track.size for track in tracks)
    assert [None] * 3 + tracks[3:] == [memory.find(place(track, 0)) for track in tracks]


def test_an_answer_too_large_to_be_kept():
    """Who waits for it gets it all the same; nobody else does, and it takes no room."""
    memory = EventMemory(Shelf())
    tracks = memory.open(1), memory.open(2)
    reader = object()
    tracks[0].take_up(reader)
    for track in tracks:
        track.record(b"x" * (event_memory.BYTES_OF_SESSION + 1), is_last=True)
        memory.ended(track)
    read = [numbers(track) for track in tracks]
    tracks[0].leave(reader)

    assert [[1], []] == read
    assert numbers(tracks[0]) == []
    assert memory.size == 0


def test_many_sessions(monkeypatch: pytest.MonkeyPatch):
    """Where all sessions keep too much, the one that keeps the most loses half of it, and the others nothing."""
    monkeypatch.setattr(event_memory, "BYTES_OF_ALL", 20_000)
    shelf = Shelf()
    small, large = EventMemory(shelf), EventMemory(shelf)
    small.open(1).record(b"x" * 1000)
    kept = small.size
    stream = large.open(1)
    for _ in range(19):
        stream.record(b"x" * 1000)

    assert small.size == kept
    assert 5_000 < large.size < 15_000
    assert shelf.size == small.size + large.size


def test_much_that_is_small(monkeypatch: pytest.MonkeyPatch):
    """One large event makes as many small ones go as it takes, however many that are."""
    monkeypatch.setattr(event_memory, "BYTES_OF_ALL", 300_000)
    shelf = Shelf()
    memory, other = EventMemory(shelf), EventMemory(shelf)
    for number in range(50):
        track = memory.open(number)
        for _ in range(event_memory.EVENTS_OF_STREAM):
            track.record(b"1")
    other.open(1).record(b"x" * 290_000)

    assert shelf.size == memory.size + other.size <= 300_000


def test_time(monkeypatch: pytest.MonkeyPatch):
    """An answer is kept for its time, and so is what came on the stream of notifications; one in flight stays."""
    memory = EventMemory(Shelf())
    over, running = memory.open(1), memory.open(2)
    over.record(b"{}", is_last=True)
    memory.ended(over)
    running.record(b"{}")
    memory.push.record(b"{}")
    monkeypatch.setattr(event_memory, "KEPT_SECONDS", -1.0)

    assert memory.find(place(over, 0)) is None
    assert numbers(running) == [1]
    assert memory.push.after(0) == ([], True)
    assert memory.size == running.size


def test_many_answers():
    """So many answers of a session are kept; the oldest goes for one more."""
    memory = EventMemory(Shelf())
    tracks = [memory.open(number) for number in range(event_memory.ENDED_STREAMS + 1)]
    for track in tracks:
        track.record(b"{}", is_last=True)
        memory.ended(track)

    assert [None, tracks[1]] == [memory.find(place(track, 1)) for track in tracks[:2]]


def test_the_end_of_a_session():
    """Nothing is kept of a session that has ended, not even what is said in it afterwards."""
    shelf = Shelf()
    memory = EventMemory(shelf)
    track = memory.open(1)
    track.record(b"{}")
    memory.push.record(b"{}")
    memory.close()
    track.record(b"{}", is_last=True)
    memory.ended(track)
    memory.open(2).record(b"{}")

    assert (0, 0) == (memory.size, shelf.size)
    assert memory.find(place(track, 0)) is None


@pytest.mark.parametrize(
    ("accept", "preferred"),
    [
        ("text/event-stream, application/json", True),
        ("application/json, text/event-stream", False),
        ("text/event-stream", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_who_prefers_event_streams(accept: str, *, preferred: bool):
    """Whoever names them before JSON does."""
    assert preferred == is_preferred(accept)

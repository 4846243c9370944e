from __future__ import annotations

import pytest

from mcpvisor.daemon.control import streams
from mcpvisor.daemon.control.streams import follow_stderr, following, selection
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import ServerRemoved, StderrWritten

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


def written(server, text):
    return StderrWritten(at=0.0, server=server, lines=(text,), dropped=0)


async def test_noise_of_others_costs_nothing(monkeypatch):
    """A reader that follows one server loses none of its events to the flood of another."""
    monkeypatch.setattr(streams, "QUEUE", 3)
    bus = EventBus()
    with following(bus, selection("a", None)) as events:
        bus.emit(written("a", "first"))
        for _ in range(100):
            bus.emit(written("b", "noise"))
        bus.emit(written("a", "second"))

        assert [(await anext(events)).lines for _ in range(2)] == [("first",), ("second",)]
        assert events.dropped == 0


async def test_a_slow_reader_is_bounded_in_bytes(monkeypatch):
    """What waits for a reader is bounded in bytes too; the oldest go, are counted, and one event always fits."""
    monkeypatch.setattr(streams, "QUEUE_BYTES", 1000)
    bus = EventBus()
    with following(bus, selection(None, None)) as events:
        for text in ("x" * 400, "y" * 400, "z" * 5000):
            bus.emit(written("a", text))

        assert (await anext(events)).lines == ("z" * 5000,)
        assert events.dropped == 2


async def test_lost_lines_are_told(monkeypatch):
    """Lines of stderr that a slow reader has lost are told as `lost`, and the end of the server ends the stream."""
    monkeypatch.setattr(streams, "QUEUE", 2)
    bus, said = EventBus(), []

    async def emit(event, value):
        said.append((event, value.get("count")))
        if len(said) == 1:
            for number in range(5):
                bus.emit(written("a", str(number)))
            bus.emit(ServerRemoved(at=0.0, server="a"))

    await follow_stderr(bus, "a", [])(emit)

    assert said == [("lines", None), ("lost", 4), ("lines", None)]

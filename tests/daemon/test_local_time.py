"""Moments and lengths of time that no calendar knows."""

from __future__ import annotations

import pytest

from mcpvisor.daemon.control.explain_text import clock_time
from mcpvisor.daemon.control.spans import seconds
from mcpvisor.daemon.event_lines import EventLines
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import CredentialsRefreshed


@pytest.mark.parametrize("at", [1.8e12, 1e300, -1e300, float("inf"), float("nan")])
def test_a_moment_without_a_date(at: float) -> None:
    """Whatever number is given as a time, what shows it goes on."""
    written: list[str] = []
    bus = EventBus()
    bus.attach(EventLines(lambda level, message, fields: written.append(message), lambda level: True))
    refreshed = CredentialsRefreshed(at=1.0, server="s", source="store", expires_at=at)
    assert ["s after 1970"] * 2 == [text[-12:] for text in (iso_time(at), clock_time(at))]
    bus.emit(refreshed)
    assert [True] == ["after 1970 (store)" in message for message in written]
    assert len(seconds(at)) < 12


@pytest.mark.parametrize(("duration", "text"), [(-3600.0, "unknown"), (-1e-6, "0 ms"), (0.0, "0 ms"), (0.35, "350 ms")])
def test_a_length_below_nothing_is_unknown(duration: float, text: str) -> None:
    """It is of two times of a clock that was set back in between, and was not short."""
    assert text == seconds(duration)

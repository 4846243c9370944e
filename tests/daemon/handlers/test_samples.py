"""Test events: whoever takes the real ones can take them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcpvisor.daemon.handlers.routing import KINDS
from mcpvisor.daemon.handlers.samples import SAMPLES, sample_event
from mcpvisor.daemon.handlers.sources import told_of, told_of_progress
from mcpvisor.supervisor.events import CatalogChanged, Event, ResourceUpdated, ServerNotified, ServerStateChanged
from mcpvisor.supervisor.states import State

PAGE = (Path(__file__).parents[3] / "docs" / "handlers.md").read_text()

REAL: dict[str, Event] = {
    "resource_updated": ResourceUpdated(at=1.0, server="s", uri="a://b", reason="notified"),
    "list_changed": CatalogChanged(at=1.0, server="s", kind="tools", count=1),
    "state_changed": ServerStateChanged(at=1.0, server="s", old=State.READY, new=State.BACKOFF, reason="r", next_attempt=None),
    "log_message": ServerNotified(at=1.0, server="s", method="notifications/message", params={"level": "info", "data": 1}),
}


@pytest.mark.parametrize("kind", REAL)
def test_it_has_all_that_a_real_one_has(kind: str) -> None:
    """A test event has the names of the data of a real event of its kind, in their order, and `test`."""
    real = told_of(REAL[kind])
    sent = sample_event(kind, "s", {"uri": "a://b"} if kind == "resource_updated" else {}, 1.0)

    assert real is not None
    assert (kind, [*real.data, "test"]) == (sent.kind, list(sent.data))


def test_progress_has_all_that_real_progress_has() -> None:
    """The same of progress, which is no event of the bus."""
    real = told_of_progress("s", "t", {"progressToken": 1, "progress": 0.5}, 1.0)

    assert [*real.data, "test"] == list(sample_event("progress", "s", {}, 1.0).data)


def test_the_page_names_the_same_data() -> None:
    """The data of each kind are those that the table of the page has."""
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.*)\|$", PAGE, re.MULTILINE)[:6])
    named = {kind: re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", rows[kind])) for kind in KINDS}

    assert {kind: sorted(names) for kind, names in named.items()} == {
        kind: sorted(SAMPLES[kind]) if kind != "elicitation" else [] for kind in KINDS
    }


def test_data_takes_the_place_of_the_samples() -> None:
    """What the caller gives wins; the rest is the sample's."""
    event = sample_event("state_changed", "docs", {"new": "failed"}, 2.0)

    assert ("docs", 2.0) == (event.server, event.at)
    assert {"old": "ready", "new": "failed", "reason": "a test event", "test": True} == event.data


def test_what_no_such_event_has_is_refused() -> None:
    """Data of another kind, and an update of nothing, are errors that say what is wanted."""
    with pytest.raises(ValueError, match=r"an event of kind state_changed has no 'uri'; its data is: old, new, reason"):
        sample_event("state_changed", "s", {"uri": "a://b"}, 1.0)
    with pytest.raises(ValueError, match=r"a resource_updated is of a resource: give its 'uri'"):
        sample_event("resource_updated", "s", {}, 1.0)

"""Many offers become one catalog in which each name and URI has one owner."""

from __future__ import annotations

import pytest
from tests.daemon.gateway.puppet import tool

from mcpvisor.daemon.gateway import catalog, pages
from mcpvisor.daemon.gateway.catalog import join, shelve
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.spec import ToolView

ALL = ToolView()


def resource(uri: str, **more):
    return {"uri": uri, "name": uri, **more}


def template(uri: str):
    return {"uriTemplate": uri, "name": uri}


def shelf(server: str, *, view: ToolView = ALL, alone: bool = False, **kinds):
    return shelve(server, Offer(**{kind: tuple(entries) for kind, entries in kinds.items()}), view, alone=alone)


def test_entries_keep_unknown_fields():
    """A public entry is the server's own but for its name."""
    entry = tool("echo", vendor={"x": [None, 10**30]})

    assert shelf("a", tools=[entry]).tools["a__echo"].entry == {**entry, "name": "a__echo"}


def test_alone_has_no_prefix():
    """A server shown alone keeps its names."""
    assert list(shelf("a", tools=[tool("echo.v2")], alone=True).tools) == ["echo.v2"]


def test_filters():
    """Only tools that `allow` names and `deny` does not are shown; an empty `allow` names all."""
    tools = [tool("get_x"), tool("get_secret"), tool("put_x")]

    assert list(shelf("a", tools=tools, view=ToolView(allow=("get_*",), deny=("*secret",))).tools) == ["a__get_x"]
    assert list(shelf("a", tools=tools, view=ToolView(deny=("get_*",))).tools) == ["a__put_x"]


def test_second_of_one_name():
    """Of two tools of one name in one server the first is kept, and the other named."""
    shown = shelf("a", tools=[tool("echo", title="one"), tool("echo", title="two")])

    assert shown.tools["a__echo"].entry["title"] == "one"
    assert shown.left_out == ("a: a second tool 'echo' is not shown",)


def test_one_owner_per_uri():
    """The first server by name owns a URI, however the shelves came about; the second claimant is named."""
    shown = join([shelf("a", resources=[resource("x://1")]), shelf("b", resources=[resource("x://1"), resource("x://2")])])

    assert shown.owner_of("x://1") == "a"
    assert shown.owner_of("x://2") == "b"
    assert [listed.server for listed in shown.entries("resources")] == ["a", "b"]
    assert shown.left_out == ("b: 'x://1' is shown as a's, which comes first by name; it is reached at /mcp/b",)


def test_a_template_never_beats_a_listed_uri():
    """A catch-all template of the first server does not take the listed URI of the second."""
    shown = join([shelf("a", resource_templates=[template("x://{+all}")]), shelf("b", resources=[resource("x://1")])])

    assert shown.owner_of("x://1") == "b"
    assert shown.owner_of("x://other") == "a"
    assert shown.owner_of("y://other") is None


def test_a_template_that_cannot_be_read():
    """A template of unknown syntax is listed, answers for nothing and is named."""
    shown = shelf("a", resource_templates=[template("x://{a}{b}")])

    assert len(shown.entries("resource_templates")) == 1
    assert shown.owner_of("x://1") is None
    assert "answers for nothing" in shown.left_out[0]


def test_caps(monkeypatch: pytest.MonkeyPatch):
    """A catalog is cut at its limits of entries and bytes; some of the rest are named, all are counted."""
    monkeypatch.setattr(catalog, "MAX_ENTRIES", 3)
    monkeypatch.setattr(catalog, "NAMED_LEFT_OUT", 1)
    shown = shelf("a", tools=[tool(f"t{i}") for i in range(10)])

    assert list(shown.tools) == ["a__t0", "a__t1", "a__t2"]
    assert shown.left_out == (
        "a: the tool 't3' is over the limits of the catalog and not shown",
        "a: 6 more of kind tool are over the limits of the catalog and not shown",
    )

    monkeypatch.setattr(catalog, "MAX_ENTRIES", 100)
    monkeypatch.setattr(catalog, "MAX_BYTES", 1000)
    assert list(shelf("a", tools=[tool("big", x="y" * 940), tool("t1"), tool("t2")]).tools) == ["a__big"]


def test_changes():
    """Two catalogs differ in the kinds in which a client would see a difference, and in no other."""
    old = shelf("a", tools=[tool("x")], prompts=[{"name": "p"}])

    assert shelf("a", tools=[tool("x")], prompts=[{"name": "p"}]).changed_from(old) == frozenset()
    assert shelf("a", tools=[tool("x", title="new")], prompts=[{"name": "p"}]).changed_from(old) == {"tools"}


def test_pages(monkeypatch: pytest.MonkeyPatch):
    """Pages follow each other without gap or repeat, and a cursor is good for the very list it was made for."""
    monkeypatch.setattr(pages, "PAGE_ENTRIES", 2)
    entries = shelf("a", tools=[tool(f"t{i}") for i in range(5)]).entries("tools")
    seen, cursor = [], None
    for _ in range(3):
        listed, cursor = pages.page(entries, "s1", cursor)
        seen += [one.original for one in listed]

    assert seen == ["t0", "t1", "t2", "t3", "t4"]
    assert cursor is None
    _, cursor = pages.page(entries, "s1", None)
    with pytest.raises(pages.BadCursor):
        pages.page(entries, "s2", cursor)


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "é", "czE6LTE=", "czE6OTk5OTk5OTk5OTk5OQ==", "czE6OTk="])
def test_cursors_of_others(cursor: str):
    """A cursor that is not ours is refused, never an exception of its own and never a page."""
    with pytest.raises(pages.BadCursor):
        pages.page([], "s1", cursor)

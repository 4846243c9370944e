"""Which handlers an event goes to, row by row, and what patterns mean."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.daemon.handlers.routing import QUIET_KINDS, Match, Route, Routing, RoutingOptions, Subject


def route(handler: str, **conditions: Any) -> Route:
    globs = {key: tuple(Glob(pattern) for pattern in conditions.pop(key, ())) for key in ("servers", "uris", "tools")}
    return Route(handlers=(handler,), origin=handler, **globs, **conditions)


UPDATE = Subject(kind="resource_updated", server="docs", uri="file:///a/b.md")
LIST = Subject(kind="list_changed", server="docs")
LOG = Subject(kind="log_message", server="docs", level="warning")
PROGRESS = Subject(kind="progress", server="docs", tool="build_all")

ROUTES = {
    "any": route("any"),
    "docs": route("docs", servers=["do*"]),
    "other": route("other", servers=["other"]),
    "below": route("below", uris=["file:///**"]),
    "beside": route("beside", uris=["file:///*"]),
    "lists": route("lists", kinds=frozenset({"list_changed"})),
    "grave": route("grave", kinds=frozenset({"log_message"}), level="error"),
    "mild": route("mild", kinds=frozenset({"log_message"}), level="info"),
    "builds": route("builds", kinds=frozenset({"progress"}), tools=["build_*"]),
}


@pytest.mark.parametrize(
    ("subject", "names", "first", "every"),
    [
        (UPDATE, ["any", "docs"], ["any"], ["any", "docs"]),
        (UPDATE, ["other", "docs", "any"], ["docs"], ["docs", "any"]),
        (UPDATE, ["beside", "below"], ["below"], ["below"]),
        (LIST, ["below", "lists"], ["lists"], ["lists"]),
        (LIST, ["other"], ["fallback"], ["fallback"]),
        (LOG, ["any", "grave", "mild"], ["mild"], ["mild"]),
        (LOG, ["any", "grave"], [], []),
        (PROGRESS, ["any", "builds"], ["builds"], ["builds"]),
        (PROGRESS, ["any"], [], []),
    ],
)
def test_ways(subject: Subject, names: list[str], first: list[str], every: list[str]) -> None:
    """The first route that fits counts, or all of them; the default takes what fits nowhere, unless it is a loud kind."""
    routes = tuple(ROUTES[name] for name in names)

    for match, expected in ((Match.FIRST, first), (Match.ALL, every)):
        routing = Routing(routes=routes, options=RoutingOptions(match=match, default=("fallback",)))
        assert expected == [way.handler for way in routing.ways(subject)]


def test_a_handler_gets_an_event_once() -> None:
    """Several routes to one handler are one way to it, named after the first of them."""
    routing = Routing(routes=(route("a"), route("a"), route("b")), options=RoutingOptions(match=Match.ALL))

    assert ["a", "b"] == [way.handler for way in routing.ways(UPDATE)]


def test_a_level_that_the_protocol_does_not_have_is_let_through() -> None:
    """A route with a least level takes a message whose level nobody knows."""
    routing = Routing(routes=(ROUTES["grave"],))

    assert ["grave"] == [way.handler for way in routing.ways(Subject(kind="log_message", server="docs", level="catastrophe"))]


def test_kinds_that_can_arrive() -> None:
    """Kinds that no route names, and that the default does not take, need not be looked at."""
    assert frozenset() == Routing().kinds
    assert QUIET_KINDS == Routing(options=RoutingOptions(default=("a",))).kinds
    assert {"log_message", "list_changed"} == Routing(routes=(ROUTES["grave"], ROUTES["lists"])).kinds


def test_ways_to_handlers_that_are_gone_are_left_out() -> None:
    """A route to a handler that is not there leads to the others of it, or is none."""
    both = Route(handlers=("a", "b"))
    routing = Routing(routes=(both, route("b")), options=RoutingOptions(default=("b",))).only({"a": None})

    assert ((Route(handlers=("a",)),), ()) == (routing.routes, routing.options.default)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "abc", True),
        ("*", "a/b", False),
        ("**", "a/b/c", True),
        ("a/*/c", "a/b/c", True),
        ("a/*/c", "a/b/b/c", False),
        ("a/**/c", "a/b/b/c", True),
        ("a/**/c", "a/c", False),
        ("a**c", "a/c", True),
        ("*.md", "x.md", True),
        ("**.md", "a/b/x.md.md", True),
        ("**.md", "a/b/x.mdx", False),
        ("?", "/", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[a]", "[a]", True),
        ("[a]*", "a", False),
        ("a.c", "abc", False),
        ("*?", "a", True),
        ("**/", "a/b", False),
        ("https://x/**", "https://x/a?b=c&d=e", True),
        ("\u00e4*", "\u00e4/", False),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    """`*` stops at a slash and `**` does not; `?` is one character; everything else is itself."""
    assert expected == Glob(pattern).matches(text)


@given(st.text("a*?", max_size=8), st.text("ab", max_size=8))
def test_patterns_without_slashes_are_those_of_the_shell(pattern: str, text: str) -> None:
    """Where there is no slash, a pattern means what it means everywhere."""
    assert fnmatchcase(text, pattern) == Glob(pattern).matches(text)


def test_no_pattern_is_slow() -> None:
    """A pattern made for it does not make a long text take more than twice the time of twice the text, roughly."""
    glob = Glob("**a" * 300 + "b")

    began = time.perf_counter()
    assert not glob.matches("a" * 20_000)
    assert time.perf_counter() - began < 2.0

"""What a URI may cost, and whom it may not be taken from."""

from __future__ import annotations

import time

import pytest

from mcpvisor.daemon.gateway import templates
from mcpvisor.daemon.gateway.catalog import Catalog, join, shelve
from mcpvisor.daemon.gateway.templates import MAX_URI, first_match, matcher
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.spec import ToolView

LETTERS = "abcdefghijklmnop"


def shelf(server: str, texts: list[str], *uris: str):
    patterns = tuple({"uriTemplate": text, "name": "t"} for text in texts)
    resources = tuple({"uri": uri, "name": "r"} for uri in uris)
    return shelve(server, Offer(resource_templates=patterns, resources=resources), ToolView(), alone=False)


@pytest.fixture(scope="module")
def hostile():
    """The most that ten servers can show, made to fail late."""
    tail = "".join(f"y{{{name}}}" for name in LETTERS[1:])
    return join(shelf(f"s{number}", [f"{{{first}of{number}}}{tail}" for first in _names(100)]) for number in range(10))


@pytest.mark.alone
@pytest.mark.parametrize("uri", ["/" + "y" * (MAX_URI - 1), "y/" * (MAX_URI // 2), "/" + "y" * 300, "y/"])
def test_the_worst_uri(hostile: Catalog, uri: str):
    """The most hostile templates of many servers keep a URI's owner from being found for less than 50 ms of work."""
    began = time.process_time()
    owner = hostile.owner_of(uri)
    took = time.process_time() - began

    assert (len(hostile.templates), owner) == (1000, None)
    assert took < 0.05


def test_one_server_spends_its_own_work_only():
    """However much work one server's templates make, another's are still tried."""
    hostile = [matcher("a", f"{{{name}}}y{{c}}#") for name in _names(400)]
    uri = "x" * 1000 + "/q"

    assert first_match([*hostile, matcher("b", "{+all}")], uri) == "b"


def test_tries_are_counted(monkeypatch: pytest.MonkeyPatch):
    """No more templates are tried for one URI than the limit; those whose beginning differs do not count."""
    monkeypatch.setattr(templates, "MAX_TEMPLATES", 2)
    others = [matcher("a", f"other://{{{name}}}") for name in LETTERS]
    misses = [matcher("b", f"x://{{{name}}}/") for name in LETTERS[:2]]
    hit = matcher("c", "x://{+all}")

    assert first_match([*others, *misses[:1], hit], "x://1") == "c"
    assert first_match([*others, *misses, hit], "x://1") is None


def test_templates_over_their_limits():
    """A template that is too long or has too many variables, and what is over the number, is not shown but named."""
    kept = "x://{a}"
    shown = shelf("s", [kept, "y" * 600 + "{a}", "".join(f"/{{{name}{n}}}" for name in LETTERS for n in "12")])

    assert list(shown.templates) == [kept]
    assert [note.rpartition(": ")[2] for note in shown.left_out] == [
        "it is longer than 512 characters",
        "it has more than 16 variables",
    ]
    many = shelf("s", [f"x://{number}/{{a}}" for number in range(525)])
    assert (len(many.templates), len(many.left_out)) == (500, 21)
    assert many.left_out[-1] == "s: 5 more resource templates are over their limits and not shown"


def test_resources_whose_uri_cannot_be_read():
    """A resource under a URI that no client may ask for is not shown but named."""
    shown = shelf("s", [], "x" * MAX_URI, "x" * (MAX_URI + 1))

    assert list(shown.resources) == ["x" * MAX_URI]
    assert "longer than 4096 characters" in shown.left_out[0]


def _names(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]

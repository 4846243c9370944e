"""The key `subscriptions`: URIs letter by letter, how each is watched, and what is said of mistakes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcpvisor.daemon.config.load import Loaded
from mcpvisor.supervisor.spec import Change, WantedResource, change_between

Load = Callable[..., Loaded]

ODD = ("MiXeD://Host/Path/", "http://example.test", "notes/today", "res://x?b=2&a=1#frag", "file:///C:/My Notes/plan é.txt")


def written(*elements: str, more: str = "") -> str:
    return f'[servers.a]\ncommand = "true"\nsubscriptions = [{", ".join(elements)}]\n{more}'


def test_uris_are_taken_as_they_are_written(load_text: Load) -> None:
    """No letter, slash or space of them is touched, and their order is kept."""
    loaded = load_text(written(*(f'"{uri}"' for uri in ODD)))

    assert () == loaded.problems
    assert tuple(WantedResource(uri=uri) for uri in ODD) == loaded.specs["a"].subscriptions


def test_a_table_says_how_a_uri_is_watched(load_text: Load) -> None:
    """Each of its keys may be left out but the URI, in which variables are expanded."""
    uri = '"repo://${OWNER}/x"'
    loaded = load_text(written(f'{{ uri = {uri}, poll = "1.5m" }}', '{ uri = "memo://a", force = true }'), OWNER="me")

    assert () == loaded.problems
    assert loaded.specs["a"].subscriptions == (
        WantedResource(uri="repo://me/x", poll=90.0),
        WantedResource(uri="memo://a", force=True),
    )


def test_defaults_count_where_an_entry_has_none(load_text: Load) -> None:
    """A list is taken as a whole: an empty one of an entry is none at all."""
    text = written('"memo://own"', more='[servers.b]\ncommand = "true"\n[servers.c]\ncommand = "true"\nsubscriptions = []\n')
    loaded = load_text('[defaults]\nsubscriptions = ["memo://all"]\n' + text)

    found = {name: [one.uri for one in spec.subscriptions] for name, spec in loaded.specs.items()}
    assert {"a": ["memo://own"], "b": ["memo://all"], "c": []} == found


def test_an_edit_is_applied_in_place(load_text: Load) -> None:
    """No process or session is touched by it."""
    old = load_text(written('"memo://a"')).specs["a"]
    new = load_text(written('{ uri = "memo://a", poll = 60 }')).specs["a"]

    assert (Change.UPDATE, ("subscriptions",)) == (change_between(old, new).change, change_between(old, new).fields)


def test_it_may_stand_in_the_json_of_others(load_text: Load) -> None:
    """Beside the keys of their own."""
    text = '{"mcpServers": {"a": {"command": "true", "subscriptions": ["memo://a", {"uri": "memo://b", "poll": "60s"}]}}}'
    loaded = load_text(text, "claude.json")

    assert ((), ()) == (loaded.problems, loaded.hints)
    assert (WantedResource(uri="memo://a"), WantedResource(uri="memo://b", poll=60.0)) == loaded.specs["a"].subscriptions


@pytest.mark.parametrize(
    ("element", "key", "message"),
    [
        ("7", "[1]", 'is a number; expected a URI, or a table such as { uri = "file:///a", poll = "60s" }'),
        ('""', "[1]", "a URI of 0 characters; expected 1 to 4096"),
        ('"memo://a"', "[1]", "the URI stands in the list twice"),
        ("{ poll = 60 }", "[1]", "the uri is missing; expected a URI"),
        ('{ uri = "memo://b", poll = "500ms" }', "[1].poll", '"500ms": too often; expected seconds as a number'),
        ('{ uri = "memo://b", poll = "often" }', "[1].poll", '"often": not a duration; expected seconds as a number'),
        ('{ uri = "memo://b", pol = 60 }', "[1].pol", 'unknown key; did you mean "poll"?'),
        ('{ uri = "memo://b", force = 1 }', "[1].force", "is a number; expected true or false"),
        ('{ uri = ["memo://b"] }', "[1].uri", "is a list; expected a text"),
    ],
)
def test_mistakes_are_named_with_their_place(load_text: Load, element: str, key: str, message: str) -> None:
    """The line, the key with its number in the list, and what was expected."""
    loaded = load_text(written('"memo://a"', element))
    [problem] = loaded.problems

    assert f"servers.a.subscriptions{key}: {message}" in str(problem)
    assert "mcpvisor.toml:3" in str(problem)


def test_a_list_is_expected(load_text: Load) -> None:
    """One URI alone is in brackets, too."""
    [problem] = load_text('[servers.a]\ncommand = "true"\nsubscriptions = "memo://a"\n').problems

    assert "servers.a.subscriptions: is a text; expected a list" in str(problem)

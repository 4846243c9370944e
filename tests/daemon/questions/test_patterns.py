"""Patterns mean what they mean in ECMA 262, and cost what they are allowed to cost."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvisor.daemon.questions.misunderstanding import NotUnderstood
from mcpvisor.daemon.questions.patterns import OutOfSteps, Steps, read_pattern

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "^", "$", "(?:ab|b)", "(a|)"])
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """Expressions that Python and ECMA 262 read alike."""
    parts = draw(st.lists(st.tuples(ATOMS, REPEATS), max_size=4))
    return "".join(atom if atom in "^$" else atom + repeat for atom, repeat in parts)


@settings(deadline=None)
@given(source=expressions(), text=st.text("ab1.", max_size=6))
def test_it_finds_what_others_find(source: str, text: str) -> None:
    """On what both understand it is of one mind with the standard library, but for a line end at the end."""
    expected = re.search(source.replace("$", r"\Z"), text) is not None

    assert expected == read_pattern(source).found_in(text, Steps(100_000))


@pytest.mark.parametrize(
    ("source", "found", "not_found"),
    [
        (r"^\w{3,5}$", ["abc", "a_1Z"], ["ab", "abcdef", "\u00e4bc"]),
        (r"^[^\s,]+$", ["x-y"], ["x y", "x,y", "x\u2003y"]),
        (r"^[A-Za-z_][\w-]*$", ["a-1", "_"], ["1a", ""]),
        (r"^\x41\u0042\t$", ["AB\t"], ["AB"]),
        (r"^(?<year>\d{4})-(\d\d)$", ["2026-11"], ["26-11"]),
        ("^[]$", [], ["", "]"]),
        ("^[^]$", ["x", "\n"], ["", "xx"]),
        ("^[a\\]-]+$", ["a]-"], ["b"]),
        ("", ["", "anything"], []),
        ("^.$", ["x", "\U0001f600"], ["\n", ""]),
    ],
)
def test_what_each_sign_means(source: str, found: list[str], not_found: list[str]) -> None:
    """Classes, escapes, anchors, named groups and counts."""
    pattern = read_pattern(source)

    assert [] == [text for text in found if not pattern.found_in(text, Steps(10_000))]
    assert [] == [text for text in not_found if pattern.found_in(text, Steps(10_000))]


@pytest.mark.parametrize(
    "source",
    [
        *(
            "(",
            ")",
            "(a",
            "a)",
            "[a",
            "[b-a]",
            "[\\d-z]",
            "*",
            "a**",
            "a|*",
            "^*",
            "a{2",
            "a{x}",
            "a{3,2}",
            "a{501}",
            "{2}",
            "\\",
        ),
        *(r"\1", r"\k<a>", r"\b", r"\p{L}", "(?=a)", "(?!a)", "(?<=a)", "(?i)a", "(?P=a)", r"\xg1", r"\u12"),
        *("x" * 501, "(" * 40 + ")" * 40, "(a{50}){50}", "((){500}){500}"),
    ],
)
def test_what_is_not_read_is_refused(source: str) -> None:
    """What needs memory, looks around or is too large is no pattern for us, and neither is what is no expression at all."""
    with pytest.raises(NotUnderstood, match="its pattern"):
        read_pattern(source)


@given(source=st.text(max_size=30) | st.text("()[]{}*+?|^$\\a,1-", max_size=20), text=st.text(max_size=20))
def test_no_source_breaks_it(source: str, text: str) -> None:
    """Whatever a server calls a pattern is refused in words, or matched within its steps."""
    with suppress(NotUnderstood):
        assert read_pattern(source).found_in(text, Steps(100_000)) in (True, False)


def test_what_costs_too_much_is_given_up() -> None:
    """The work is counted while it is done, whatever the pattern and the text."""
    with pytest.raises(OutOfSteps):
        read_pattern("(a|a|a)*b").found_in("a" * 1000, Steps(2000))

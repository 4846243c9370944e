"""What a form must be to be understood, and what an answer must be to fit it."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvisor.daemon.questions.fields import MOST_OPTION_TITLE
from mcpvisor.daemon.questions.form import MOST_FIELDS, MOST_OPTIONS, Form, read_form
from mcpvisor.daemon.questions.misunderstanding import NotUnderstood

JsonObject = dict[str, Any]
BUDGET = 0.05
"""Seconds of a processor that the reading of a form and the check of an answer may take, whatever they are."""


def form_of(required: bool = True, **properties: Any) -> Form:
    schema = {"type": "object", "properties": properties, "required": list(properties) if required else []}
    return read_form(schema)


TITLED = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
GOOD: list[tuple[JsonObject, list[Any], list[Any]]] = [
    ({"type": "string"}, ["", "x", "l\u00ednea\n2"], [1, None, True, ["x"], "x" * 65_537]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
    (
        {"type": "string", "format": "email"},
        ["a@b", "j.d+x@mail.example.com"],
        ["a", "@b", "a@", "a b@c", "a@b..c", "a@-b", "a@@b"],
    ),
    (
        {"type": "string", "format": "uri"},
        ["https://a.example/x?y#z", "urn:isbn:1"],
        ["/relative", "a b:c", "https://a\n", ":x"],
    ),
    ({"type": "string", "format": "date"}, ["2026-02-28"], ["2026-02-29", "20260228", "2026-2-28", "\u0662026-02-28"]),
    (
        {"type": "string", "format": "date-time"},
        ["2026-02-28T10:00:00Z", "2026-02-28t10:00:00.123456789+02:00", "2016-12-31T23:59:60Z"],
        ["2026-02-28", "2026-02-28T10:00:00", "2026-02-28T25:00:00Z", "2026-02-28T10:00:61Z"],
    ),
    ({"type": "string", "pattern": "^[a-z]+$"}, ["abc"], ["", "aBc", "abc\n"]),
    ({"type": "number", "minimum": 1, "maximum": 2.5}, [1, 2.5, 1.0], [0.9, 3, "1", True, float("nan"), float("inf"), 10**400]),
    ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 2}, [1.5], [1, 2]),
    ({"type": "integer"}, [0, -3, 2.0], [2.5, False, "3", None]),
    ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
    ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", ["a"], 1]),
    ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, ["b"], ["B"]),
    ({"type": "string", "oneOf": TITLED}, ["#f00"], ["Red"]),
    ({"enum": ["a"]}, ["a"], ["b"]),
    (
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        [[], ["a"], ["a", "a"]],
        ["a", ["c"], [1], [["a"]], {}],
    ),
    (
        {"type": "array", "minItems": 1, "maxItems": 1, "items": {"anyOf": TITLED}},
        [["#0f0"]],
        [[], ["#0f0", "#f00"], ["Green"]],
    ),
    ({"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b"]}}, [["a", "b"]], [["a", "a"]]),
    ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}], "default": None}, [3, None], [2, "x"]),
    ({"type": ["string", "null"]}, ["x", None], [1]),
]


@pytest.mark.parametrize(("schema", "fits", "not_so"), GOOD, ids=[json.dumps(schema)[:50] for schema, *_ in GOOD])
def test_each_kind_of_field_takes_what_fits_and_nothing_else(schema: JsonObject, fits: list[Any], not_so: list[Any]) -> None:
    """Every primitive of the protocol, in both revisions, is checked by all that it says."""
    form = form_of(x=schema)

    assert [] == [value for value in fits if form.faults({"x": value})]
    assert [] == [value for value in not_so if not form.faults({"x": value})]


BAD: list[tuple[Any, str]] = [
    (None, "must be one of an object"),
    ([], "must be one of an object"),
    ({"properties": {}}, "must be one of an object"),
    ({"type": "object", "properties": []}, "must be an object of at most"),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "required": "a"}, "must be a list"),
    ({"type": "object", "properties": {}, "required": ["a"]}, "a is required, and is no property"),
    ({"type": "object", "properties": {}, "allOf": [{"$ref": "#"}]}, "allOf is not understood"),
    ({"type": "object", "properties": {}, "minProperties": 1}, "minProperties is not understood"),
    ({"type": "object", "properties": {}, "$ref": "http://127.0.0.1/"}, "$ref is not understood"),
    ({"type": "object", "properties": {f"p{n}": {"type": "boolean"} for n in range(MOST_FIELDS + 1)}}, "at most"),
    *(
        ({"type": "object", "properties": {"a": field}}, words)
        for field, words in [
            ("string", "a: is no schema"),
            ({}, "a: its type must be"),
            ({"type": "object", "properties": {}}, "a: its type must be"),
            ({"type": "null"}, "a: its type must be"),
            ({"type": ["string", "integer"]}, "a: its type must be"),
            ({"$ref": "#/$defs/x"}, "a: its type must be"),
            ({"type": "string", "$ref": "#/$defs/x"}, "a: $ref is not understood there"),
            ({"type": "string", "const": "x"}, "a: const is not understood there"),
            ({"type": "string", "format": "password"}, "a: its format must be one of"),
            ({"type": "string", "pattern": "(?=x)"}, "a: its pattern looks around"),
            ({"type": "string", "pattern": 1}, "a: its pattern must be a text"),
            ({"type": "string", "minLength": -1}, "a: minLength must be a whole number"),
            ({"type": "string", "enum": []}, "a: enum must be a list of 1 to"),
            ({"type": "string", "enum": ["a", 1]}, "a: its options must be texts"),
            ({"type": "string", "enum": ["a\u202eb"]}, "a: its options must be texts"),
            ({"type": "string", "oneOf": [{"const": "a"}, {"type": "string"}]}, "a: its options must be texts"),
            ({"type": "integer", "multipleOf": 2}, "a: multipleOf is not understood there"),
            ({"type": "integer", "minimum": "1"}, "a: its bounds must be numbers"),
            ({"type": "integer", "maximum": 10**400}, "a: its bounds must be numbers"),
            ({"type": "array", "items": {"type": "string"}}, "a: the items of an array must be options"),
            ({"type": "array", "items": {"type": "integer", "enum": [1]}}, "a: the items of an array must be options"),
        ]
    ),
    *(
        ({"type": "object", "properties": {name: {"type": "string"}}}, "such a name of a property cannot be shown as it is")
        for name in ("", "a\nb", "p\u0430ss\u200bword", "[github] token", "x" * 129, " a", "\u3164")
    ),
]


@pytest.mark.parametrize(("schema", "words"), BAD, ids=[json.dumps(schema)[:60] for schema, _ in BAD])
def test_a_form_that_is_not_understood_is_refused_in_so_many_words(schema: Any, words: str) -> None:
    """What could not be checked, or not be shown as it is, is named; nothing is fetched, nothing is let through."""
    with pytest.raises(NotUnderstood, match=re.escape(words)):
        read_form(schema)


def test_what_is_shown_is_clean_and_what_says_nothing_is_left_out() -> None:
    """Titles and descriptions lose what is invisible and cannot look like a name of ours; vendors' keywords go."""
    form = read_form(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": {"x": {}},
            "title": "A\u202eB",
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "a": {
                    "type": "string",
                    "title": "[github] pass\u200bword",
                    "description": "x\ny",
                    "x-vendor": "<b>",
                    "default": "a\u202e",
                },
                "b": {"type": "string", "oneOf": [{"const": "1", "title": "\x1b[31mone"}, {"const": "2"}], "default": "1"},
                "c": {"type": "array", "items": {"type": "string", "enum": ["u", "v"]}, "default": ["u"], "minItems": 1},
                "d": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
            "required": ["c", "a"],
        }
    )

    assert {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AB",
        "type": "object",
        "properties": {
            "a": {"type": "string", "title": "(github) password", "description": "x y"},
            "b": {"type": "string", "oneOf": [{"const": "1", "title": "one"}, {"const": "2", "title": "2"}], "default": "1"},
            "c": {"type": "array", "items": {"type": "string", "enum": ["u", "v"]}, "default": ["u"], "minItems": 1},
            "d": {"type": "integer"},
        },
        "required": ["a", "c"],
    } == form.schema()
    assert form.schema() == read_form(form.schema()).schema()


def test_faults_name_the_fields_and_never_the_values() -> None:
    """All that is wrong is told at once, up to a bound: missing, not asked for, not fitting."""
    form = form_of(age={"type": "integer", "minimum": 18}, name={"type": "string"}, mail={"type": "string", "format": "email"})
    faults = form.faults({"age": 17, "mail": "s3cret", "x\u202ey": 1})

    assert [
        "xy: was not asked for",
        "age: must be at least 18",
        "name: is missing",
        "mail: must be of the format email",
    ] == faults
    assert ["the content must be an object"] == form.faults([])
    assert 9 == len(form.faults({str(n): n for n in range(1000)}))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["string", "array", "a", "^(a+)+$"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "type",
        "enum",
        "oneOf",
        "anyOf",
        "items",
        "pattern",
        "format",
        "minimum",
        "minLength",
        "title",
        "default",
        "enumNames",
        "$ref",
    ]
)
FIELDS = st.dictionaries(KEYS, VALUES, max_size=5) | VALUES
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object") | VALUES, "properties": st.dictionaries(st.text(max_size=5), FIELDS, max_size=5) | VALUES},
    optional={"required": st.lists(st.text(max_size=5), max_size=3) | VALUES, "title": VALUES, "$schema": VALUES},
)


@settings(deadline=None, max_examples=300)
@given(schema=SCHEMAS | VALUES, answer=VALUES | st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_no_schema_and_no_answer_breaks_the_check(schema: Any, answer: Any) -> None:
    """Whatever a server or a client sends, a form is refused in words or read, and an answer has a list of faults."""
    try:
        form = read_form(schema)
    except NotUnderstood:
        return
    assert all(isinstance(fault, str) for fault in form.faults(answer))
    assert read_form(form.schema()).schema() == form.schema()


def long_of(letter: str) -> JsonObject:
    """As much text as a form may have, of one letter."""
    options = [{"const": f"{n}", "title": letter * 25} for n in range(MOST_OPTIONS)]
    fields = {f"p{n}": {"type": "string", "description": letter * 60} for n in range(MOST_FIELDS - 1)}
    return {"type": "object", "properties": {**fields, "x": {"type": "string", "oneOf": options}}}


def test_a_form_is_no_larger_than_it_may_be() -> None:
    """Whatever makes a form large is counted before it is read, and the largest that is read is large enough."""
    options = [{"const": f"{n}", "title": "Bosnia and Herzegovina"} for n in range(MOST_OPTIONS)]

    assert MOST_OPTIONS == len(form_of(x={"type": "string", "oneOf": options}).fields["x"].options)
    for much in ("x" * 60_000, ["x"] * 60_000, {f"{n}": 1 for n in range(60_000)}, [[["x" * 30_000]], {"x" * 30_000: 1}]):
        with pytest.raises(NotUnderstood, match="more than 50000 characters and values"):
            form_of(x={"type": "string", "x-more": much})


def patterns_of(pattern: str) -> JsonObject:
    return {"type": "object", "properties": {f"p{n}": {"type": "string", "pattern": pattern} for n in range(MOST_FIELDS)}}


HOSTILE: dict[str, tuple[JsonObject, JsonObject]] = {
    "invisible text": (long_of("\u200b"), {}),
    "marks": (long_of("\u0301"), {}),
    "letters of another alphabet": (long_of("\u0430"), {}),
    "escapes": (long_of("\x1b"), {}),
    "nested repeats": (patterns_of("^(a+)+$"), {f"p{n}": "a" * 60_000 + "b" for n in range(MOST_FIELDS)}),
    "alternatives": (patterns_of("(a|a|a|a)*(a|a)*c"), {f"p{n}": "a" * 60_000 for n in range(MOST_FIELDS)}),
    "counted repeats": (patterns_of("(a{1,5}){1,3}c"), {f"p{n}": "a" * 60_000 for n in range(MOST_FIELDS)}),
    "empty repeats": (patterns_of("((((){500}){500}){500}){500}"), {}),
    "strangers": ({"type": "object", "properties": {}}, {f"p{n}": "x" for n in range(100_000)}),
    "long texts": (
        {"type": "object", "properties": {f"p{n}": {"type": "string", "format": "email"} for n in range(64)}},
        {f"p{n}": "@" * 65_536 for n in range(64)},
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_forms_and_answers_take_no_time(name: str) -> None:
    """The reading and the check together stay within their budget of the processor's time, for the worst of servers."""
    schema, answer = HOSTILE[name]
    taken: list[float] = []
    for _ in range(3):
        began = time.process_time()
        with suppress(NotUnderstood):
            read_form(schema).faults(answer)
        taken.append(time.process_time() - began)

    assert min(taken) < BUDGET


def test_titles_of_options_are_cut() -> None:
    """A list of a thousand options has no room for a thousand essays."""
    form = form_of(x={"type": "string", "oneOf": [{"const": "a", "title": "y" * 500}]})

    assert MOST_OPTION_TITLE == len(form.fields["x"].options[0].title)

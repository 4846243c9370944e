"""Parsing in pieces: the same values and the same refusals as in one go, and no long step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.transports import pieces
from mcpvisor.supervisor.transports.codec import MAX_DEPTH, MAX_VALUES, Unreadable, decode
from mcpvisor.supervisor.transports.pieces import PIECE, PieceParser

LONG = 256
"""What counts as a long text in these tests, so that small texts are cut in all the ways that large ones are."""

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3 * LONG),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=20,
)
CONTAINERS = st.lists(VALUES) | st.dictionaries(st.text(max_size=10), VALUES)
FRAGMENTS = [
    '"a":1,',
    '"a":[1,2],',
    '"b":{"a":1,"a":2},',
    '"a":{',
    '"b":[{',
    "}],",
    "},",
    '"a":[[',
    "]],",
    f'"b":"{"x" * 2 * LONG}",',
    '"a":"\\ud83d\\ude00\\n\\\\",',
]


@pytest.fixture(autouse=True)
def short_texts(monkeypatch):
    """Texts are long earlier than they are."""
    monkeypatch.setattr(pieces, "_LONG", LONG)


def in_pieces(data: bytes, size: int) -> Any:
    """The value of a text fed in pieces of `size`, or what it is refused for."""
    parser = PieceParser()
    try:
        for start in range(0, len(data), size):
            parser.feed(data[start : start + size])
        return parser.end()
    except Unreadable as error:
        return error.reason, "refused"


def at_once(data: bytes) -> Any:
    """The same in one go."""
    try:
        return decode(data, max_bytes=len(data))
    except Unreadable as error:
        return error.reason, "refused"


@given(CONTAINERS, st.integers(1, 80), st.booleans(), st.sampled_from([None, 1]))
def test_the_value_is_the_same_however_it_is_cut(value, size, is_ascii, indent):
    """Also escapes, halves of characters and blanks end up on both sides of a cut."""
    data = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "replace")

    assert at_once(data) == in_pieces(data, size)


@given(CONTAINERS, st.integers(1, 80), st.data())
def test_what_is_broken_is_refused_as_ever(value, size, data):
    """Whatever a byte too many, too few or another one makes of a text: it is refused, or means the same."""
    text = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 1))] = data.draw(st.sampled_from(list(b'[]{},:"\\ 0ue'))).to_bytes(1, "big")

    assert at_once(bytes(text)) == in_pieces(bytes(text), size)


@given(st.lists(st.sampled_from(FRAGMENTS)), st.integers(1, 80))
def test_a_name_that_stands_twice_has_its_last_value(fragments, size):
    """Whatever was open under the first one, and in whichever piece the other stands."""
    text = "{" + "".join(fragments)
    outside = "".join(text.split('"')[::2])
    while (inner := outside.replace("[]", "").replace("{}", "").translate(str.maketrans("", "", ",:0123456789"))) != outside:
        outside = inner
    closed = "".join({"[": "]", "{": "}"}.get(mark, "") for mark in reversed(outside))
    data = (text.rstrip(",") + closed).replace(",}", "}").replace(",]", "]").encode()

    assert at_once(data) == in_pieces(data, size)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"' + "\\ud83d\\ude00" * LONG + '"}',
        '{"a":"' + "\\\\" * LONG + '\\"' * LONG + '"}',
        '["' + "é漢😀" * LONG + '",1]',
        '{"a":{"b":["x",{"c":"' + "y" * 4 * LONG + '"}]},"d":2}',
        '{"a":1,"b":"' + "y" * 4 * LONG + '","b":3}',
        "[" + " " * 10 * LONG + "1" + " " * 10 * LONG + "," + "\n" * 10 * LONG + "2]" + "\t" * 10 * LONG,
        '["' + "x" * 2 * LONG + '"]' + " " * LONG,
        "{} " + "\r\n " * 4 * LONG,
    ],
)
def test_long_texts_and_long_blanks(text):
    """Texts that are longer than what is cut otherwise are put together from their parts."""
    data = text.encode()
    expected = json.loads(text)

    assert [expected] * 80 == [in_pieces(data, size) for size in range(1, 81)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "depth"),
        ("[0," * (MAX_DEPTH + 1), "depth"),
        ('{"a":"\\ud800' + "x" * 4 * LONG + '"}', "syntax"),
        ('{"a":"' + "x" * 4 * LONG + '\\ud800"}', "syntax"),
        ('{"a":"' + "x" * 4 * LONG + '\n"}', "syntax"),
        ('{"a":"' + "x" * 4 * LONG, "syntax"),
        ('"' + "x" * 4 * LONG + '"', "syntax"),
        ('{"' + "x" * 4 * LONG + '":1}', "syntax"),
        ("[" + "9" * 4 * LONG + "]", "syntax"),
        ("[1] " + "x" * 4 * LONG, "syntax"),
        ("[1],[2]", "syntax"),
        ('["' + "x" * 4 * LONG + '".5]', "syntax"),
        ('{"a":"' + "x" * 4 * LONG + '"e5}', "syntax"),
        ("[1,2}", "syntax"),
        ('{"a":1]', "syntax"),
        ("[1,]", "syntax"),
        ('{"a":1,}', "syntax"),
        ("[,1]", "syntax"),
        ("[NaN,1]", "syntax"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 80, PIECE])
def test_refusals(text, reason, size):
    """Each has the reason that reading it in one go would give it."""
    assert (reason, "refused") == in_pieces(text.encode(), size)


@pytest.mark.parametrize(("values", "refused"), [(MAX_VALUES, True), (MAX_VALUES - 1, False)])
def test_values_are_counted(values, refused):
    """Up to the limit, and no further."""
    text = b"[" + b"0," * (values - 1) + b"0]"

    assert refused == (("values", "refused") == in_pieces(text, PIECE))


def test_no_step_parses_much_more_than_a_piece(monkeypatch):
    """However a large text is made, what is parsed in one step has no more bytes than a long text may have and two pieces."""
    monkeypatch.setattr(pieces, "_LONG", 64 * 1024)
    parsed: list[int] = []
    decode_counted = pieces.decode_counted

    def watched(data: bytes) -> Any:
        parsed.append(len(data))
        return decode_counted(data)

    monkeypatch.setattr(pieces, "decode_counted", watched)
    texts = [
        b'{"a":"' + b"x" * 1_000_000 + b'"}',
        b'{"a":"' + b"\\u00e9" * 200_000 + b'"}',
        b"[" + b"[]," * 100_000 + b"0]",
        b"[" + b'{"name":"' + b"x" * 60_000 + b'"},' + b"[[[[[[[[0]]]]]]]]," * 50_000 + b"0]",
        b"[" + b'"x",' * 200_000 + b"0]",
    ]
    for text in texts:
        assert at_once(text) == in_pieces(text, PIECE)

    assert 64 * 1024 + 2 * PIECE + 100 > max(parsed) > PIECE

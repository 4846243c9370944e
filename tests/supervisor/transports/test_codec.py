"""How JSON is counted before it is parsed."""

from __future__ import annotations

import json
import random

import pytest

from mcpvisor.supervisor.transports import codec
from mcpvisor.supervisor.transports.codec import MAX_VALUES, Unreadable, count_values, decode


def structure(data: bytes) -> int:
    """The values of a JSON text at most, counted character by character."""
    values, in_string, is_escaped = 1, False, False
    for character in data.decode():
        if in_string:
            in_string = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
        elif character == '"':
            in_string = True
        else:
            values += character in ",[{"
    return values


def test_structure_is_counted_and_strings_are_not(monkeypatch: pytest.MonkeyPatch):
    """However a text is cut into pieces, what stands in strings is no structure, and what is escaped ends none."""
    monkeypatch.setattr(codec, "_PIECE", 7)
    random_one = random.Random(1)
    for _ in range(2000):
        text = "".join(random_one.choice('a\\",[{') for _ in range(random_one.randrange(12)))
        data = json.dumps([text, {text: 1}, [text] * random_one.randrange(4)]).encode()
        monkeypatch.setattr(codec, "MAX_VALUES", structure(data))
        assert structure(data) == codec._count_outside_strings(data)


def test_values_are_limited():
    """The limit holds for what is outside of strings; commas within them are free."""
    just = b"[" + b"1," * (MAX_VALUES - 2) + b"1]"
    over = b"[" + b"1," * (MAX_VALUES - 1) + b"1]"

    assert MAX_VALUES == count_values(just)
    assert MAX_VALUES - 1 == len(decode(just, max_bytes=len(just)))
    assert "," * MAX_VALUES * 2 == decode(b'"' + b"," * MAX_VALUES * 2 + b'"', max_bytes=2 * MAX_VALUES + 2)
    with pytest.raises(Unreadable, match="more than 500000 values") as refused:
        decode(over, max_bytes=len(over))
    assert "values" == refused.value.reason

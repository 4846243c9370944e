"""How JSON is counted before it is parsed."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from mcpvisor.supervisor.transports import codec
from mcpvisor.supervisor.transports.codec import MAX_DEPTH, MAX_VALUES, Unreadable, count_values, decode


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


def nested(levels: int, begin: bytes = b"[", end: bytes = b"]") -> bytes:
    return begin * levels + end * levels


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (nested(MAX_DEPTH), None),
        (nested(MAX_DEPTH + 1), "depth"),
        (nested(980), "depth"),
        (nested(100_000), "depth"),
        (b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH, None),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "depth"),
        (b"[" + b",".join([nested(MAX_DEPTH - 1)] * 50) + b"]", None),
        (b"[" + b",".join([nested(1)] * 5000 + [nested(MAX_DEPTH)]) + b"]", "depth"),
        (json.dumps(["[" * 5000, '"\\"' + "{" * 5000, "\\"]).encode(), None),
        (b"[" * MAX_DEPTH + rb'"\\",["]"]' + b"]" * MAX_DEPTH, "depth"),
        (b"]" * 500 + b"[" * 500, "syntax"),
        (b'"' * 500 + b"[" * 500, "depth"),
        (b"[1," * 100 + b'"' + b"[" * 500, "syntax"),
    ],
)
def test_depth_is_limited(data: bytes, reason: str | None):
    """The limit holds for lists and objects alike, whatever is beside them; brackets within strings are free."""
    found = None
    try:
        decode(data, max_bytes=len(data))
    except Unreadable as refused:
        found = refused.reason
    assert reason == found


def test_depth_is_counted_as_by_hand(monkeypatch: pytest.MonkeyPatch):
    """Whatever a value is made of, it is as deep as it is."""
    random_one = random.Random(2)

    def grown(left: int) -> Any:
        if left == 0 or random_one.random() < 0.2:
            return random_one.choice(['a"[\\', "{", "\\", 1, [], {}])
        inner = [grown(left - 1) for _ in range(random_one.randrange(1, 3))]
        return inner if random_one.random() < 0.5 else {f'"{key}[': one for key, one in enumerate(inner)}

    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    for _ in range(1000):
        value = grown(random_one.randrange(8))
        data = json.dumps(value).encode()
        for limit in range(10):
            monkeypatch.setattr(codec, "MAX_DEPTH", limit)
            assert (depth(value) > limit) == codec.is_too_deep(data)


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b",".join([nested(MAX_DEPTH - 1)] * 2500) + b"]",
        b"[" + b"[]," * 499_000 + b"1]",
        b'"' * 10_000_000 + b"[" * 300,
        b'["' + b'\\"[' * 160_000 + b'"]',
    ],
    ids=["deep", "flat", "quotes", "escapes"],
)
def test_depth_costs_little(data: bytes):
    """The worst that a message may hold is looked at in half a second."""
    began = time.thread_time()
    codec.is_too_deep(data)

    assert time.thread_time() - began < 0.5

"""The type of secrets: whatever is done with it, only `reveal` gives its value."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpvisor.supervisor.secret import Secret, all_in


@dataclass(frozen=True, slots=True)
class Holder:
    """What holds a secret, as specs do."""

    name: str
    secret: Secret


def _raised(value: Any) -> str:
    try:
        raise ValueError(value)
    except ValueError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


WAYS: dict[str, Callable[[Any], object]] = {
    "repr": repr,
    "str": str,
    "format": lambda value: f"{value} {value!r} {value!s:>5}",
    "percent": lambda value: "%s %r" % (value, value),  # noqa: UP031 - the old form is one of the ways
    "pprint": pprint.pformat,
    "json": lambda value: json.dumps(value, default=str),
    "error": lambda value: repr(KeyError(value)),
    "traceback": _raised,
    "record": lambda value: logging.LogRecord("x", 20, "x", 1, "told %s", (value,), None).getMessage(),
    "vars": lambda value: [getattr(value, name) for name in dir(value) if name in ("__dict__", "__doc__")],
    "copy": lambda value: repr([copy.copy(value), copy.deepcopy(value)]),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@settings(deadline=None)
@given(text=st.text(min_size=4))
def test_nothing_prints_it(way: Callable[[Any], object], text: str):
    """No way of printing, by itself or within something else, shows it or a part of it."""
    value = f"QZ{text}QZ"
    secret = Secret(value, [f"{value}-part"])

    for holder in (secret, [secret], {"a": secret}, Holder("x", secret), asdict(Holder("x", secret))):
        assert value not in str(way(holder))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_cannot_be_kept(protocol: int):
    """It is neither pickled nor written as JSON by mistake."""
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret("x"), protocol)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(Secret("x"))
    with pytest.raises(TypeError, match="not pickled"):
        Secret("x").__getstate__()


def test_it_is_told_from_others_by_its_value():
    """What is secret in it by itself is part of no comparison; `all_in` has both."""
    secret = Secret("Bearer abc", ["abc"])

    assert (secret, "Bearer abc") == (Secret("Bearer abc"), secret.reveal())
    assert secret != Secret("Bearer abd")
    assert secret != "Bearer abc"
    assert Secret.of(secret) is secret
    assert ("x", ("abc",)) == (secret.replaced("x").reveal(), secret.replaced("x").reveal_parts())
    assert ["Bearer abc", "abc", "y"] == all_in([secret, "plain", Secret.of("y")])

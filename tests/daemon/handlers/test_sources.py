"""What handlers are told: of bounded size, whatever a server says."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.daemon.handlers.sources import MOST_DATA, made
from mcpvisor.supervisor.transports.codec import encode


@pytest.mark.parametrize(
    ("value", "begin"),
    [
        ("y" * 100_000, "yyy"),
        ('"' * 100_000, '""'),
        ("\u4e2d" * 100_000, "\u4e2d"),
        ("\x01" * 100_000, "\x01"),
        ([{"a": "\\" * 100_000}], '[{"a":"'),
    ],
    ids=["letters", "quotes", "wide", "control", "list"],
)
def test_what_is_too_large_is_cut(value: Any, begin: str) -> None:
    """A text that is too large is cut as it is, what is none as its JSON; the rest stays, and the whole keeps its bound."""
    told = made("log_message", "s", {"level": "error", "logger": "x", "data": value}, 1.0).data

    assert ("error", "x") == (told["level"], told["logger"])
    assert told["data"].startswith(begin)
    assert told["data"].endswith("\u2026")
    assert MOST_DATA // 8 < len(encode(told)) <= MOST_DATA


def test_what_is_small_stays() -> None:
    """Data within the bound is told as it is."""
    data = {"level": "error", "logger": None, "data": {"a": [1, 2.5, "x"]}}

    assert data == made("log_message", "s", data, 1.0).data

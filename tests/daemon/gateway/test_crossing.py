"""What crosses the gateway is decided in one place, and by allow-lists."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.daemon.gateway.crossing import (
    capabilities_to_server,
    failure_data,
    params_to_server,
    rejected,
    result_to_client,
)
from mcpvisor.supervisor.errors import Outcome, RequestFailed


def test_params_without_meta():
    """Where nothing of `_meta` may cross, there is none."""
    assert params_to_server({"name": "x", "_meta": {"progressToken": 1}}, name="y") == {"name": "y"}
    assert params_to_server({"uri": "x", "_meta": "odd"}) == {"uri": "x"}


def test_capabilities():
    """A server may not build on capabilities that do not hold through the gateway."""
    declared = {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {"listChanged": True}, "tasks": {}, "x": None}

    assert capabilities_to_server(declared) == {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}}
    assert capabilities_to_server(None) is None
    assert capabilities_to_server({"roots": {}, "elicitation": {}}, has_answerer=True) == {
        "roots": {},
        "elicitation": {"form": {}, "url": {}},
    }
    assert capabilities_to_server(None, has_answerer=True) == {"elicitation": {"form": {}, "url": {}}}


@pytest.mark.parametrize(
    ("own", "beside"),
    [
        (None, {}),
        ({"x": 1}, {"x": 1}),
        ({"mcpvisor": "fake"}, {}),
        ("text", {"data": "text"}),
        ([1], {"data": [1]}),
        (0, {"data": 0}),
    ],
)
def test_failure_data(own: Any, beside: dict[str, Any]):
    """The server's own data stays beside ours, and cannot pose as ours."""
    failure = RequestFailed(Outcome.PEER_ERROR, "error_answer", "m", data=own)

    assert failure_data("a", failure) == {
        **beside,
        "mcpvisor": {"server": "a", "outcome": "peer_error", "cause": "error_answer"},
    }


def test_refusals_of_ours():
    """A refusal of ours names no server and says that nothing was sent."""
    assert failure_data(None, rejected("unknown_tool", "Unknown tool: x")) == {
        "mcpvisor": {"server": None, "outcome": "rejected", "cause": "unknown_tool"}
    }


def test_results_between_the_eras():
    """A result gets what the client's era requires and loses what only the other era knows."""
    legacy = {"contents": [], "vendor": None}
    modern = {"contents": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "public"}

    assert result_to_client("resources/read", legacy, modern=False, from_modern=False) is legacy
    assert result_to_client("resources/read", modern, modern=False, from_modern=True) == {"contents": []}
    assert result_to_client("resources/read", modern, modern=True, from_modern=True) == modern
    assert result_to_client("resources/read", legacy, modern=True, from_modern=False) == {
        "contents": [],
        "vendor": None,
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
    }
    assert result_to_client("tools/call", legacy, modern=True, from_modern=False) == {**legacy, "resultType": "complete"}

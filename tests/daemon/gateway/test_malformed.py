"""What a client is told of a message that cannot be taken: one clear error that names the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.daemon.gateway.puppet import Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, call

from mcpvisor.daemon.gateway.malformed import message_fault, refused_by_sdk
from mcpvisor.supervisor.offer import Offer

HEAD = {"jsonrpc": "2.0", "id": 1}


@pytest.fixture
def supervisor() -> PuppetSupervisor:
    return PuppetSupervisor(PuppetConnection("a", Offer(tools=(tool("echo"),))))


MESSAGES = [
    ([], "batches are not taken: send each message by itself"),
    ([call("a__echo")], "batches are not taken: send each message by itself"),
    ("x", "a message has to be an object"),
    (None, "a message has to be an object"),
    ({}, 'jsonrpc has to be "2.0"'),
    ({**HEAD, "jsonrpc": "1.0", "method": "ping"}, 'jsonrpc has to be "2.0"'),
    ({"jsonrpc": "2.0"}, "method is missing"),
    (HEAD, "there has to be a method, a result or an error"),
    ({**HEAD, "method": 5}, "method has to be a text"),
    ({"jsonrpc": "2.0", "method": 5}, "method has to be a text"),
    ({**HEAD, "method": "ping", "params": [1]}, "params has to be an object"),
    ({"jsonrpc": "2.0", "method": "notifications/x", "params": 3}, "params has to be an object"),
    ({**HEAD, "id": None, "method": "ping"}, "the id of a request has to be a string or a whole number"),
    ({**HEAD, "id": True, "method": "ping"}, "the id of a request has to be a string or a whole number"),
    ({**HEAD, "result": 3}, "result has to be an object"),
    ({**HEAD, "error": 3}, "error has to be an object"),
    ({**HEAD, "error": {"code": "x", "message": "m"}}, "error.code has to be a whole number"),
    ({**HEAD, "error": {"code": 1}}, "error.message has to be a text"),
]


@pytest.mark.parametrize("message", [{**HEAD, "method": "ping", "params": None}, {**HEAD, "result": {}}, call("a__echo")])
def test_what_is_a_message_has_no_fault(message: Any) -> None:
    """A request, a notification and an answer are messages, whatever is in their params."""
    assert "" == message_fault(message)
    assert "" == message_fault({**HEAD, "id": None, "error": {"code": 1, "message": "m"}})


@pytest.mark.anyio
async def test_a_body_that_is_no_message(supervisor: PuppetSupervisor, tmp_path: Path) -> None:
    """It is refused as an invalid request with the place and what belongs there, in the same words in both eras."""
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "ping"}
    async with (
        gateway(supervisor, tmp_path) as served,
        Wire(served.addresses[0]) as client,
        Wire(served.addresses[0]) as modern,
    ):
        await client.open()
        for message, fault in MESSAGES:
            refused = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": fault}}
            answers = await client.post(message), await modern.post(message, headers=headers)
            assert [(400, refused)] * 2 == [(one.status_code, one.json()) for one in answers], message


PARAMS = [
    ("tools/call", {}, "params.name is missing"),
    ("prompts/get", {"name": "p", "arguments": 5}, "params.arguments has to be an object"),
    ("tools/call", {"name": "a__echo", "arguments": []}, "params.arguments has to be an object"),
    ("tools/list", {"cursor": 5}, "params.cursor has to be a text"),
    (
        "tools/call",
        {"name": "a__echo", "_meta": {"progressToken": {}}},
        "params._meta.progressToken has to be a text or has to be a whole number",
    ),
    ("completion/complete", {"argument": {"name": "x", "value": ""}, "ref": {"type": "x"}}, "params.ref.name is missing"),
    ("completion/complete", {"ref": {"type": "x"}, "argument": {}}, "params.argument.name is missing"),
]


@pytest.mark.anyio
async def test_params_that_do_not_fit(supervisor: PuppetSupervisor, tmp_path: Path) -> None:
    """The error names the place, and says in its data that nothing was sent to anybody, in both eras."""
    data = {"mcpvisor": {"server": None, "outcome": "rejected", "cause": "invalid_params"}}
    counted = Counted()
    async with (
        gateway(supervisor, tmp_path, observer=counted) as served,
        Wire(served.addresses[0]) as client,
        Wire(served.addresses[0]) as modern,
    ):
        await client.open()
        for method, params, fault in PARAMS:
            error = {"code": -32602, "message": f"Invalid request parameters: {fault}", "data": data}
            message = {**HEAD, "method": method, "params": params}
            answers = await client.post(message), await modern.modern(message)
            assert [error] * 2 == [one.json()["error"] for one in answers], message
        level = await client.post({**HEAD, "method": "logging/setLevel", "params": {"level": "loud"}})
        none = await client.post({**HEAD, "method": "tools/call"})

    levels = "'alert', 'critical', 'debug', 'emergency', 'error', 'info', 'notice' or 'warning'"
    assert level.json()["error"]["message"] == f"Invalid request parameters: params.level has to be {levels}"
    assert none.json()["error"]["message"] == "Invalid request parameters: params is missing"


@pytest.mark.anyio
async def test_a_method_that_nobody_answers(supervisor: PuppetSupervisor, tmp_path: Path) -> None:
    """The error names the method, known to another revision or to none, and says in its data that it was rejected."""
    data = {"mcpvisor": {"server": None, "outcome": "rejected", "cause": "unknown_method"}}
    async with (
        gateway(supervisor, tmp_path) as served,
        Wire(served.addresses[0]) as client,
        Wire(served.addresses[0]) as modern,
    ):
        await client.open()
        for method in ("foo/bar", "tasks/get"):
            error = {"code": -32601, "message": f"Method not found: {method}", "data": data}
            message = {**HEAD, "method": method, "params": {}}
            answers = await client.post(message), await modern.modern(message)
            assert [(200, error), (404, error)] == [(one.status_code, one.json()["error"]) for one in answers]
        older, newer = (
            await modern.modern({**HEAD, "method": "logging/setLevel", "params": {"level": "info"}}),
            await client.post({**HEAD, "method": "subscriptions/listen", "params": {}}),
        )

    assert "Method not found: logging/setLevel" == older.json()["error"]["message"]
    assert "Method not found: subscriptions/listen" == newer.json()["error"]["message"]


def test_what_the_sdk_refuses_is_told_in_our_form() -> None:
    """A request before its time is rejected with a cause; errors with data of their own stay as they are."""
    early = refused_by_sdk(MCPError(-32602, "Invalid request parameters", ""), "tools/list")

    assert early is not None
    assert ("rejected", "not_initialized") == (early.outcome, early.cause)
    assert refused_by_sdk(MCPError(-32602, "no", {"supported": []}), "tools/list") is None

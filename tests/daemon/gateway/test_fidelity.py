"""What a server sends reaches the client as it is, and what a client may not say to a server stays here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.gateway.puppet import Call, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, call, events
from tests.stopwatch import Stopwatch

from mcpvisor.supervisor.offer import Offer

pytestmark = pytest.mark.anyio

ODD = {
    "content": [{"type": "text", "text": "é\u2028\U0001f600", "vendorField": {"deep": [None, {"x": None}]}}],
    "structuredContent": {"big": 123456789012345678901234567890, "null": None, "float": 1.5, "neg": -(2**63) - 1},
    "vendor": {"a": [1, "2", None, True]},
    "_meta": {"vendor/key": "v", "null": None},
    "isError": False,
}


@pytest.fixture
def supervisor() -> PuppetSupervisor:
    door = PuppetConnection("a", Offer(tools=(tool("echo", vendor={"n": None, "big": 10**25}),)))

    async def answer(call: Call) -> dict[str, Any]:
        return ODD

    door.answer = answer
    return PuppetSupervisor(door)


async def test_legacy_results(supervisor: PuppetSupervisor, tmp_path: Path):
    """A result of the handshake era is passed on value for value."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        answer = await (await client.open()).post(call("a__echo"))
        listed = await client.post({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})

    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"jsonrpc": "2.0", "id": 2, "result": ODD}
    assert listed.json()["result"]["tools"] == [tool("a__echo", vendor={"n": None, "big": 10**25})]


async def test_modern_results(supervisor: PuppetSupervisor, tmp_path: Path):
    """For a client of 2026-07-28 only what that revision requires is added."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        answer = await client.modern(call("a__echo"))
        listed = await client.modern({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})

    assert answer.json() == {"jsonrpc": "2.0", "id": 2, "result": {**ODD, "resultType": "complete"}}
    assert listed.json()["result"] == {
        "tools": [tool("a__echo", vendor={"n": None, "big": 10**25})],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
    }


async def test_fields_of_the_other_era(supervisor: PuppetSupervisor, tmp_path: Path):
    """What only 2026-07-28 knows is not shown to an older client; what is no result yet in that era is none for it."""
    door = supervisor.connection("a")
    door.era = "modern"
    result: dict[str, Any] = {"content": [], "resultType": "complete", "vendor": 1}

    async def answer(call: Call) -> dict[str, Any]:
        return result

    door.answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        plain = await client.post(call("a__echo"))
        result = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
        question = await client.post(call("a__echo"))

    assert plain.json()["result"] == {"content": [], "vendor": 1}
    assert question.json()["error"]["data"]["mcpvisor"]["cause"] == "too_many_rounds"


@pytest.mark.parametrize("server_era", ["legacy", "modern"])
async def test_questions_of_any_server(supervisor: PuppetSupervisor, tmp_path: Path, server_era: str):
    """A result that is none yet never reaches a client that cannot be asked; one of the handshake era has no such thing."""
    door = supervisor.connection("a")
    door.era = server_era

    async def answer(call: Call) -> dict[str, Any]:
        return {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create"}}, "requestState": "s"}

    door.answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        answers = [await client.modern(call("a__echo")), await client.post(call("a__echo"))]

    cause = "input_required" if server_era == "legacy" else "too_many_rounds"
    assert [one.json()["error"]["data"]["mcpvisor"]["cause"] for one in answers] == [cause] * 2


async def test_progress_is_raw(supervisor: PuppetSupervisor, tmp_path: Path):
    """Progress keeps its unknown fields and carries the client's own token; with it, the answer is an event stream."""

    async def answer(call: Call) -> dict[str, Any]:
        call.on_progress({"progressToken": 9, "progress": 1, "vendor": None})
        return {"content": []}

    supervisor.connection("a").answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        answer_ = await (await client.open()).post(call("a__echo", _meta={"progressToken": "mine"}))

    assert answer_.headers["content-type"].startswith("text/event-stream")
    assert events(answer_.text) == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "mine", "progress": 1, "vendor": None},
        },
        {"jsonrpc": "2.0", "id": 2, "result": {"content": []}},
    ]


async def test_what_crosses(supervisor: PuppetSupervisor, tmp_path: Path):
    """Of `_meta` only the trace context goes on, of the headers nothing; unknown params stay, those of other calls do not."""
    sent = call(
        "a__echo",
        vendor=[1],
        task={"ttl": 1},
        requestState="stolen",
        _meta={"traceparent": "00-1", "tracestate": "x=1", "baggage": "user=me", "vendor/key": 1, "progressToken": 5},
    )
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await (await client.open()).post(sent, headers={"authorization": "Bearer s", "cookie": "c=1", "traceparent": "h"})

    seen = supervisor.connection("a").calls[0]
    assert seen.params == {
        "name": "echo",
        "arguments": {},
        "vendor": [1],
        "_meta": {"traceparent": "00-1", "tracestate": "x=1"},
    }
    assert seen.client_capabilities == {}


async def test_a_result_that_cannot_be_written(supervisor: PuppetSupervisor, tmp_path: Path):
    """A result that is no JSON fails its own call at once, and no other."""
    results: list[Any] = [{"x": "\ud800"}, ODD]

    async def answer(call: Call) -> dict[str, Any]:
        return results.pop(0)

    supervisor.connection("a").answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        watch = Stopwatch()
        watch.start()
        bad = await client.post(call("a__echo"))
        good = await client.post(call("a__echo", request_id=3))
        took = watch.seconds()

    assert took < 2
    assert bad.json()["error"]["code"] == -32603
    assert good.json()["result"] == ODD


async def test_deep_results(supervisor: PuppetSupervisor, tmp_path: Path):
    """A result nested deeper than the SDK's serialiser goes reaches clients of both eras, or fails with an answer."""
    deep: Any = 1
    for _ in range(400):
        deep = [deep]

    async def answer(call: Call) -> dict[str, Any]:
        return {"content": [], "deep": deep}

    supervisor.connection("a").answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        legacy = await (await client.open()).post(call("a__echo"))
        client.session = None
        modern = await client.modern(call("a__echo"))

    assert legacy.json()["result"]["deep"] == deep
    assert "result" in modern.json() or "error" in modern.json()


async def test_internal_errors_are_not_shown(supervisor: PuppetSupervisor, tmp_path: Path):
    """A fault of the gateway itself is one plain error; its text stays in the log."""

    async def answer(call: Call) -> dict[str, Any]:
        raise ZeroDivisionError("secret detail")

    supervisor.connection("a").answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        legacy = await (await client.open()).post(call("a__echo"))
        client.session = None
        modern = await client.modern(call("a__echo"))

    assert legacy.json()["error"] == modern.json()["error"]
    assert legacy.json()["error"]["code"] == -32603
    assert "secret" not in json.dumps([legacy.json(), modern.json()])

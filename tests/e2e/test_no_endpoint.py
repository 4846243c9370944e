"""Addresses at which nothing speaks MCP, or not any more: told by what they answer, and asked ever more rarely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.supervisor.transports.http_rig import Puppet

from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.events import ConnectEnded, ServerStateChanged, SessionLost
from mcpvisor.supervisor.spec import HttpTransport
from mcpvisor.supervisor.states import State

pytestmark = pytest.mark.anyio

Start = Callable[..., Any]
POSTS = ("server/discover", "initialize", "ping", "tools/list", "tools/call")
NOTHING = {method: [404, {"Content-Type": "text/plain"}, "404 page not found"] for method in POSTS}
NOWHERE = {**NOTHING, "GET": [405, {}, None], "DELETE": [404, {}, None]}


def count(puppet: Puppet, method: str) -> int:
    return sum(one[1] == method for one in puppet.state()["log"])


async def test_a_wrong_path_is_told_by_what_the_post_was_answered(http_case: Start) -> None:
    """404 to POST and 405 to GET: both are in the reason, the cause is the address, and it is no crash however often."""
    case, puppet = await http_case("http_narrow", "--room", "none")
    await case.reach(State.READY)
    puppet.control("answers", **NOWHERE)
    await case.failure()
    await case.until(lambda: count(puppet, "initialize") >= 9)
    outcomes = {one.outcome for one in case.told(ConnectEnded)} - {"ready", "other_transport"}
    states = {one.new for one in case.told(ServerStateChanged)}
    status = await case.reach(State.BACKOFF)
    puppet.control("answers")
    await case.reach(State.READY)
    text = await case.call(text="back")

    assert {"not_found"} == outcomes
    assert State.CRASH_LOOP not in states
    assert (
        "the server answered 404 Not Found, text/plain: 404 page not found; asked by GET for the older HTTP+SSE transport, "
        "the server answered 405 Method Not Allowed, no content type, and no body"
    ) == status.reason
    assert "back" == text


async def test_where_one_transport_is_wanted_the_other_is_not_asked_for(http_case: Start) -> None:
    """With `transport` in the entry a refused POST is all that is told."""
    case, puppet = await http_case("http_narrow", "--room", "none", transport=HttpTransport.STREAMABLE_HTTP)
    await case.reach(State.READY)
    await case.until(lambda: count(puppet, "GET") == 1)  # that of the push stream
    puppet.control("answers", **NOWHERE)
    await case.failure()
    await case.until(lambda: count(puppet, "initialize") >= 4)
    status = await case.reach(State.BACKOFF)

    assert "the server answered 404 Not Found, text/plain: 404 page not found" == status.reason
    assert 1 == count(puppet, "GET")


async def test_a_server_without_sessions_that_has_forgotten_is_found_out(http_case: Start) -> None:
    """The call that met it fails as the server's answer; two questions later the session is given up, not 30 s of failures."""
    case, puppet = await http_case("http_narrow", "--room", "none", "--no-push")
    await case.reach(State.READY)
    puppet.control("answers", **NOWHERE)
    failure = await case.failure()
    await case.reach(State.BACKOFF)
    lost = case.told(SessionLost)
    asked = [one[1] for one in puppet.state()["log"] if one[3] == 404]

    assert (Outcome.PEER_ERROR, "not_found") == (failure.outcome, failure.cause)
    assert ["not_found"] == [one.cause for one in lost]
    assert ["tools/call", "ping", "tools/list"] == asked[:3]


async def test_a_tool_that_is_nowhere_alone_costs_no_session(http_case: Start) -> None:
    """Where only that call, or only the ping, is answered 404 the server is there: it is asked, and the session stays."""
    case, puppet = await http_case("http_narrow", "--room", "none", "--no-push")
    await case.reach(State.READY)
    puppet.control("answers", **{method: NOTHING[method] for method in ("tools/call", "ping")})
    await case.failure()
    await case.until(lambda: count(puppet, "tools/list") >= 2)
    puppet.control("answers")
    text = await case.call(text="on")

    assert ("on", 1, []) == (text, case.status.generation, case.told(SessionLost))


async def test_probes_of_a_busy_server_are_no_flood(http_case: Start) -> None:
    """While a call is under way misses count for nothing, and the next probe waits as it does after silence."""
    case, puppet = await http_case("http_narrow", "--room", "none", "--no-push")
    await case.reach(State.READY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: case.call("slow", seconds=3.0))
        await case.until(lambda: count(puppet, "tools/call") == 1)
        puppet.control("answers", **NOTHING)
        await case.failure()
        await case.until(lambda: case.status.in_flight == 0)
        asked = count(puppet, "ping")
        puppet.control("answers")
    text = await case.call(text="on")

    assert (1, "on", []) == (asked, text, case.told(SessionLost))

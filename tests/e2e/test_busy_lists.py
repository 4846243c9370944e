"""Limits that our own questions meet, lists and probes: `Retry-After` in all its forms is obeyed, within bounds, and shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from tests.e2e.case import Case
from tests.supervisor.transports.http_rig import Puppet

from mcpvisor.daemon.control.evidence import Evidence
from mcpvisor.daemon.control.explain import explain
from mcpvisor.supervisor.events import SessionLost
from mcpvisor.supervisor.spec import ProbePolicy
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus

pytestmark = pytest.mark.anyio

Start = Callable[..., Any]


def busy(retry_after: str, status: int = 429) -> list[Any]:
    return [status, {"Retry-After": retry_after}, None]


def times(puppet: Puppet, method: str) -> list[float]:
    """When the server was asked that, by its own clock."""
    return [one[0] for one in puppet.state()["log"] if one[1] == method]


async def limited(http_case: Start, retry_after: str, status: int = 429, **keys: Any) -> tuple[Case, Puppet, ServerStatus]:
    """A server whose list of tools meets a limit, in a session that was made after that began."""
    case, puppet = await http_case("http_narrow", "--room", "many", "--no-push", **keys)
    await case.reach(State.READY)
    puppet.control("answers", **{"tools/list": busy(retry_after, status)})
    puppet.control("forget")
    await case.outcome("tools/call", {"name": "echo", "arguments": {}})
    return case, puppet, await case.reach(State.DEGRADED)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_list_is_asked_for_again_when_the_server_said(http_case: Start, status: int) -> None:
    """Not after the 5 s of our own, as long as the server asks for more; then the list is in, and the server ready."""
    case, puppet, _ = await limited(http_case, "6", status)
    puppet.control("answers")
    await case.reach(State.READY)
    *_, refused, answered = times(puppet, "tools/list")

    assert 5.95 <= answered - refused
    assert ["echo", "slow"] == case.tools


@pytest.mark.parametrize("form", ["120", "120.5", "IMF-fixdate", "RFC 850", "asctime"])
async def test_every_form_is_understood_and_shown(http_case: Start, form: str) -> None:
    """Seconds, and the three forms of a date; `explain` says that the server has asked for it, and until when."""
    at = time.time() + 120
    moment = time.gmtime(at)
    dates = {
        "IMF-fixdate": formatdate(at, usegmt=True),
        "RFC 850": time.strftime("%A, %d-%b-%y %H:%M:%S GMT", moment),
        "asctime": time.asctime(moment),
    }
    case, _, status = await limited(http_case, dates.get(form, form))
    told = explain(Evidence(status=status, spec=case.supervisor.connection(case.name).spec), time.time())

    assert status.lists_next is not None
    assert abs(status.lists_next - at) < 15
    assert "the daemon keeps the session, and asks for the missing lists again when the server asked it to" in told["next"]
    assert status.lists_next == told["next_at"]
    assert "leave it that" in told["remedy"]


@pytest.mark.parametrize(("form", "least", "most"), [("86400", 3500, 3600), ("soon", 0, 5), ("", 0, 5), ("-1", 0, 5)])
async def test_what_is_too_long_is_cut_and_garbage_is_no_time(http_case: Start, form: str, least: float, most: float) -> None:
    """An hour at the most; what says no time leaves it at the daemon's own."""
    _, _, status = await limited(http_case, form)

    assert status.lists_next is not None
    assert least < status.lists_next - time.time() <= most
    assert (least > 0) == status.lists_asked_to_wait


async def test_a_probe_waits_as_long_as_the_server_wants(http_case: Start) -> None:
    """A ping that meets a limit is a sign of life, not of service; the next one comes when it said, and `explain` says when."""
    probe = ProbePolicy(interval=0.3, timeout=5.0, failures=3)
    case, puppet = await http_case("http_narrow", "--room", "many", "--no-push", probe=probe)
    await case.reach(State.READY)
    puppet.control("answers", ping=busy("2"))
    spec = case.supervisor.connection(case.name).spec
    awaited = "the daemon keeps the session, and probes it again when the server asked it to (its Retry-After), and no earlier"
    await case.until(lambda: explain(Evidence(status=case.status, spec=spec), time.time())["next"] == awaited)
    status = case.status
    told = explain(Evidence(status=status, spec=spec), time.time())
    before = len(times(puppet, "ping"))
    await case.until(lambda: len(times(puppet, "ping")) > before)
    *_, first, second = times(puppet, "ping")

    assert 1.95 <= second - first
    assert (State.DEGRADED, []) == (status.state, case.told(SessionLost))
    assert "no room: ping was answered 429 Too Many Requests" == status.reason
    assert told["what"].startswith(
        f"{case.name} keeps its session, but the server refuses what it is asked: {status.reason}; so"
    )
    assert "it is overloaded or limits its clients" in told["remedy"]
    assert "leave it that" in told["remedy"]
    assert status.probe_next == told["next_at"]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_without_room_for_anything_is_not_ready(http_case: Start, status: int) -> None:
    """Calls and probes alike are refused: it is degraded for as long as that lasts, in the session that it has."""
    probe = ProbePolicy(interval=0.3, timeout=5.0, failures=3)
    case, puppet = await http_case("http_narrow", "--room", "many", "--no-push", probe=probe)
    await case.reach(State.READY)
    soon, late = busy("1", status), busy("3600", status)  # a call waits out what ends within its own time
    puppet.control("answers", **{"ping": soon, "tools/list": soon, "tools/call": late})
    await case.reach(State.DEGRADED)
    failed = [await case.failure() for _ in range(5)]
    during = case.status
    puppet.control("answers")
    ready = await case.reach(State.READY)

    assert {"busy"} == {one.cause for one in failed}
    assert (State.DEGRADED, 1) == (during.state, during.generation)
    assert (1, [], "") == (ready.generation, case.told(SessionLost), ready.reason)

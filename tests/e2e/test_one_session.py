"""Servers with room for one session only: what replaces that session ends with one that works, whatever such a server says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.e2e.case import Case
from tests.supervisor.transports.http_rig import Puppet

from mcpvisor.supervisor.events import ServerRestarted, SessionLost
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order

pytestmark = pytest.mark.anyio

Start = Callable[..., Any]


async def begun(http_case: Start, *args: str, **keys: Any) -> tuple[Case, Puppet]:
    case, puppet = await http_case("http_narrow", *args, **keys)
    await case.reach(State.READY)
    return case, puppet


async def settled(case: Case, generation: int) -> None:
    """Return once a generation after that number serves, and nothing else is on its way."""
    with anyio.fail_after(20):
        await case.supervisor.wait_until(case.name, lambda one: one.generation > generation and one.is_settled)


def asked(puppet: Puppet, *methods: str) -> list[tuple[str, str | None, int]]:
    """What of these the server was asked, in order: each with the session that it named, and the status it got."""
    return [(method, session, status) for _, method, session, status in puppet.state()["log"] if method in methods]


@pytest.mark.parametrize("room", ["refuse", "text", "full"])
async def test_a_planned_restart_makes_room_for_itself(http_case: Start, room: str) -> None:
    """A server that says that it has no room for a second session is given up the first one, and only then asked again."""
    case, puppet = await begun(http_case, "--room", room)
    await case.supervisor.order(case.name, Order.RESTART, who="test")
    await settled(case, 1)
    text = await case.call(text="after")
    state = puppet.state()

    assert ("after", 2, ["s2"]) == (text, state["opened"], state["alive"])
    assert [None, "s1"] == [session for _, session, _ in asked(puppet, "DELETE")]
    assert 3 == len(asked(puppet, "initialize"))
    assert [] == case.told(SessionLost)
    assert ["order"] == [event.reason for event in case.told(ServerRestarted)]


async def test_calls_in_flight_finish_before_room_is_made(http_case: Start) -> None:
    """The session is ended once its last call has its answer; calls that come meanwhile wait for the next one."""
    case, puppet = await begun(http_case)
    texts: list[str] = []

    async def call(**arguments: Any) -> None:
        texts.append(await case.call(**arguments))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(tool="slow", seconds=1.0, text="first"))
        await case.until(lambda: len(asked(puppet, "tools/call")) == 1)
        await case.supervisor.order(case.name, Order.RESTART, who="test")
        await case.reach(State.DRAINING)
        tasks.start_soon(lambda: call(text="second"))
    await settled(case, 1)

    assert ["first", "second"] == texts
    assert [("s1", 200), ("s2", 200)] == [(session, status) for _, session, status in asked(puppet, "tools/call")]


async def test_a_refusal_without_a_word_is_understood_the_second_time(http_case: Start) -> None:
    """The very same session was taken before: what else than the one that stands could be in its way."""
    case, puppet = await begun(http_case, "--room", "plain")
    await case.supervisor.order(case.name, Order.RESTART, who="test")
    await settled(case, 1)

    assert ["s2"] == puppet.state()["alive"]
    assert [200, 400, 400, 200] == [status for *_, status in asked(puppet, "initialize")]


async def test_an_edit_that_is_refused_without_a_word_takes_nothing_down(http_case: Start) -> None:
    """The refusal may be of what was edited: the former session serves on, as often as it is tried."""
    case, puppet = await begun(http_case, "--room", "plain")
    await edit(case, puppet)
    await case.until(lambda: len(asked(puppet, "initialize")) >= 4)
    status = case.status
    text = await case.call(text="still")

    assert (State.DEGRADED, 1, "still") == (status.state, status.generation, text)
    assert "its entry was changed, but the next session did not come up" in status.reason
    assert (1, ["s1"]) == (puppet.state()["opened"], puppet.state()["alive"])


async def test_an_edit_makes_room_where_the_server_says_why(http_case: Start) -> None:
    """An edit is in force on such a server, too."""
    case, puppet = await begun(http_case)
    await edit(case, puppet)
    await settled(case, 1)

    assert (2, ["s2"]) == (puppet.state()["opened"], puppet.state()["alive"])


async def test_a_session_that_cannot_be_ended_is_kept(http_case: Start) -> None:
    """A server that lets no session be ended would have no room for the next one either: the former one serves on."""
    case, puppet = await begun(http_case, "--keep")
    await case.supervisor.order(case.name, Order.RESTART, who="test")
    await case.until(lambda: len(asked(puppet, "initialize")) >= 4)
    status = case.status
    text = await case.call(text="still")

    assert (State.DEGRADED, 1, "still") == (status.state, status.generation, text)
    assert "it has no room for another session" in status.reason
    assert {(None, 405)} == {(session, status) for _, session, status in asked(puppet, "DELETE")}


@pytest.mark.parametrize(("more", "opened"), [((), 2), (("--no-push",), 2), (("--no-push", "--careless"), 3)])
async def test_a_session_that_is_driven_out_by_the_next_one(http_case: Start, more: tuple[str, ...], opened: int) -> None:
    """Where the next session ends the one before, or a careless server ends it with that, one is left in the end and works."""
    case, puppet = await begun(http_case, "--room", "evict", *more)
    await case.supervisor.order(case.name, Order.RESTART, who="test")
    await settled(case, opened - 1)
    texts = [await case.call(text=str(number)) for number in range(3)]
    state = puppet.state()

    assert (["0", "1", "2"], opened, [f"s{opened}"]) == (texts, state["opened"], state["alive"])


async def test_who_has_no_room_at_all_is_waited_for(http_case: Start) -> None:
    """Where somebody else holds the one session that is no crash: it is tried again, ever later, and taken once it is free."""
    case, puppet = await http_case("http_narrow", "--room", "refuse", name="first")
    await case.reach(State.READY)
    target = HttpTarget(url=puppet.url)
    quick = ServerSpec(name="second", target=target, restart=case.supervisor.connection("first").spec.restart)
    await case.supervisor.apply([case.supervisor.connection("first").spec, quick])
    other = Case(case.supervisor, "second", case.field_log)
    await case.until(lambda: len(asked(puppet, "initialize")) >= 9)
    waiting = await other.reach(State.BACKOFF)
    await case.supervisor.apply([quick])
    await other.reach(State.READY)

    assert (State.BACKOFF, 0) == (waiting.state, waiting.tools)
    assert "it has no room for another session: Invalid Request: Server already initialized" == waiting.reason


async def edit(case: Case, puppet: Puppet) -> None:
    """Change a header of its entry."""
    spec = case.supervisor.connection(case.name).spec
    target = HttpTarget(url=puppet.url, headers=(("x-edit", "1"),))
    await case.supervisor.apply([ServerSpec(name=case.name, target=target, restart=spec.restart)])

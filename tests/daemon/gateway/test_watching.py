"""Clients of both eras watch resources: each is told of what it asked for, of nobody else's, and of nothing twice."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from mcp import Client
from mcp.server.streamable_http import GET_STREAM_KEY
from tests.daemon.gateway.hearing import ACKNOWLEDGED, SUBSCRIPTION, UPDATED, Hearing, listening, opened, subscribe
from tests.daemon.gateway.puppet import Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, initialize
from tests.waiting import until

from mcpvisor.daemon.gateway import owners, sessions, streams, updates, watching
from mcpvisor.daemon.gateway.catalogs import Catalogs
from mcpvisor.daemon.gateway.keeper import MemoryKeeper
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.events import ResourceUpdated
from mcpvisor.supervisor.offer import Offer

pytestmark = pytest.mark.anyio


def offer(name: str) -> Offer:
    return Offer(
        tools=(tool("echo"),),
        resources=tuple({"uri": uri, "name": uri} for uri in (f"{name}://1", f"{name}://2", "shared://x", "MiXeD://Case/")),
        resource_templates=({"uriTemplate": f"{name}://item/{{id}}", "name": "item"},),
    )


@pytest.fixture
def supervisor() -> PuppetSupervisor:
    return PuppetSupervisor(PuppetConnection("a", offer("a")), PuppetConnection("b", offer("b")))


@asynccontextmanager
async def served(
    supervisor: PuppetSupervisor, state: Path, *refused: str, agreeing: str = "ab", **options: Any
) -> AsyncIterator[tuple[Any, Wire, Wire, anyio.abc.TaskGroup]]:
    """A gateway with two clients, one with a session, whose servers agree to what they are asked for."""
    async with (
        gateway(supervisor, state, **options) as one,
        Wire(one.addresses[0]) as legacy,
        Wire(one.addresses[0]) as modern,
        anyio.create_task_group() as tasks,
    ):
        for name in agreeing:
            tasks.start_soon(supervisor.agree, name, *refused)
        await legacy.open()
        yield one, legacy, modern, tasks
        tasks.cancel_scope.cancel()


async def test_each_is_told_its_own(supervisor: PuppetSupervisor, tmp_path: Path):
    """Updates go to exactly those who asked, letter by letter, on both kinds of endpoints, and nothing is told before."""
    async with served(supervisor, tmp_path) as (one, legacy, modern, tasks), Wire(one.addresses[0]) as alone:
        await alone.open("/mcp/b")
        heard = opened(legacy, tasks), opened(alone, tasks, "/mcp/b")
        answers = [
            await subscribe(legacy, "a://1"),
            await subscribe(legacy, "MiXeD://Case/"),
            await subscribe(alone, "b://1", path="/mcp/b"),
        ]
        stream = await listening(modern, tasks, "a://item/7", "b://1")
        for name, uri in (("a", "a://1"), ("a", "MiXeD://Case/"), ("a", "a://item/7"), ("b", "b://1")):
            supervisor.subscriptions(name).updated(uri)
        await until(lambda: [len(one.updated) for one in (*heard, stream)] == [2, 1, 2])
        watched = supervisor.watched("a"), supervisor.watched("b")
    ack = stream.messages[0]

    assert [one["result"] for one in answers] == [{}, {}, {}]
    assert (heard[0].updated, heard[1].updated, stream.updated) == (
        ["a://1", "MiXeD://Case/"],
        ["b://1"],
        ["a://item/7", "b://1"],
    )
    assert (ack["method"], ack["params"]["notifications"]) == (
        ACKNOWLEDGED,
        {"resourceSubscriptions": ["a://item/7", "b://1"]},
    )
    assert {message["params"]["_meta"][SUBSCRIPTION] for message in stream.messages} == {"s1"}
    assert watched == ({"a://1": 1, "MiXeD://Case/": 1, "a://item/7": 1}, {"b://1": 2})


async def test_the_end_of_one_is_not_the_end_of_the_other(supervisor: PuppetSupervisor, tmp_path: Path):
    """Unsubscribing, DELETE and the end of a stream each let go of their own; the last one lets go of the server's."""
    async with served(supervisor, tmp_path) as (one, legacy, modern, tasks), Wire(one.addresses[0]) as other:
        await other.open()
        hearing = opened(other, tasks)
        for client in (legacy, other):
            await subscribe(client, "a://1")
        stream = await listening(modern, tasks, "a://1")
        held = [supervisor.watched("a")]
        await subscribe(legacy, "a://1", way="unsubscribe")
        again = await subscribe(legacy, "a://1", way="unsubscribe")
        held.append(supervisor.watched("a"))
        supervisor.subscriptions("a").updated("a://1")
        await until(lambda: hearing.updated == stream.updated == ["a://1"])
        stream.scope.cancel()
        await until(lambda: supervisor.watched("a") == {"a://1": 1})
        await other.delete()
        held.append(supervisor.watched("a"))

    assert (held, again["result"]) == ([{"a://1": 3}, {"a://1": 2}, {}], {})


async def test_idle_sessions_let_go(supervisor: PuppetSupervisor, tmp_path: Path):
    """A session that ends because nobody uses it lets go of what it watched."""
    limits = GatewayLimits(session_idle_seconds=0.3, grace_seconds=1)
    async with served(supervisor, tmp_path, limits=limits) as (_, legacy, _, _):
        await subscribe(legacy, "a://1")
        before = supervisor.watched("a")
        await until(lambda: supervisor.watched("a") == {})

    assert before == {"a://1": 1}


async def test_capabilities(supervisor: PuppetSupervisor, tmp_path: Path):
    """Both eras are told that resources can be watched, whatever is connected: a client asks once, servers come and go."""
    async with served(supervisor, tmp_path) as (_, legacy, modern, _):
        initialized = await legacy.http.post("/mcp", json=initialize())
        discovered = await modern.modern({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})

    assert initialized.json()["result"]["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
    assert discovered.json()["result"]["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}


async def test_what_nobody_owns(supervisor: PuppetSupervisor, tmp_path: Path):
    """It is asked of nobody: an error in the era of sessions, left out of what is acknowledged in the newer one."""
    async with served(supervisor, tmp_path) as (_, legacy, modern, tasks):
        answer = await subscribe(legacy, "nobody://x")
        long = await subscribe(legacy, "a://item/" + "x" * 5000)
        stream = await listening(modern, tasks, "nobody://x", "a://item/" + "x" * 5000, toolsListChanged=True)
        watched = supervisor.watched("a") | supervisor.watched("b")

    assert (answer["error"]["code"], answer["error"]["data"]["uri"]) == (-32002, "nobody://x")
    assert (long["error"]["code"], long["error"]["data"]["mcpvisor"]["cause"]) == (-32602, "uri_too_long")
    assert stream.messages[0]["params"]["notifications"] == {"toolsListChanged": True}
    assert watched == {}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_is_starting(tmp_path: Path, era: str):
    """Whoever asks before it is known what a server has waits for that, as for a first list."""
    starting = PuppetConnection("a", is_tried=False)
    supervisor = PuppetSupervisor(starting)
    async with served(supervisor, tmp_path, agreeing="a", first_list_wait=5) as (_, legacy, modern, tasks):
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await subscribe(legacy, "a://1") if era == "legacy" else await listening(modern, tasks, "a://1"))

        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        before = list(answers)
        supervisor.change("a", "resources", {"uri": "a://1", "name": "1"})
        starting.first_try.set()
        await until(lambda: bool(answers))
        watched = supervisor.watched("a")

    assert (before, watched) == ([], {"a://1": 1})


async def test_what_the_server_refuses(supervisor: PuppetSupervisor, tmp_path: Path):
    """Whoever asks is told so, with the reason, and it is not wanted any more; what the server agrees to is none the worse."""
    async with served(supervisor, tmp_path, "a://2") as (_, legacy, modern, tasks):
        answer = await subscribe(legacy, "a://2")
        stream = await listening(modern, tasks, "a://1", "a://2")
        watched = supervisor.watched("a")

    assert answer["error"]["data"]["mcpvisor"] == {"server": "a", "outcome": "rejected", "cause": "not_subscribed"}
    assert answer["error"]["message"] == "a does not tell of this resource: it is refused"
    assert stream.messages[0]["params"]["notifications"] == {"resourceSubscriptions": ["a://1"]}
    assert watched == {"a://1": 1}


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_server_that_is_away(
    supervisor: PuppetSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_silent: bool
):
    """What is asked of it counts as wanted: at once, or when it has not answered for a while; it may have changed by then."""
    monkeypatch.setattr(watching, "WAIT_SECONDS", 0.1)
    async with served(supervisor, tmp_path, agreeing="") as (_, legacy, modern, tasks):
        if is_silent:
            supervisor.subscriptions("a").attach()
        hearing = opened(legacy, tasks)
        answer = await subscribe(legacy, "a://1")
        stream = await listening(modern, tasks, "a://1")
        tasks.start_soon(supervisor.agree, "a")
        await until(lambda: hearing.updated == stream.updated == ["a://1"])

    assert answer["result"] == {}
    assert stream.messages[0]["params"]["notifications"] == {"resourceSubscriptions": ["a://1"]}


async def test_a_server_that_refuses_later(supervisor: PuppetSupervisor, tmp_path: Path):
    """What was agreed to while it was away stays wanted for the client, and shows as failed with the reason."""
    async with served(supervisor, tmp_path, agreeing="") as (_, legacy, _, tasks):
        answer = await subscribe(legacy, "a://1")
        tasks.start_soon(supervisor.agree, "a", "a://1")
        table = supervisor.subscriptions("a")
        await until(lambda: table.lacking() != "")
        (status,) = table.statuses()
        again = await subscribe(legacy, "a://1")

    assert (answer["result"], again["result"]) == ({}, {})
    assert (status.state.value, status.reason) == ("failed", "it is refused")
    assert [holder.split()[0] for holder in status.holders] == ["session"]
    assert status.holders[0].endswith(" of anonymous")


async def test_each_reason_is_one_update(supervisor: PuppetSupervisor, tmp_path: Path):
    """A change, one found by reading and one that may have been missed are each told once, on either kind of stream."""
    async with served(supervisor, tmp_path) as (_, legacy, modern, tasks):
        hearing = opened(legacy, tasks)
        await subscribe(legacy, "a://1")
        stream = await listening(modern, tasks, "a://1")
        for number, reason in enumerate(("notified", "polled", "resync"), 1):
            supervisor.bus.emit(ResourceUpdated(at=9e9, server="a", uri="a://1", reason=reason))  # type: ignore[arg-type]
            await until(lambda number=number: len(hearing.updated) == len(stream.updated) == number)  # type: ignore[misc]

    assert hearing.updated == stream.updated == ["a://1"] * 3


async def test_anothers_uri(supervisor: PuppetSupervisor, tmp_path: Path):
    """Of a URI that two servers have the owner alone is listened to; the other one is where it stands alone."""
    async with served(supervisor, tmp_path) as (one, legacy, modern, tasks), Wire(one.addresses[0]) as alone:
        await alone.open("/mcp/b")
        joint, single = opened(legacy, tasks), opened(alone, tasks, "/mcp/b")
        stream = await listening(modern, tasks, "shared://x")
        await subscribe(legacy, "shared://x")
        await subscribe(alone, "shared://x", path="/mcp/b")
        supervisor.subscriptions("b").updated("shared://x")
        await until(lambda: single.updated == ["shared://x"])
        supervisor.subscriptions("a").updated("shared://x")
        await until(lambda: joint.updated == stream.updated == ["shared://x"])
        watched = supervisor.watched("a"), supervisor.watched("b")

    assert watched == ({"shared://x": 2}, {"shared://x": 1})
    assert single.updated == ["shared://x"]


async def test_owners_that_change(supervisor: PuppetSupervisor, tmp_path: Path):
    """What is watched follows its URI to the next owner, which may have something else there, and waits while there is none."""
    async with served(supervisor, tmp_path) as (_, legacy, _, tasks):
        hearing = opened(legacy, tasks)
        await subscribe(legacy, "shared://x")
        supervisor.change("a", "resources", {"uri": "a://1", "name": "1"})
        await until(lambda: hearing.updated == ["shared://x"])
        moved = supervisor.watched("a"), supervisor.watched("b")
        supervisor.change("b", "resources")
        await until(lambda: supervisor.watched("b") == {})
        supervisor.change("a", "resources", *offer("a").resources)
        await until(lambda: hearing.updated == ["shared://x"] * 2)
        back = supervisor.watched("a")

    assert (moved, back) == (({}, {"shared://x": 1}), {"shared://x": 1})


async def test_a_server_that_is_replaced_under_its_name(supervisor: PuppetSupervisor, tmp_path: Path):
    """What was wanted of a server that was removed is wanted of the next one of its name, though it offers the very same."""
    async with served(supervisor, tmp_path, agreeing="b") as (_, legacy, _, tasks):
        await subscribe(legacy, "a://1")
        supervisor.remove("a")
        supervisor.add(PuppetConnection("a", offer("a")))
        await until(lambda: supervisor.watched("a") == {"a://1": 1})
        hearing = opened(legacy, tasks)
        tasks.start_soon(supervisor.agree, "a")
        await until(lambda: hearing.updated == ["a://1"])

    assert hearing.messages[0]["method"] != ACKNOWLEDGED


async def test_the_endpoint_of_a_removed_server(supervisor: PuppetSupervisor, tmp_path: Path):
    """Its sessions and streams end, and the latter in good order."""
    async with served(supervisor, tmp_path) as (one, _, modern, tasks), Wire(one.addresses[0]) as alone:
        await alone.open("/mcp/b")
        await subscribe(alone, "b://1", path="/mcp/b")
        stream = await listening(modern, tasks, "b://1", path="/mcp/b")
        supervisor.remove("b")
        await until(lambda: stream.has_ended)
        answer = await alone.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, path="/mcp/b")

    assert stream.messages[-1]["result"] == {"resultType": "complete", "_meta": {SUBSCRIPTION: "s1"}}
    assert answer.status_code == 404


async def test_a_client_that_does_not_listen(supervisor: PuppetSupervisor, tmp_path: Path):
    """However often what it watches has changed, it is told once when it listens; and not of what it watches no more."""
    async with served(supervisor, tmp_path) as (_, legacy, modern, tasks):
        stream = await listening(modern, tasks, "a://2")
        for uri in ("a://1", "a://2"):
            await subscribe(legacy, uri)
        for _ in range(50):
            for uri in ("a://1", "a://2"):
                supervisor.bus.emit(ResourceUpdated(at=0.0, server="a", uri=uri, reason="notified"))
        await until(lambda: stream.updated[-1:] == ["a://2"])
        await subscribe(legacy, "a://2", way="unsubscribe")
        hearing = opened(legacy, tasks)
        await until(lambda: hearing.updated != [])
        supervisor.subscriptions("a").updated("a://1")
        await until(lambda: len(hearing.updated) == 2)

    assert hearing.updated == ["a://1", "a://1"]


async def test_a_stream_that_is_not_read(supervisor: PuppetSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It holds up nobody, and is given up after a while, with what it held."""
    monkeypatch.setattr(streams, "WRITE_SECONDS", 0.3)
    stuck = anyio.Event()

    async def notify(ctx: Any, method: str, params: dict[str, Any]) -> None:
        if ctx.request_id == "stuck" and method == UPDATED:
            stuck.set()
            await anyio.sleep_forever()
        await notify_within(ctx, method, params)

    notify_within = streams.notify_within
    monkeypatch.setattr(streams, "notify_within", notify)
    async with served(supervisor, tmp_path) as (one, _, modern, tasks), Wire(one.addresses[0]) as other:
        unread = await listening(modern, tasks, "a://1", request="stuck")
        stream = await listening(other, tasks, "a://1")
        supervisor.subscriptions("a").updated("a://1")
        await until(lambda: stream.updated == ["a://1"])
        await stuck.wait()
        held = supervisor.watched("a")
        await until(lambda: supervisor.watched("a") == {"a://1": 1})
        await until(lambda: unread.has_ended)

    assert held == {"a://1": 2}
    assert unread.messages[-1]["result"]["_meta"] == {SUBSCRIPTION: "stuck"}


@pytest.mark.parametrize("limit", ["subscriptions_per_client", "subscriptions_per_principal", "subscriptions"])
async def test_limits(supervisor: PuppetSupervisor, tmp_path: Path, limit: str):
    """At each limit one more is refused in one way in both eras, and counted; what is let go of makes room."""
    counted = Counted()
    limits = replace(GatewayLimits(grace_seconds=1), **{limit: 2})
    async with served(supervisor, tmp_path, limits=limits, observer=counted) as (_, legacy, modern, tasks):
        for uri in ("a://1", "a://2"):
            await subscribe(legacy, uri)
        again = await subscribe(legacy, "a://2")
        over = await subscribe(legacy, "b://1")
        stream = await listening(modern, tasks, "a://1", "b://1", "b://2")
        refusals = list(counted.refusals)
        await subscribe(legacy, "a://1", way="unsubscribe")
        after = await subscribe(legacy, "b://1")
        watched = supervisor.watched("a"), supervisor.watched("b")
    refused = await _error_of(stream, over)

    assert (again["result"], after["result"]) == ({}, {})
    assert {one["data"]["mcpvisor"]["cause"] for one in refused} == {"too_many_subscriptions"}
    assert {one["code"] for one in refused} == {-32602}
    assert refusals == [("client", "rate")] * 2
    assert watched == ({"a://2": 1}, {"b://1": 1})


async def test_more_than_one_client_may_watch(supervisor: PuppetSupervisor, tmp_path: Path):
    """A stream that asks for more than one may watch is refused for their number alone: nobody looks whose they are."""
    limits = replace(GatewayLimits(grace_seconds=1), subscriptions_per_client=2)
    async with served(supervisor, tmp_path, limits=limits) as (_, _, modern, tasks):
        over = await listening(modern, tasks, *(f"nobodys://{number}" for number in range(3)))
        within = await listening(modern, tasks, "nobodys://1", "nobodys://2", "nobodys://2", "a://" + "x" * 5000)

    assert over.messages == []
    assert within.messages[0]["params"]["notifications"] == {}


async def test_looking_for_owners_leaves_room_for_others():
    """However long it takes to say whose many URIs are, and however many ask, every turn of the loop looks for one slice."""
    turns = seen = 0
    most_in_a_turn = 0

    class Slow:
        def owner_of(self, view: str | None, uri: str) -> str | None:
            nonlocal seen
            seen += 1
            until = time.perf_counter() + 2 * owners.SLICE
            while time.perf_counter() < until:
                pass
            return "a" if uri != "nobodys" else None

    finding = owners.Owners(cast("Catalogs", Slow()))
    found: list[dict[str, str]] = []

    async def look() -> None:
        found.append(await finding.of(None, ["1", "nobodys", "2"]))

    async def count_turns() -> None:
        nonlocal turns, most_in_a_turn, seen
        while len(found) < 4:
            before = seen
            await anyio.lowlevel.checkpoint()
            most_in_a_turn = max(most_in_a_turn, seen - before)
            turns += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(look)
        tasks.start_soon(count_turns)

    assert found == [{"1": "a", "2": "a"}] * 4
    assert (seen, most_in_a_turn) == (12, 1)


async def _error_of(stream: Hearing, answer: dict[str, Any]) -> list[dict[str, Any]]:
    assert stream.messages == []
    return [answer["error"]]


@pytest.mark.parametrize("limit", ["listen_streams", "listen_streams_per_principal"])
async def test_limits_of_streams(supervisor: PuppetSupervisor, tmp_path: Path, limit: str):
    """One more stream is refused before it is acknowledged; the end of one makes room."""
    limits = replace(GatewayLimits(grace_seconds=1), **{limit: 1})
    message = {"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen", "params": {"notifications": {}}}
    async with served(supervisor, tmp_path, limits=limits) as (_, _, modern, tasks):
        first = await listening(modern, tasks, toolsListChanged=True)
        refused = await modern.modern(message)
        first.scope.cancel()
        answers: list[Hearing] = []
        with anyio.fail_after(20):
            while not answers or not answers[-1].messages:
                answers.append(await listening(modern, tasks, toolsListChanged=True))

    assert refused.json()["error"]["data"]["mcpvisor"]["cause"] == "too_many_streams"
    assert first.messages[0]["params"]["notifications"] == {"toolsListChanged": True}


async def test_updates_that_were_lost(supervisor: PuppetSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where events are lost for want of room each client is told that what it watches may have changed."""
    monkeypatch.setattr(updates, "QUEUE", 10)
    async with served(supervisor, tmp_path) as (_, legacy, _, tasks):
        hearing = opened(legacy, tasks)
        for uri in ("a://1", "a://2"):
            await subscribe(legacy, uri)
        for number in range(20):
            supervisor.bus.emit(ResourceUpdated(at=0.0, server="a", uri=f"other://{number}", reason="notified"))
        await until(lambda: sorted(hearing.updated) == ["a://1", "a://2"])

    assert supervisor.watched("a") == {}


async def test_a_request_that_is_withdrawn(supervisor: PuppetSupervisor, tmp_path: Path):
    """A stream whose client goes before it is acknowledged leaves nothing behind."""
    async with served(supervisor, tmp_path, agreeing="") as (_, _, modern, tasks):
        supervisor.subscriptions("a").attach()
        tasks.start_soon(listening, modern, tasks, "a://1")
        await until(lambda: supervisor.watched("a") == {"a://1": 1})
        await modern.http.aclose()
        await until(lambda: supervisor.watched("a") == {})
        tasks.cancel_scope.cancel()

    assert supervisor.watched("a") == {}


async def test_across_a_restart(supervisor: PuppetSupervisor, tmp_path: Path):
    """What a session watches outlives the daemon: it is wanted while the session sleeps, and may have changed when it wakes."""
    keeper = MemoryKeeper()
    async with served(supervisor, tmp_path, keeper=keeper) as (_, legacy, _, _):
        for uri in ("a://1", "b://1", "b://2"):
            await subscribe(legacy, uri)
        await subscribe(legacy, "b://2", way="unsubscribe")
    closed = supervisor.watched("a") | supervisor.watched("b")
    async with served(supervisor, tmp_path, keeper=keeper) as (one, _, _, tasks), Wire(one.addresses[0]) as woken:
        await until(lambda: (supervisor.watched("a"), supervisor.watched("b")) == ({"a://1": 1}, {"b://1": 1}))
        supervisor.subscriptions("a").updated("a://1")
        woken.session = legacy.session
        hearing = opened(woken, tasks)
        await until(lambda: sorted(hearing.updated) == ["a://1", "b://1"])
        supervisor.subscriptions("b").updated("b://1")
        await until(lambda: len(hearing.updated) == 3)
        still = supervisor.watched("a"), supervisor.watched("b")
        await subscribe(woken, "a://1", way="unsubscribe")
        kept = [session.watched for session in keeper.sessions() if session.watched]

    assert (closed, still, kept) == ({}, ({"a://1": 1}, {"b://1": 1}), [("b://1",)])
    assert hearing.updated[2] == "b://1"


async def test_sessions_that_never_wake(supervisor: PuppetSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a session watched is let go of when it has slept for too long."""
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 0.05)
    keeper = MemoryKeeper()
    async with served(supervisor, tmp_path, keeper=keeper) as (_, legacy, _, _):
        await subscribe(legacy, "a://1")
    limits = GatewayLimits(session_idle_seconds=0.5, grace_seconds=1)
    async with gateway(supervisor, tmp_path, keeper=keeper, limits=limits):
        await until(lambda: supervisor.watched("a") == {"a://1": 1})
        await until(lambda: supervisor.watched("a") == {})

    assert keeper.sessions() == []


async def test_a_stream_that_breaks_before_it_is_read(supervisor: PuppetSupervisor, tmp_path: Path):
    """What its client never got of it comes on the next one: changes of lists and resources, each once."""
    async with served(supervisor, tmp_path) as (one, legacy, _, tasks):
        for uri in ("a://1", "a://2"):
            await subscribe(legacy, uri)
        session = next(each for each in one._sessions.all() if each.id == legacy.session)
        url = urlsplit(one.addresses[0])
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect((url.hostname, url.port))
            head = (
                "GET /mcp HTTP/1.1",
                f"Host: {url.netloc}",
                "Accept: text/event-stream",
                f"Mcp-Session-Id: {legacy.session}",
            )
            unread.sendall("\r\n".join([*head, "", ""]).encode())
            await until(lambda: GET_STREAM_KEY in session.transport._request_streams)
            waiting = session.transport._request_streams[GET_STREAM_KEY][1].statistics
            while waiting().current_buffer_used < 2:  # until the client's side is full, and nothing goes out any more
                session.outbox.log("notifications/message", {"level": "error", "data": "x" * 200_000})
                await anyio.wait_all_tasks_blocked()
            supervisor.subscriptions("a").updated("a://1")
            supervisor.change("a", "tools", tool("new"))
            await until(lambda: waiting().current_buffer_used >= 4)
        await until(lambda: GET_STREAM_KEY not in session.transport._request_streams)
        hearing = opened(legacy, tasks)
        await until(lambda: bool(hearing.updated))
        supervisor.subscriptions("a").updated("a://2")
        await until(lambda: len(hearing.updated) == 2)
    told = [message["method"] for message in hearing.messages if message["method"] != "notifications/message"]

    assert sorted(told) == sorted([UPDATED, UPDATED, "notifications/tools/list_changed"])
    assert hearing.updated == ["a://1", "a://2"]


async def test_a_session_that_has_ended_watches_nothing(supervisor: PuppetSupervisor, tmp_path: Path):
    """A request that is under way when its session ends leaves nothing behind."""
    async with served(supervisor, tmp_path, agreeing="") as (one, legacy, _, tasks):
        supervisor.subscriptions("a").attach()
        watcher = one._sessions.all()[0].watcher
        tasks.start_soon(subscribe, legacy, "a://1")
        await until(lambda: supervisor.watched("a") == {"a://1": 1})
        await legacy.delete()
        await until(lambda: supervisor.watched("a") == {})
        with pytest.raises(RequestFailed) as caught:
            await one._watching.watch(watcher, {"a://2": "a"})

    assert (caught.value.cause, supervisor.watched("a")) == ("session_ended", {})


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_clients_of_the_sdk(supervisor: PuppetSupervisor, tmp_path: Path, era: str):
    """They find what they expect: an answer, an acknowledgement that names what is honoured, updates, an end in good order."""
    seen: list[str] = []

    async def on_message(message: Any) -> None:
        if message.method == UPDATED:
            seen.append(str(message.params.uri))

    async with (
        served(supervisor, tmp_path) as (one, _, _, _),
        Client(f"{one.addresses[0]}/mcp", mode=era, message_handler=on_message) as client,
    ):
        if era == "legacy":
            await client.subscribe_resource("MiXeD://Case/")
            supervisor.subscriptions("a").updated("MiXeD://Case/")
            await until(lambda: seen == ["MiXeD://Case/"])
            await client.unsubscribe_resource("MiXeD://Case/")
        else:
            async with client.listen(resource_subscriptions=["MiXeD://Case/", "nobody://x"]) as stream:
                supervisor.subscriptions("a").updated("MiXeD://Case/")
                with anyio.fail_after(20):
                    assert (await anext(aiter(stream))).uri == "MiXeD://Case/"
                assert stream.honored.resource_subscriptions == ["MiXeD://Case/"]
        await until(lambda: supervisor.watched("a") == {})

    assert seen == ["MiXeD://Case/"]

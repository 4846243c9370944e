"""A gateway that is started again: clients go on in their sessions, with what was known last, and nobody else does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.daemon.gateway.puppet import Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, call, events, initialize
from tests.waiting import until

from mcpvisor.daemon.gateway import sessions
from mcpvisor.daemon.gateway.book import hash_of
from mcpvisor.daemon.gateway.keeper import MemoryKeeper
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.supervisor.offer import Offer

pytestmark = pytest.mark.anyio

CHANGED = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


def servers() -> PuppetSupervisor:
    return PuppetSupervisor(
        PuppetConnection("a", Offer(tools=(tool("echo"),))), PuppetConnection("b", Offer(tools=(tool("echo"),)))
    )


@pytest.fixture
def keeper() -> MemoryKeeper:
    """What outlives the gateways of a test."""
    return MemoryKeeper()


async def opened(keeper: MemoryKeeper, state: Path, path: str = "/mcp", **capabilities: Any) -> str:
    """The id of a session that was opened at a gateway which is closed since."""
    async with gateway(servers(), state, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        message = initialize()
        message["params"]["capabilities"] = capabilities
        answer = await client.http.post(path, json=message)
        assert answer.status_code == 200
        return str(answer.headers["mcp-session-id"])


def on_with(client: Wire, session: str) -> Wire:
    client.session = session
    return client


async def test_a_session_goes_on(keeper: MemoryKeeper, tmp_path: Path):
    """Its id is good in the next run: the client need not initialise, and what it can is known."""
    session = await opened(keeper, tmp_path, roots={"listChanged": True})
    supervisor, counted = servers(), Counted()
    async with gateway(supervisor, tmp_path, keeper=keeper, observer=counted) as served, Wire(served.addresses[0]) as client:
        on_with(client, session)
        version = {"mcp-protocol-version": "2025-11-25"}
        answer = await client.post(call("a__echo"), headers=version)
        listed = await client.post({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}, headers=version)
        open_then = served.sessions
    (made,) = supervisor.connection("a").calls

    assert answer.json()["result"]["content"][0]["text"] == "a:echo"
    assert [one["name"] for one in listed.json()["result"]["tools"]] == ["a__echo", "b__echo"]
    assert (open_then, counted.opened, made.principal.session) == (1, ["legacy"], session)


async def test_many_requests_wake_it_once(keeper: MemoryKeeper, tmp_path: Path):
    """Requests that come at one time under one known id open one session, and all of them are answered."""
    session = await opened(keeper, tmp_path)
    counted = Counted()
    async with gateway(servers(), tmp_path, keeper=keeper, observer=counted) as served, Wire(served.addresses[0]) as client:
        on_with(client, session)
        statuses: list[int] = []

        async def ask(number: int) -> None:
            statuses.append((await client.post(call("a__echo", request_id=number))).status_code)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, number)
        open_then = served.sessions

    assert (statuses, open_then, counted.opened) == ([200] * 20, 1, ["legacy"])


async def test_nobody_else_goes_on_in_it(keeper: MemoryKeeper, tmp_path: Path):
    """To another principal, and on another endpoint, an id of a former run is word for word what an unknown one is."""
    listen = ("127.0.0.1:0", f"unix:{tmp_path}/gw.sock")
    async with gateway(servers(), tmp_path, keeper=keeper, auth="auto", listen=listen) as served:  # noqa: SIM117 # reads better
        async with Wire(served.addresses[1]) as owner:
            await owner.open()
            session = owner.session or ""
    async with gateway(servers(), tmp_path, keeper=keeper, auth="auto", listen=listen) as served:  # noqa: SIM117 # reads better
        async with Wire(served.addresses[1]) as owner, Wire(served.addresses[0], served.token) as other:
            answers = []
            for presented in (session, "unknown"):
                on_with(other, presented)
                answers.append(
                    [
                        await other.post(call("a__echo")),
                        await other.post(initialize()),
                        await other.http.get("/mcp", headers={"mcp-session-id": presented}),
                        await other.delete(),
                        await on_with(owner, presented).post(call("echo"), path="/mcp/a"),
                    ]
                )
            still = await on_with(owner, session).post(call("a__echo"))
    told = [[(answer.status_code, answer.content, dict(answer.headers)) for answer in some] for some in answers]

    assert told[0] == told[1]
    assert {status for status, _, _ in told[0]} == {404}
    assert still.status_code == 200


async def test_it_is_told_to_look_again(keeper: MemoryKeeper, tmp_path: Path):
    """Its stream can be opened anew, and says once that each list may differ: what the client has missed nobody knows."""
    session = await opened(keeper, tmp_path)
    supervisor = servers()
    async with (
        gateway(supervisor, tmp_path, keeper=keeper) as served,
        Wire(served.addresses[0]) as client,
        client.http.stream("GET", "/mcp", headers={"mcp-session-id": session}) as stream,
    ):
        chunks = stream.aiter_text()
        text = ""
        with anyio.fail_after(20):
            while len(events(text)) < 3:
                text += await anext(chunks)
            supervisor.change("a", "tools", tool("other"))
            while len(events(text)) < 4:
                text += await anext(chunks)

    assert [one["method"] for one in events(text)] == [*CHANGED, CHANGED[0]]


async def test_what_ends_a_session_for_good(keeper: MemoryKeeper, tmp_path: Path):
    """DELETE, being idle for too long and the removal of its server do; the end of the gateway does not."""
    supervisor = servers()
    limits = GatewayLimits(session_idle_seconds=0.3, grace_seconds=1)
    async with gateway(supervisor, tmp_path, keeper=keeper, limits=limits) as served:  # noqa: SIM117 # reads better
        async with Wire(served.addresses[0]) as idle:
            await idle.open()
            await until(lambda: keeper.sessions() == [])
    async with gateway(supervisor, tmp_path, keeper=keeper) as served:  # noqa: SIM117 # reads better
        async with (
            Wire(served.addresses[0]) as deleted,
            Wire(served.addresses[0]) as removed,
            Wire(served.addresses[0]) as kept,
        ):
            await deleted.open()
            await removed.open("/mcp/b")
            await kept.open()
            await deleted.delete()
            supervisor.remove("b")
            await until(lambda: served.sessions == 1)

    assert [one.id_hash for one in keeper.sessions()] == [hash_of(kept.session or "")]


async def test_uses_are_written(keeper: MemoryKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """While a session is in use, by an open stream too, that is written again and again; of an idle one nothing is."""
    monkeypatch.setattr(sessions, "WRITE_SECONDS", 0.01)
    async with (
        gateway(servers(), tmp_path, keeper=keeper) as served,
        Wire(served.addresses[0]) as idle,
        Wire(served.addresses[0]) as listening,
    ):
        await idle.open()
        await listening.open()
        written = {one.id_hash: one.used_at for one in keeper.sessions()}
        async with listening.http.stream("GET", "/mcp", headers={"mcp-session-id": listening.session or ""}):
            await until(lambda: used_at(keeper, listening) > written[hash_of(listening.session or "")])
            again = used_at(keeper, listening)
            of_idle = used_at(keeper, idle)
            await until(lambda: used_at(keeper, listening) > again)
            still = used_at(keeper, idle)

    assert of_idle == still


def used_at(keeper: MemoryKeeper, client: Wire) -> float:
    """When the client's session was used last, as it is kept."""
    return next(one.used_at for one in keeper.sessions() if one.id_hash == hash_of(client.session or ""))


async def test_servers_that_end_with_the_daemon(keeper: MemoryKeeper, tmp_path: Path):
    """A session on the endpoint of one server outlives the daemon, whose end removes every server."""
    supervisor = servers()
    async with gateway(supervisor, tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        await client.open("/mcp/b")
        await served.drain()
        supervisor.remove("b")
        await until(lambda: served.sessions == 0)
    async with gateway(servers(), tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as again:
        answer = await on_with(again, client.session or "").post(call("echo"), path="/mcp/b")

    assert answer.status_code == 200


async def test_a_server_that_is_removed_before_its_session_wakes(keeper: MemoryKeeper, tmp_path: Path):
    """Should a server of that name come back, the session on the former one's endpoint is not its."""
    session = await opened(keeper, tmp_path, "/mcp/b")
    supervisor = servers()
    async with gateway(supervisor, tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        supervisor.remove("b")
        await until(lambda: keeper.sessions() == [])
        supervisor.add(PuppetConnection("b", Offer(tools=(tool("echo"),))))
        answer = await on_with(client, session).post(call("echo"), path="/mcp/b")

    assert answer.status_code == 404


async def test_delete_of_a_sleeping_session(keeper: MemoryKeeper, tmp_path: Path):
    """A client may end a session of the former run; then its id is unknown."""
    session = await opened(keeper, tmp_path)
    async with gateway(servers(), tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        statuses = [(await on_with(client, session).delete()).status_code for _ in range(2)]

    assert (statuses, keeper.sessions()) == ([200, 404], [])


async def test_sleepers_count(keeper: MemoryKeeper, tmp_path: Path):
    """Sessions of former runs count against the limits, and make room for new ones before any other does."""
    limits = GatewayLimits(sessions_per_principal=3, grace_seconds=1)
    first, second = [await opened(keeper, tmp_path) for _ in range(2)]
    counted = Counted()
    async with gateway(servers(), tmp_path, keeper=keeper, limits=limits, observer=counted) as served:  # noqa: SIM117 # reads better
        async with Wire(served.addresses[0]) as one, Wire(served.addresses[0]) as two, Wire(served.addresses[0]) as old:
            await one.open()
            await two.open()
            gone = await on_with(old, first).post(call("a__echo"))
            there = await on_with(old, second).post(call("a__echo"))
            others = [(await client.post(call("a__echo"))).status_code for client in (one, two)]
            open_then = served.sessions

    assert (gone.status_code, there.status_code, others, open_then) == (404, 200, [200, 200], 3)


async def test_sessions_that_cannot_be_read(keeper: MemoryKeeper, tmp_path: Path):
    """What a daemon of another version has kept, and this one cannot go on with, is an unknown id."""
    versions, nonsense = [await opened(keeper, tmp_path) for _ in range(2)]
    for session, spoiled in ((versions, {"protocolVersion": "2099-01-01"}), (nonsense, {"capabilities": 7})):
        (kept,) = [one for one in keeper.sessions() if one.id_hash == hash_of(session)]
        keeper.keep_session(replace(kept, opened_with={**kept.opened_with, **spoiled}))
    async with gateway(servers(), tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        statuses = [(await on_with(client, session).post(call("a__echo"))).status_code for session in (versions, nonsense)]

    assert (statuses, keeper.sessions()) == ([404, 404], [])


async def test_the_last_known_catalog(tmp_path: Path):
    """A first list waits for no server of which it is known what it offers: that is shown at once, marked stale."""
    known = PuppetConnection("a", Offer(tools=(tool("echo"),)), is_tried=False)
    known.stale = True
    async with gateway(PuppetSupervisor(known), tmp_path, first_list_wait=60) as served:  # noqa: SIM117 # reads better
        async with Wire(served.addresses[0]) as legacy:
            await legacy.open()
            with anyio.fail_after(20):
                answers = [
                    await legacy.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
                    await legacy.modern({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
                ]

    shown = {**tool("echo"), "name": "a__echo", "_meta": {"mcpvisor/stale": True}}
    assert [answer.json()["result"]["tools"] for answer in answers] == [[shown], [shown]]


async def test_servers_that_come_back(tmp_path: Path):
    """Clients are told once of each real difference to what was known last, and of none where there is none."""
    same, other = (PuppetConnection(name, Offer(tools=(tool("echo"),)), is_tried=False) for name in "ab")
    supervisor = PuppetSupervisor(same, other)
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        await client.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        async with client.http.stream("GET", "/mcp", headers={"mcp-session-id": client.session or ""}) as stream:
            supervisor.change("a", "tools", tool("echo"))
            supervisor.change("b", "tools", tool("echo"), tool("new"))
            chunks = stream.aiter_text()
            text = ""
            with anyio.fail_after(20):
                while not events(text):
                    text += await anext(chunks)
                supervisor.change("b", "resources", {"uri": "b://x", "name": "x"})  # a mark: nothing came before it
                while len(events(text)) < 2:
                    text += await anext(chunks)

    assert [one["method"] for one in events(text)] == [CHANGED[0], CHANGED[2]]


async def test_requests_before_the_configuration_is_applied(keeper: MemoryKeeper, tmp_path: Path):
    """They wait for it, in a session of the former run too; probes are answered, and what servers then offer is no news."""
    session = await opened(keeper, tmp_path, "/mcp/a")
    supervisor, applied = PuppetSupervisor(), anyio.Event()
    answers: list[Any] = []
    async with gateway(supervisor, tmp_path, keeper=keeper, applied=applied) as served, Wire(served.addresses[0]) as client:

        async def ask(path: str, name: str) -> None:
            answers.append((await client.post(call(name), path=path, headers={"mcp-session-id": session})).status_code)

        async def ask_modern() -> None:
            answers.append((await client.modern(call("a__echo"))).status_code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "/mcp/a", "echo")
            tasks.start_soon(ask_modern)
            probe = await client.http.get("/livez")
            before = list(answers)
            supervisor.add(PuppetConnection("a", Offer(tools=(tool("echo"),))))
            applied.set()
        async with client.http.stream("GET", "/mcp/a", headers={"mcp-session-id": session}) as stream:
            chunks = stream.aiter_text()
            text = ""
            with anyio.fail_after(20):
                while len(events(text)) < 3:
                    text += await anext(chunks)
                supervisor.change("a", "prompts", {"name": "greet"})
                while len(events(text)) < 4:
                    text += await anext(chunks)

    assert (probe.status_code, before, answers) == (200, [], [200, 200])
    assert [one["method"] for one in events(text)] == [*CHANGED, CHANGED[1]]

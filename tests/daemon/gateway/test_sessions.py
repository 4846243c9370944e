"""Sessions belong to their principal; to everybody else they do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.daemon.gateway.puppet import Call, Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, call, events, initialize
from tests.waiting import until

from mcpvisor.daemon.gateway import session_transport
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.supervisor.offer import Offer

CLOSED = {"mcpvisor": {"outcome": "maybe_executed", "cause": "gateway_closed"}}

pytestmark = pytest.mark.anyio


@pytest.fixture
def supervisor() -> PuppetSupervisor:
    return PuppetSupervisor(
        PuppetConnection("a", Offer(tools=(tool("echo"),))), PuppetConnection("b", Offer(tools=(tool("echo"),)))
    )


async def hang(call: Call) -> dict[str, Any]:
    await anyio.sleep_forever()
    raise AssertionError


def answer_of(response: Any) -> tuple[int, bytes, dict[str, str]]:
    return response.status_code, response.content, dict(response.headers)


async def test_anothers_session(supervisor: PuppetSupervisor, tmp_path: Path):
    """The id of another principal's session gets, for every verb, exactly what an unknown id gets."""
    path = tmp_path / "gw.sock"
    listen = ("127.0.0.1:0", f"unix:{path}")
    async with gateway(supervisor, tmp_path, auth="auto", listen=listen) as served:  # noqa: SIM117 # two lines read better
        async with Wire(served.addresses[1]) as owner, Wire(served.addresses[0], served.token) as other:
            await owner.open()
            answers = []
            for presented in (owner.session, "unknown"):
                other.session = presented
                answers.append(
                    [
                        answer_of(await other.post(call("a__echo"))),
                        answer_of(await other.post(initialize())),
                        answer_of(await other.post({"jsonrpc": "2.0", "method": "notifications/cancelled"})),
                        answer_of(await other.http.get("/mcp", headers={"mcp-session-id": presented or ""})),
                        answer_of(await other.delete()),
                    ]
                )
            still = await owner.post(call("a__echo"))

    assert answers[0] == answers[1]
    assert {status for status, _, _ in answers[0]} == {404}
    assert still.status_code == 200
    assert len(supervisor.connection("a").calls) == 1


async def test_a_session_is_of_its_endpoint(supervisor: PuppetSupervisor, tmp_path: Path):
    """A session that was opened on one endpoint does not exist on another."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open("/mcp/a")
        there = await client.post(call("echo"), path="/mcp/a")
        elsewhere = await client.post(call("echo"), path="/mcp/b")

    assert (there.status_code, elsewhere.status_code) == (200, 404)


async def test_anothers_cancellation(supervisor: PuppetSupervisor, tmp_path: Path):
    """Equal request ids and progress tokens of two sessions have nothing to do with each other."""
    door = supervisor.connection("a")
    door.answer = hang
    async with gateway(supervisor, tmp_path) as served:  # noqa: SIM117 # two lines read better
        async with Wire(served.addresses[0]) as victim, Wire(served.addresses[0]) as attacker:
            await victim.open()
            await attacker.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(victim.post, call("a__echo", request_id=7, _meta={"progressToken": "t"}))
                await until(door.called.is_set)
                for target in (7, 8):
                    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": target}}
                    assert (await attacker.post(cancel)).status_code == 202
                progress = {"progressToken": "t", "progress": 1}
                await attacker.post({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
                assert (await attacker.post({"jsonrpc": "2.0", "id": 7, "result": {}})).status_code == 202
                assert (await attacker.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})).status_code == 200
                assert not door.cancelled.is_set()
                mine = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
                await victim.post(mine)
                with anyio.fail_after(20):
                    await door.cancelled.wait()


async def test_an_id_in_use(supervisor: PuppetSupervisor, tmp_path: Path):
    """A second request under an id that is in flight is refused, and the first is not lost."""
    door = supervisor.connection("a")
    release = anyio.Event()
    answers: list[Any] = []

    async def answer(call: Call) -> dict[str, Any]:
        await release.wait()
        return {"content": []}

    door.answer = answer
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()

        async def first() -> None:
            answers.append(await client.post(call("a__echo", request_id=7)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await until(door.called.is_set)
            second = await client.post(call("a__echo", request_id="7"))
            release.set()

    assert second.status_code == 400
    assert answers[0].json()["result"] == {"content": []}


async def test_delete(supervisor: PuppetSupervisor, tmp_path: Path):
    """DELETE ends a session: what is in flight is cancelled and answered, its id is unknown from then on."""
    door = supervisor.connection("a")
    door.answer = hang
    counted = Counted()
    answers: list[Any] = []
    async with gateway(supervisor, tmp_path, observer=counted) as served, Wire(served.addresses[0]) as client:
        await client.open()
        assert served.sessions == 1

        async def ask() -> None:
            answers.append(await client.post(call("a__echo")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(door.called.is_set)
            deleted = await client.delete()
        with anyio.fail_after(20):
            await door.cancelled.wait()
        after = await client.post(call("a__echo"))
        await until(lambda: served.sessions == 0)

    assert deleted.status_code == 200
    assert answers[0].json()["error"]["code"] == -32000
    assert after.status_code == 404
    assert (counted.opened, counted.closed) == (["legacy"], ["legacy"])


async def test_caps(supervisor: PuppetSupervisor, tmp_path: Path):
    """A principal has a bounded number of sessions: over it the one that was left behind for longest makes room."""
    limits = GatewayLimits(sessions_per_principal=2, grace_seconds=1)
    async with gateway(supervisor, tmp_path, limits=limits) as served:  # noqa: SIM117 # two lines read better
        async with Wire(served.addresses[0]) as used, Wire(served.addresses[0]) as left, Wire(served.addresses[0]) as new:
            await used.open()
            await left.open()
            await used.post(call("a__echo"))
            await new.open()
            answers = [(await client.post(call("a__echo", request_id=3))).status_code for client in (used, left, new)]
            kept = served.sessions

    assert (answers, kept) == ([200, 404, 200], 2)


async def test_sessions_in_use_are_kept(supervisor: PuppetSupervisor, tmp_path: Path):
    """No session with an open stream or a request in flight makes room: `initialize` is refused until one ends."""
    door = supervisor.connection("a")
    door.answer = hang
    limits = GatewayLimits(sessions_per_principal=2, grace_seconds=0)
    async with gateway(supervisor, tmp_path, limits=limits) as served:  # noqa: SIM117 # two lines read better
        async with (
            Wire(served.addresses[0]) as calling,
            Wire(served.addresses[0]) as listening,
            anyio.create_task_group() as tasks,
        ):
            await calling.open()
            await listening.open()
            tasks.start_soon(calling.post, call("a__echo"))
            await until(door.called.is_set)
            async with listening.http.stream("GET", "/mcp", headers={"mcp-session-id": listening.session or ""}):
                refused = await calling.http.post("/mcp", json=initialize())
            await listening.delete()
            again = await listening.http.post("/mcp", json=initialize())
            tasks.cancel_scope.cancel()

    assert (refused.status_code, again.status_code) == (503, 200)


async def test_idle_sessions_end(supervisor: PuppetSupervisor, tmp_path: Path):
    """A session without a request for the idle limit is gone; one whose client listens is kept."""
    limits = GatewayLimits(session_idle_seconds=1.5, grace_seconds=1)
    async with gateway(supervisor, tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
        await client.open()
        async with client.http.stream("GET", "/mcp", headers={"mcp-session-id": client.session or ""}):
            await anyio.sleep(2.0)  # longer than the limit, in which nothing happens
            listening = served.sessions
        await until(lambda: served.sessions == 0)
        after = await client.post(call("a__echo"))

    assert listening == 1
    assert after.status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "method": "initialize"},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        [initialize()],
        7,
        None,
        {"jsonrpc": "1.0", "id": 1, "method": "initialize"},
    ],
)
async def test_nothing_half_made(supervisor: PuppetSupervisor, tmp_path: Path, body: Any):
    """Whatever is no good `initialize` opens no session."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        answer = await client.post(body)
        await until(lambda: served.sessions == 0)

    assert answer.status_code == 400 or "error" in answer.text


async def test_one_stream_for_each_session(supervisor: PuppetSupervisor, tmp_path: Path):
    """A second GET stream is refused, and one that comes with an event id it cannot resume is opened all the same."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        headers = {"mcp-session-id": client.session or "", "last-event-id": "17"}
        async with client.http.stream("GET", "/mcp", headers=headers) as first:
            second = await client.http.get("/mcp", headers=headers)

    assert first.status_code == 200
    assert second.status_code == 409


async def test_closing(supervisor: PuppetSupervisor, tmp_path: Path):
    """Closing the gateway ends streams in good order, lets requests finish, and takes no longer than its grace."""
    door = supervisor.connection("a")
    release = anyio.Event()
    answers: list[Any] = []

    async def answer(call: Call) -> dict[str, Any]:
        await release.wait()
        return {"content": []}

    door.answer = answer
    async with anyio.create_task_group() as tasks, Wire_of(gateway(supervisor, tmp_path)) as (client, leave):

        async def listen() -> None:
            headers = {"mcp-session-id": client.session or ""}
            async with client.http.stream("GET", "/mcp", headers=headers) as stream:
                async for _ in stream.aiter_bytes():
                    pass
            answers.append("stream ended")

        async def ask() -> None:
            answers.append((await client.post(call("a__echo"))).json()["result"])

        tasks.start_soon(listen)
        tasks.start_soon(ask)
        await until(door.called.is_set)
        tasks.start_soon(leave)
        await until(lambda: "stream ended" in answers)
        release.set()
        await until(lambda: len(answers) == 2)

    assert answers == ["stream ended", {"content": []}]


class Wire_of:  # noqa: N801 # reads as a function
    """A client of a gateway that the test closes while the client is still there."""

    def __init__(self, served: Any) -> None:
        self._served = served
        self._left = anyio.Event()
        self._closed = anyio.Event()

    async def __aenter__(self) -> Any:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        await self._tasks.start(self._serve)
        self._client = Wire(self._served.addresses[0])
        await self._client.open()
        return self._client, self._leave

    async def _serve(self, *, task_status: Any) -> None:
        async with self._served:
            task_status.started()
            await self._left.wait()
        self._closed.set()

    async def _leave(self) -> None:
        self._left.set()

    async def __aexit__(self, *details: object) -> None:
        with anyio.fail_after(20):
            await self._closed.wait()
        await self._client.__aexit__()
        await self._tasks.__aexit__(*details)


async def test_closing_does_not_wait_for_ever(supervisor: PuppetSupervisor, tmp_path: Path):
    """A request that does not end is cancelled and answered once the grace is over."""
    door = supervisor.connection("a")
    door.answer = hang
    limits = GatewayLimits(grace_seconds=0.3)
    async with Wire_of(gateway(supervisor, tmp_path, limits=limits)) as (client, leave):
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def leave_when_called() -> None:
                    await until(door.called.is_set)
                    await leave()

                tasks.start_soon(leave_when_called)
                answer = await client.post(call("a__echo"))

    assert answer.json()["error"]["code"] == -32000
    assert answer.json()["error"]["data"] == CLOSED
    assert door.cancelled.is_set()


async def test_the_last_event_of_a_request_that_is_cut(
    supervisor: PuppetSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where a stream has begun already, its last event says that the request may have been carried out."""
    monkeypatch.setattr(session_transport, "JSON_WITHIN", 0.01)
    supervisor.connection("a").answer = hang
    limits = GatewayLimits(grace_seconds=0)
    async with Wire_of(gateway(supervisor, tmp_path, limits=limits)) as (client, leave):
        body, headers = call("a__echo"), {"mcp-session-id": client.session or ""}
        with anyio.fail_after(20):
            async with (
                client.http.stream("POST", "/mcp", json=body, headers=headers) as answer,
                anyio.create_task_group() as tasks,
            ):
                chunks = answer.aiter_text()
                first = await anext(chunks)
                tasks.start_soon(leave)
                rest = [chunk async for chunk in chunks]

    assert first.startswith(":")
    (last,) = events("".join(rest))
    assert (last["id"], last["error"]["data"]) == (2, CLOSED)


async def test_a_modern_request_that_is_cut(supervisor: PuppetSupervisor, tmp_path: Path):
    """A request of 2026-07-28 that outlives the grace is cancelled, and told that it may have been carried out."""
    door = supervisor.connection("a")
    door.answer = hang
    answers: list[Any] = []
    limits = GatewayLimits(grace_seconds=0)
    async with Wire_of(gateway(supervisor, tmp_path, limits=limits)) as (client, leave):
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def ask(message: dict[str, Any]) -> None:
                    answers.append(await client.modern(message))

                tasks.start_soon(ask, call("a__echo"))
                await until(door.called.is_set)
                await leave()

    assert (answers[0].json()["id"], answers[0].json()["error"]["data"]) == (2, CLOSED)
    assert door.cancelled.is_set()


async def test_a_cancelled_gateway(supervisor: PuppetSupervisor, tmp_path: Path):
    """Cancelling the gateway cuts its connections and frees its port."""
    door = supervisor.connection("a")
    door.answer = hang
    served = gateway(supervisor, tmp_path)
    async with anyio.create_task_group() as tasks:
        started = anyio.Event()

        async def serve() -> None:
            async with served:
                started.set()
                await anyio.sleep_forever()

        tasks.start_soon(serve)
        with anyio.fail_after(20):
            await started.wait()
        async with Wire(served.addresses[0]) as client:
            await client.open()
            async with anyio.create_task_group() as calls:

                async def ask() -> None:
                    with pytest.raises(httpx2.HTTPError):
                        await client.post(call("a__echo"))

                calls.start_soon(ask)
                await until(door.called.is_set)
                tasks.cancel_scope.cancel()
    with pytest.raises(OSError, match=r"."):
        await anyio.connect_tcp("127.0.0.1", int(served.addresses[0].rpartition(":")[2]))


async def test_the_endpoint_of_a_removed_server(supervisor: PuppetSupervisor, tmp_path: Path):
    """The sessions on the endpoint of a server end with it; those on `/mcp` go on."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as alone, Wire(served.addresses[0]) as joint:
        await alone.open("/mcp/b")
        await joint.open()
        supervisor.remove("b")
        await until(lambda: served.sessions == 1)
        gone = await alone.post(call("echo"), path="/mcp/b")
        still = await joint.post(call("a__echo"))

    assert (gone.status_code, still.status_code) == (404, 200)


async def test_an_error_of_the_body(supervisor: PuppetSupervisor, tmp_path: Path):
    """An error within the gateway's context leaves as it was."""
    with pytest.raises(ZeroDivisionError):
        async with gateway(supervisor, tmp_path):
            raise ZeroDivisionError


async def test_ports_in_use(supervisor: PuppetSupervisor, tmp_path: Path):
    """An address that another program has is an error that says so, and leaves nothing bound."""
    async with gateway(supervisor, tmp_path) as served:
        taken = served.addresses[0].removeprefix("http://")
        with pytest.raises(Exception, match="another program has it"):
            async with gateway(supervisor, tmp_path, listen=("127.0.0.1:0", taken)):
                pass

"""Instances of a server that run for one client each: who gets one, what becomes of it, and that none is left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor import events
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.instances import FULL_RETRY, IDLE_SECONDS, LEAVING_RETRY, LEFT_SECONDS, MAX_INSTANCES
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.sampling import Usage
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.questions import Belongs, Question
from mcpvisor.supervisor.spec import HttpTarget, RestartPolicy, ServerSpec, Sharing, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order, Supervisor
from mcpvisor.supervisor.transports.wire import WireEnd
from tests.supervisor.memory_wire import MemoryServer
from tests.supervisor.transports.http_rig import SERVERS, puppet
from tests.waiting import until

pytestmark = pytest.mark.anyio

ANN = Principal("token:ann", "s1")
ANN_AGAIN = Principal("token:ann", "s2")
BOB = Principal("token:bob", "s3")
OPERATOR = Principal("uid:0", is_operator=True)
SPEC = ServerSpec(
    name="files",
    target=StdioLaunch(command="memory"),
    stop=StopGraces(stdin=0, term=0),
    sharing=Sharing.PER_CLIENT,
    drain=1.0,
)
LOG = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}


class Servers:
    """Each wire that is opened is a server of its own; `of` has them by the names that mark their processes."""

    def __init__(self) -> None:
        self.of: dict[str, MemoryServer] = {}

    def open(self, opening: Opening) -> Any:
        label = opening.label or opening.spec.name
        server = self.of.setdefault(label, MemoryServer())

        async def name(_: dict[str, Any]) -> dict[str, Any]:
            return {"content": [], "label": label}

        if "tools/call" not in server.handlers or server.handlers["tools/call"] == server.echo:
            server.handlers["tools/call"] = name
        return server.open(opening)

    @property
    def newest(self) -> MemoryServer:
        return list(self.of.values())[-1]

    @property
    def running(self) -> int:
        return sum(server.opened - server.closed for server in self.of.values())


class TestWhose:
    @pytest.fixture
    def anyio_backend(self) -> Any:
        """Time that passes only when everybody waits."""
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    @staticmethod
    @asynccontextmanager
    async def supervised(servers: Servers, spec: ServerSpec = SPEC) -> AsyncIterator[Supervisor]:
        with anyio.fail_after(20_000):
            async with Supervisor(opener=servers.open, guarded=False) as supervisor:
                await supervisor.apply([spec])
                await supervisor.wait_until("files", lambda status: status.state is State.READY)
                yield supervisor

    @staticmethod
    async def label(supervisor: Supervisor, principal: Principal) -> str:
        door = supervisor.connection("files")
        return (await door.request("tools/call", {"name": "echo"}, principal=principal))["label"].partition("@")[2]

    @pytest.mark.parametrize(
        ("sharing", "expected"),
        [(Sharing.SHARED, 1), (Sharing.PER_CLIENT, 4), (Sharing.PER_IDENTITY, 3)],
    )
    async def test_who_shares_with_whom(self, sharing: Sharing, expected: int) -> None:
        """Each client or identity has its own, by what the entry says, and the same one at each call; the operator has none."""
        servers = Servers()
        async with self.supervised(servers, replace(SPEC, sharing=sharing)) as supervisor:
            labels = [await self.label(supervisor, one) for one in (ANN, ANN_AGAIN, BOB, ANN, BOB)]
            operators = await self.label(supervisor, OPERATOR)
            running, shown = servers.running, supervisor.status("files").instances

        assert (labels[:1] + labels[2:3], operators) == (labels[3:], "")
        assert (len({*labels, ""}), running, shown) == (expected, expected, expected - 1)
        assert servers.running == 0

    async def test_calls_without_a_session(self) -> None:
        """Calls that run at one time may be of several clients: each has an instance, which is used again later."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            lone = Principal("token:ann")
            first = await self.label(supervisor, lone)
            servers.newest.silent = {"tools/call"}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.label, supervisor, lone)
                await anyio.wait_all_tasks_blocked()
                second = await self.label(supervisor, lone)
                third = await self.label(supervisor, lone)
                tasks.cancel_scope.cancel()

        assert (first != second, second == third, len(servers.of)) == (True, True, 3)

    async def test_a_session_ends(self) -> None:
        """What ran for it alone is ended, and nothing else; a call that comes later starts another one."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            first = await self.label(supervisor, ANN)
            bobs = await self.label(supervisor, BOB)
            supervisor.session_ended(ANN)
            supervisor.session_ended(ANN_AGAIN)
            await anyio.wait_all_tasks_blocked()
            running = servers.running
            second, still = await self.label(supervisor, ANN), await self.label(supervisor, BOB)

        assert (running, first == second, bobs == still) == (2, False, True)

    async def test_an_identity_outlives_its_sessions(self) -> None:
        """Another session of it may go on with what it has done."""
        servers = Servers()
        async with self.supervised(servers, replace(SPEC, sharing=Sharing.PER_IDENTITY)) as supervisor:
            first = await self.label(supervisor, ANN)
            supervisor.session_ended(ANN)
            second = await self.label(supervisor, ANN_AGAIN)

        assert first == second

    async def test_nobody_calls_it(self) -> None:
        """One that is called no more ends by itself; a call that takes as long does not count as none."""
        servers = Servers()
        async with self.supervised(servers, replace(SPEC, call_timeout=7200.0, call_max=7200.0)) as supervisor:
            await self.label(supervisor, ANN)
            await self.label(supervisor, BOB)

            async def long(_: dict[str, Any]) -> dict[str, Any]:
                await anyio.sleep(IDLE_SECONDS * 2)
                return {"content": [], "label": "long"}

            bobs = servers.newest
            bobs.handlers["tools/call"] = long
            await self.label(supervisor, BOB)
            running = servers.running
            await anyio.sleep(IDLE_SECONDS + 5)

        assert (running, servers.running) == (2, 0)

    async def test_too_many(self) -> None:
        """A client more is refused in so many words; whoever has one goes on, and an end makes room."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            clients = [Principal("token:ann", f"s{number}") for number in range(MAX_INSTANCES + 1)]
            for client in clients[:-1]:
                await self.label(supervisor, client)
            with pytest.raises(RequestFailed) as caught:
                await self.label(supervisor, clients[-1])
            await self.label(supervisor, clients[0])
            supervisor.session_ended(clients[1])
            await anyio.sleep(5)
            await self.label(supervisor, clients[-1])

        assert (caught.value.outcome, caught.value.cause) == (Outcome.REJECTED, "too_many_instances")
        assert caught.value.retry_after_s is not None

    async def test_one_identity_cannot_have_all(self) -> None:
        """Who asks while another has nearly all gets the place of what that one has not called for longest, and no more."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            many = [Principal("token:ann", f"s{number}") for number in range(MAX_INSTANCES)]
            for client in many:
                await self.label(supervisor, client)
                await anyio.sleep(0.1)
            before = await self.label(supervisor, many[0])
            with pytest.raises(RequestFailed) as caught:
                await self.label(supervisor, BOB)
            with pytest.raises(RequestFailed):
                await self.label(supervisor, BOB)
            await anyio.sleep(5)
            await self.label(supervisor, BOB)
            with pytest.raises(RequestFailed) as again:
                await self.label(supervisor, many[1])
            after = await self.label(supervisor, many[0])
            running = servers.running

        assert (caught.value.cause, caught.value.retry_after_s) == ("too_many_instances", LEAVING_RETRY)
        assert (again.value.cause, again.value.retry_after_s) == ("too_many_instances", FULL_RETRY)
        assert before == after
        assert running == MAX_INSTANCES + 1  # with the shared one

    async def test_what_was_left_makes_room(self) -> None:
        """Where all are taken, one that was left without a word ends for whoever asks, and none that was called lately."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            clients = [Principal("token:ann", f"s{number}") for number in range(MAX_INSTANCES + 1)]
            for client in clients[:-1]:
                await self.label(supervisor, client)
            await anyio.sleep(LEFT_SECONDS)
            kept = [await self.label(supervisor, client) for client in clients[1:-1]]
            with pytest.raises(RequestFailed) as caught:
                await self.label(supervisor, clients[-1])
            await anyio.sleep(5)
            await self.label(supervisor, clients[-1])
            after = [await self.label(supervisor, client) for client in clients[1:-1]]
            with pytest.raises(RequestFailed):
                await self.label(supervisor, clients[0])

        assert caught.value.retry_after_s == LEAVING_RETRY
        assert kept == after

    @pytest.mark.parametrize("order", [Order.STOP, Order.DISABLE])
    async def test_an_order_to_stop(self, order: Order) -> None:
        """Holds for all of them, and for whoever calls next."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            await self.label(supervisor, ANN)
            await supervisor.order("files", order, who="test")
            await anyio.sleep(5)
            running = servers.running
            with pytest.raises(RequestFailed) as caught:
                await self.label(supervisor, ANN)

        assert (running, caught.value.outcome) == (0, Outcome.NOT_SENT)

    async def test_an_order_to_restart(self) -> None:
        """Restarts each of them, and whose they are stays."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            before = await self.label(supervisor, ANN)
            await supervisor.order("files", Order.RESTART, who="test")
            await anyio.sleep(5)
            after = await self.label(supervisor, ANN)

        assert before == after
        assert [server.opened for server in servers.of.values()] == [2, 2]

    async def test_memory(self) -> None:
        """One that is over the ceiling of its entry is replaced, and no other."""
        servers = Servers()
        async with self.supervised(servers, replace(SPEC, restart=RestartPolicy(max_memory=1000))) as supervisor:
            before = await self.label(supervisor, ANN)
            await anyio.sleep(SPEC.restart.stable_after + 1)
            label = list(servers.of)[-1]
            supervisor._sampled(Marker(supervisor.instance, label, 1), Usage(1, 2000, 0.0))
            await anyio.sleep(5)
            after = await self.label(supervisor, ANN)

        assert before == after
        assert [server.opened for server in servers.of.values()] == [1, 2]

    async def test_edits(self) -> None:
        """An edit of the entry reaches all of them; one of who shares with whom ends them."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            await self.label(supervisor, ANN)
            await supervisor.apply([replace(SPEC, target=StdioLaunch(command="memory", args=("-v",)))])
            await anyio.sleep(5)
            restarted = [server.opened for server in servers.of.values()]
            await supervisor.apply([replace(SPEC, sharing=Sharing.SHARED)])
            await anyio.sleep(5)
            left = servers.running
            shared = await self.label(supervisor, ANN)
            await supervisor.apply([])
            await anyio.sleep(5)

        assert (restarted, left, shared, servers.running) == ([2, 2], 1, "", 0)

    async def test_it_disturbs_no_series_of_its_server(self) -> None:
        """Neither its start nor its end, nor its states, are told as those of the server; what it logs is its client's."""
        servers, told = Servers(), list[events.Event]()
        async with self.supervised(servers) as supervisor:
            supervisor.bus.attach(told.append)
            await self.label(supervisor, ANN)
            servers.newest.say(LOG)
            supervisor.session_ended(ANN)
            await anyio.sleep(5)
            supervisor.bus.detach(told.append)

        kinds = [type(event) for event in told]
        assert kinds == [events.InstanceStarted, events.ServerNotified, events.InstanceEnded]
        assert [event.client for event in told if isinstance(event, events.ServerNotified)] == [ANN]
        assert {event.server for event in told if isinstance(event, events.ServerEvent)} == {"files"}

    async def test_one_that_fails(self) -> None:
        """It is named in the status of its server, which is as well as before."""
        servers = Servers()
        async with self.supervised(servers) as supervisor:
            await self.label(supervisor, ANN)
            servers.newest.open_failure = WireEnd(cause="permission", detail="permission denied")
            servers.newest.end()
            await anyio.sleep(5)
            status = supervisor.status("files")

        assert (status.state, status.instances) == (State.READY, 1)
        assert status.instance_failing.endswith(" of token:ann is failed: permission denied")

    async def test_questions_correlate(self) -> None:
        """With an instance for each client it is known whose question one is, also while others call."""
        servers = Servers()
        async with self.supervised(servers) as supervisor, anyio.create_task_group() as tasks:
            seen: list[Question] = []

            async def sink(question: Question) -> dict[str, Any]:
                seen.append(question)
                return {"action": "decline"}

            for client in (ANN, BOB):
                await self.label(supervisor, client)
            for server in servers.of.values():
                server.silent = {"tools/call"}
            for client in (ANN, BOB):
                door = supervisor.connection("files")
                tasks.start_soon(
                    lambda p=client, d=door: d.request("tools/call", {"name": "echo"}, principal=p, on_question=sink)
                )
            await anyio.wait_all_tasks_blocked()
            for label in list(servers.of)[1:]:
                await servers.of[label].ask("elicitation/create", {"message": "?"})
            tasks.cancel_scope.cancel()

        assert [(one.server, one.belongs, one.principal) for one in seen] == [
            ("files", Belongs.CALL, ANN),
            ("files", Belongs.CALL, BOB),
        ]


class TestProcesses:
    @pytest.fixture(params=["asyncio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @staticmethod
    @asynccontextmanager
    async def supervised(**changes: Any) -> AsyncIterator[Supervisor]:
        launch = StdioLaunch(command=sys.executable, args=("-S", str(SERVERS / "asking.py")))
        spec = ServerSpec(name="asking", target=launch, stop=StopGraces(stdin=1.0, term=1.0), sharing=Sharing.PER_CLIENT)
        with anyio.fail_after(120):
            async with Supervisor(guarded=False) as supervisor:
                await supervisor.apply([replace(spec, **changes)])
                await supervisor.wait_until("asking", lambda status: status.state is State.READY)
                yield supervisor

    @staticmethod
    async def pid(supervisor: Supervisor, principal: Principal) -> int:
        result = await supervisor.connection("asking").request("tools/call", {"name": "pid"}, principal=principal)
        return json.loads(result["content"][0]["text"])["pid"]

    async def test_processes_of_their_own(self) -> None:
        """Two clients have two processes, beside the shared one; the end of one session ends its process and no other."""
        async with self.supervised() as supervisor:
            pids = [await self.pid(supervisor, one) for one in (ANN, BOB, OPERATOR)]
            supervisor.session_ended(ANN)
            await until(lambda: not Path(f"/proc/{pids[0]}").exists())
            after = [await self.pid(supervisor, one) for one in (BOB, OPERATOR)]
            instance = supervisor.instance

        assert (len(set(pids)), pids[1:]) == (3, after)
        assert find_marked(instance) == []

    async def test_sessions_of_their_own(self) -> None:
        """With an HTTP server each client has a session of its own, which is ended at the server with the client's."""
        with puppet("asking.py", "http") as served:
            async with self.supervised(target=HttpTarget(url=served.url)) as supervisor:
                door = supervisor.connection("asking")

                async def session(principal: Principal) -> str:
                    result = await door.request("tools/call", {"name": "pid"}, principal=principal)
                    return json.loads(result["content"][0]["text"])["session"]

                sessions = [await session(one) for one in (ANN, BOB, ANN, OPERATOR)]
                supervisor.session_ended(ANN)
                await until(lambda: supervisor.status("asking").instances == 1)
                await until(lambda: not [one for one in supervisor._private["asking"] if one.client == ANN])
                again = await session(ANN)

        assert (sessions[0] == sessions[2], len({*sessions, again})) == (True, 4)

    async def test_a_hundred_short_sessions(self) -> None:
        """Leave one process, the shared one, and nothing in the tables; the end of the supervisor leaves nothing."""
        async with self.supervised() as supervisor:
            for number in range(100):
                client = Principal("token:ann", f"s{number}")
                await self.pid(supervisor, client)
                supervisor.session_ended(client)
            await until(lambda: len(find_marked(supervisor.instance)) == 1, 20)
            await until(lambda: not list(supervisor._private["asking"]))
            await self.pid(supervisor, ANN)
            shown, instance = supervisor.status("asking").instances, supervisor.instance

        assert shown == 1
        assert find_marked(instance) == []

"""The supervisor over servers in memory, under virtual time: what callers and operators can rely on."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor import events
from mcpvisor.supervisor.errors import OrderRefused, Outcome, RequestFailed, UnknownServer
from mcpvisor.supervisor.invalid import InvalidEntry
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import (
    Change,
    Era,
    HttpTarget,
    Intensity,
    PlannedChange,
    ProbePolicy,
    RestartPolicy,
    ServerSpec,
    StdioLaunch,
    StopGraces,
    ToolView,
)
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order, Supervisor
from mcpvisor.supervisor.transports.wire import WireEnd
from tests.supervisor.memory_wire import MemoryServer

ME = Principal("test")


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


pytestmark = pytest.mark.anyio


def spec(name: str = "files", **changes: object) -> ServerSpec:
    made = ServerSpec(name=name, target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))
    return replace(made, **changes)


def http(name: str = "docs", **changes: object) -> ServerSpec:
    return replace(ServerSpec(name=name, target=HttpTarget(url="http://127.0.0.1:1/mcp")), **changes)


@asynccontextmanager
async def supervised(*specs: ServerSpec, **servers: MemoryServer) -> AsyncIterator[Supervisor]:
    def opener(opening: Opening) -> Any:
        return servers[opening.spec.name].open(opening)

    with anyio.fail_after(7200):
        async with Supervisor(opener=opener, guarded=False) as supervisor:
            await supervisor.apply(specs)
            yield supervisor


async def reach(supervisor: Supervisor, name: str, *states: State) -> str:
    return (await supervisor.wait_until(name, lambda status: status.state in states)).reason


async def call(supervisor: Supervisor, name: str = "files", **arguments: Any) -> Any:
    connection = supervisor.connection(name)
    return await connection.request("tools/call", {"name": "echo", "arguments": arguments}, principal=ME)


async def failure_of(awaitable: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await awaitable
    return caught.value


class TestCalls:
    async def test_a_call_made_while_the_server_starts_waits_for_it(self) -> None:
        """A caller who comes a moment too early gets an answer and no error."""
        async with supervised(spec(), files=MemoryServer()) as supervisor:
            result = await call(supervisor, text="hello")

        assert result == {"content": [{"type": "text", "text": "hello"}]}

    async def test_a_call_waits_no_longer_than_wait_ready(self) -> None:
        """A server that hangs at its handshake costs a caller five seconds, and the answer says not_sent."""
        server = MemoryServer()
        server.silent = {"server/discover", "initialize"}
        async with supervised(spec(), files=server) as supervisor:
            before = anyio.current_time()
            failure = await failure_of(call(supervisor))

        assert (failure.outcome, failure.cause) == (Outcome.NOT_SENT, "negotiating")
        assert anyio.current_time() - before == pytest.approx(5.0)

    async def test_what_was_in_flight_when_the_server_ended_fails_at_once(self) -> None:
        """The server may have run it: nobody waits, and nobody sends it again."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            before = anyio.current_time()
            async with anyio.create_task_group() as tasks:

                async def end() -> None:
                    await anyio.sleep(1)
                    server.end()

                tasks.start_soon(end)
                failure = await failure_of(call(supervisor))

        assert (failure.outcome, failure.cause) == (Outcome.MAYBE_EXECUTED, "process_exited")
        assert anyio.current_time() - before == pytest.approx(1.0)
        assert server.log.count("tools/call") == 1

    async def test_the_next_call_after_an_end_succeeds_at_once(self) -> None:
        """A generation that had served is followed by the next one without delay."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await call(supervisor, text="one")
            server.end()
            before = anyio.current_time()
            await call(supervisor, text="two")

        assert anyio.current_time() - before < 0.5

    async def test_a_read_is_replayed_once_on_the_next_session(self) -> None:
        """Reading twice harms nobody, so the caller need not know."""
        server = MemoryServer()
        tries = 0

        async def read(params: dict[str, Any]) -> Any:
            nonlocal tries
            tries += 1
            if tries == 1:
                server.end()
                await anyio.sleep_forever()
            return {"contents": []}

        server.handlers["resources/read"] = read
        async with supervised(spec(), files=server) as supervisor:
            await call(supervisor)
            result = await supervisor.connection("files").request("resources/read", {"uri": "a:b"}, principal=ME)

        assert (result, tries) == ({"contents": []}, 2)

    async def test_a_second_try_that_is_not_sent_says_nothing_of_the_first(self) -> None:
        """A call that may have run stays one, where it was allowed a second try and no session came for it."""
        server = MemoryServer(kind="http")

        async def lose(params: dict[str, Any]) -> Any:
            server.open_failure = WireEnd(cause="connect_failed", detail="nobody listens")
            server.end("session_lost", "the session is gone")
            await anyio.sleep_forever()

        server.handlers["tools/call"] = lose
        async with supervised(http(replay_on_session_loss=True), docs=server) as supervisor:
            failure = await failure_of(call(supervisor, "docs"))

        assert (failure.outcome, failure.cause) == (Outcome.MAYBE_EXECUTED, "session_lost")
        assert server.log.count("tools/call") == 1

    async def test_silence_ends_a_call_after_call_timeout_and_cancels_it(self) -> None:
        """The caller learns `timeout`, and the server learns that nobody waits."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        async with supervised(spec(call_timeout=7.0), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            before = anyio.current_time()
            failure = await failure_of(call(supervisor))
            assert server.wire is not None

            assert (failure.outcome, failure.cause, failure.code) == (Outcome.TIMEOUT, "silence", -32001)
            assert anyio.current_time() - before == pytest.approx(7.0)
            assert server.wire.cancelled == ["tools/call"]

    async def test_progress_is_a_sign_of_life_up_to_call_max(self) -> None:
        """Progress puts off the idle limit, never the limit of the whole."""
        server = MemoryServer()

        async def slow(params: dict[str, Any]) -> Any:
            assert server.wire is not None
            while True:
                await anyio.sleep(5)
                server.wire._received(
                    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}'
                    % params["_meta"]["progressToken"]
                )

        server.handlers["tools/call"] = slow
        seen: list[Any] = []
        async with supervised(spec(call_timeout=7.0, call_max=60.0), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            before = anyio.current_time()
            failure = await failure_of(
                supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=ME, on_progress=seen.append)
            )

        assert (failure.outcome, failure.cause) == (Outcome.TIMEOUT, "deadline")
        assert anyio.current_time() - before == pytest.approx(60.0)
        assert len(seen) in (11, 12)

    @pytest.mark.parametrize(("deadline", "seconds"), [(12.0, 12.0), (100.0, 60.0)])
    async def test_a_deadline_of_the_caller_is_hard(self, deadline: float, seconds: float) -> None:
        """No progress extends it, `call_max` bounds it, and the server is told of the end."""
        server = MemoryServer()

        async def slow(params: dict[str, Any]) -> Any:
            assert server.wire is not None
            while True:
                await anyio.sleep(5)
                server.wire._received(
                    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}'
                    % params["_meta"]["progressToken"]
                )

        server.handlers["tools/call"] = slow
        async with supervised(spec(call_timeout=7.0, call_max=60.0), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            before = anyio.current_time()
            params = {"name": "echo"}
            door = supervisor.connection("files")
            failure = await failure_of(
                door.request("tools/call", params, principal=ME, deadline=deadline, on_progress=lambda _: None)
            )
            took = anyio.current_time() - before
            assert server.wire is not None

            assert (Outcome.TIMEOUT, "deadline") == (failure.outcome, failure.cause)
            assert took == pytest.approx(seconds)
            assert ["tools/call"] == server.wire.cancelled

    async def test_calls_over_the_limits_wait_and_then_are_refused(self) -> None:
        """`concurrency` run, `queue` wait, the next one is told so at once."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        async with supervised(spec(concurrency=2, queue=1), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(failure_of, call(supervisor))
                await anyio.wait_all_tasks_blocked()
                failure = await failure_of(call(supervisor))
                status = supervisor.status("files")
                server.end()

        assert (failure.outcome, failure.cause) == (Outcome.REJECTED, "queue_full")
        assert (status.in_flight, status.queued) == (2, 1)

    async def test_cancelling_the_caller_cancels_the_call(self) -> None:
        """A caller who leaves takes the request along."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            with anyio.move_on_after(1):
                await call(supervisor)
            assert server.wire is not None

            assert server.wire.cancelled == ["tools/call"]


class TestServersThatFail:
    async def test_a_crash_loop_is_parked_named_and_tried_again(self) -> None:
        """Six ends within a minute; five minutes later one half-open try."""
        server = MemoryServer()
        server.end_after_initialize = WireEnd(cause="process_exited", detail="exited with code 1", exit_code=1)
        async with supervised(spec(restart=RestartPolicy(delay=0.1, max_delay=1.0)), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.CRASH_LOOP)
            parked_at, opened = anyio.current_time(), server.opened
            server.end_after_initialize = None
            await reach(supervisor, "files", State.READY)

        assert reason == "ended more than 5 times in 60 s; last: exited with code 1"
        assert opened == 6
        assert anyio.current_time() - parked_at == pytest.approx(300.0, abs=1.0)

    async def test_a_program_that_does_not_exist_is_failed_and_hurts_nobody(self) -> None:
        """Its neighbour is ready meanwhile."""
        missing, good = MemoryServer(), MemoryServer()
        missing.open_failure = WireEnd(cause="no_such_program", detail="no program 'nope' on PATH")
        async with supervised(spec("bad"), spec("good"), bad=missing, good=good) as supervisor:
            await reach(supervisor, "good", State.READY)
            reason = await reach(supervisor, "bad", State.FAILED)
            failure = await failure_of(call(supervisor, "bad"))

        assert reason == "no program 'nope' on PATH"
        assert (failure.outcome, failure.cause, failure.retry_after_s) == (Outcome.NOT_SENT, "failed", 300.0)

    async def test_a_server_that_exits_on_the_probe_is_started_again_and_not_asked(self) -> None:
        """It ends up ready by initialize, and the end counts as no crash."""
        server = MemoryServer()

        async def die(params: dict[str, Any]) -> Any:
            server.end()
            await anyio.sleep_forever()

        server.handlers["server/discover"] = die
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)

        assert server.log.count("server/discover") == 1
        assert server.opened == 2

    async def test_a_server_silent_to_the_probe_is_asked_to_initialize_after_two_seconds(self) -> None:
        """In the same process; its slow start is not thrown away."""
        server = MemoryServer()
        server.silent = {"server/discover"}
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)

            assert anyio.current_time() == pytest.approx(2.0, abs=0.2)
            assert server.opened == 1

    async def test_a_hanging_handshake_is_ended_and_named(self) -> None:
        """At start_timeout, and the reason says what it was."""
        server = MemoryServer()
        server.silent = {"server/discover", "initialize"}
        async with supervised(spec(start_timeout=10.0), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.BACKOFF)

        assert reason == "did not answer the handshake within 10 s (start_timeout)"

    async def test_a_session_that_does_not_answer_probes_is_replaced(self) -> None:
        """The first miss shows; the third ends the generation."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            server.silent = {"ping", "tools/list"}
            first = await reach(supervisor, "files", State.DEGRADED)
            await supervisor.wait_until("files", lambda status: status.generation == 2)

        assert first == "probe 1/3 missed"

    async def test_an_error_answer_to_a_ping_is_a_sign_of_life(self) -> None:
        """A server that knows no ping is as alive as any."""
        server = MemoryServer()

        async def ping(params: dict[str, Any]) -> Any:
            raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "Method not found: ping", code=-32601)

        server.handlers["ping"] = ping
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            await anyio.sleep(3600)
            told = [event for event in supervisor.history("files") if isinstance(event, events.ProbeMissed)]

            assert (supervisor.status("files").state, supervisor.status("files").generation, told) == (State.READY, 1, [])

    async def test_a_server_that_falls_silent_while_its_lists_are_read_is_replaced(self) -> None:
        """It is found out by its probes, as any other, and long before its lists are given up."""
        server = MemoryServer()
        server.silent = {"tools/list", "ping"}
        probe = ProbePolicy(interval=1.0, timeout=1.0, failures=2)
        async with supervised(spec(probe=probe), files=server) as supervisor:
            await supervisor.wait_until("files", lambda status: status.generation == 2)

            assert anyio.current_time() < 10.0

    async def test_an_answered_call_ends_the_doubt_of_a_missed_probe(self) -> None:
        """Steady traffic postpones every probe, so that no other one would say that the server is well again."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            server.silent = {"ping"}
            await reach(supervisor, "files", State.DEGRADED)
            await call(supervisor)

            assert State.READY is supervisor.status("files").state

    async def test_steady_traffic_does_not_keep_a_dead_session_alive(self) -> None:
        """Calls that began when the server was silent already are met by the silence, and are no excuse for it."""
        server = MemoryServer()
        probe = ProbePolicy(interval=1.0, timeout=1.0, failures=3)
        async with supervised(spec(probe=probe, call_timeout=5.0), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            server.silent = {"ping", "tools/list", "tools/call"}
            silent_at = anyio.current_time()
            async with anyio.create_task_group() as tasks:

                async def caller() -> None:
                    while True:
                        tasks.start_soon(failure_of, call(supervisor))
                        await anyio.sleep(0.7)

                tasks.start_soon(caller)
                await supervisor.wait_until("files", lambda status: status.generation == 2)
                took = anyio.current_time() - silent_at
                server.silent = set()
                tasks.cancel_scope.cancel()

        assert took < 15.0

    async def test_one_long_call_excuses_a_silent_session(self) -> None:
        """A server that works on a call it was given before may be too busy for probes; it is left alone."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        probe = ProbePolicy(interval=1.0, timeout=1.0, failures=3)
        async with supervised(spec(probe=probe, call_timeout=60.0), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(failure_of, call(supervisor))
                await anyio.sleep(0.5)
                server.silent = {"tools/call", "ping", "tools/list"}
                await anyio.sleep(50)
                generation, reason = supervisor.status("files").generation, supervisor.status("files").reason
                server.silent = set()

        assert (generation, reason) == (1, "busy: a probe was not answered")

    async def test_a_lost_session_is_renewed_by_one_handshake_for_all_callers(self) -> None:
        """However many callers meet the loss."""
        server = MemoryServer(kind="http")
        lost = RequestFailed(Outcome.MAYBE_EXECUTED, "session_lost", "404")

        async def read(params: dict[str, Any]) -> Any:
            if server.opened == 1:
                server.end("session_lost", "404")
                raise lost
            return {"contents": []}

        server.handlers["resources/read"] = read
        async with supervised(http(), docs=server) as supervisor:
            await reach(supervisor, "docs", State.READY)
            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(
                        lambda: supervisor.connection("docs").request("resources/read", {"uri": "a:b"}, principal=ME)
                    )

        assert server.log.count("initialize") == 2


class TestWhatIsWanted:
    async def test_apply_touches_only_what_differs(self) -> None:
        """Keep, update in place, restart, start and stop, each seen in the server's own life."""
        names = ("keep", "update", "restart", "stop", "start")
        servers = {name: MemoryServer() for name in names}
        before = [spec(name) for name in names if name != "start"]
        async with supervised(*before, **servers) as supervisor:
            for made in before:
                await reach(supervisor, made.name, State.READY)
            plan = await supervisor.apply(
                [
                    spec("keep"),
                    spec("update", call_timeout=1.0, tools=ToolView(deny=("x",))),
                    spec("restart", target=StdioLaunch(command="other")),
                    spec("start"),
                ]
            )
            await supervisor.wait_until("restart", lambda status: status.generation == 2)
            await reach(supervisor, "restart", State.READY)
            await reach(supervisor, "start", State.READY)
            opened = {name: server.opened for name, server in servers.items()}
            timeout = supervisor.connection("update").spec.call_timeout

        assert plan == [
            PlannedChange("keep", Change.KEEP),
            PlannedChange("restart", Change.RESTART, ("command",)),
            PlannedChange("start", Change.START),
            PlannedChange("stop", Change.STOP),
            PlannedChange("update", Change.UPDATE, ("call_timeout", "tools")),
        ]
        assert opened == {"keep": 1, "update": 1, "restart": 2, "stop": 1, "start": 1}
        assert timeout == 1.0

    async def test_a_server_removed_and_added_again_never_runs_twice(self) -> None:
        """The new one starts when the old one is gone entirely."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            for _ in range(5):
                await supervisor.apply([])
                await supervisor.apply([spec()])
            await reach(supervisor, "files", State.READY)

            assert server.opened - server.closed == 1

    async def test_operators_stop_and_start(self) -> None:
        """The order is shown with who gave it, and holds against a reload of the same entry."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            await supervisor.order("files", Order.STOP, who="uid:0")
            await reach(supervisor, "files", State.STOPPED)
            await supervisor.apply([spec(call_timeout=9.0)])
            stopped = supervisor.status("files")
            await supervisor.order("files", Order.START, who="uid:0")
            await reach(supervisor, "files", State.READY)

        assert (stopped.state, stopped.wanted, stopped.wanted_by) == (State.STOPPED, "stopped", "uid:0 (stop)")

    async def test_orders_that_change_nothing_touch_nothing(self) -> None:
        """A start of what runs and a stop of what rests are done already; no process and no session is touched."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            await supervisor.order("files", Order.START, who="uid:0")
            await supervisor.order("files", Order.ENABLE, who="uid:0")
            running = supervisor.status("files")
            for _ in range(2):
                await supervisor.order("files", Order.STOP, who="uid:0")
                await reach(supervisor, "files", State.STOPPED)

        assert (State.READY, 1, 1, 1) == (running.state, running.generation, server.opened, server.closed)

    async def test_a_disabled_server_is_not_started_by_the_way(self) -> None:
        """`disable` holds until `enable`; the refusal says so and who it was."""
        async with supervised(spec(), files=MemoryServer()) as supervisor:
            await supervisor.order("files", Order.DISABLE, who="uid:0")
            await reach(supervisor, "files", State.DISABLED)
            for order in (Order.START, Order.RESTART):
                with pytest.raises(OrderRefused, match=r"is disabled by uid:0 \(disable\): `mcpvisor enable files` first"):
                    await supervisor.order("files", order, who="uid:0")
            await supervisor.order("files", Order.ENABLE, who="uid:0")
            await reach(supervisor, "files", State.READY)

    async def test_a_restart_lets_calls_in_flight_finish(self) -> None:
        """Within `drain`, on the old generation; the next call is served by the new one."""
        server = MemoryServer()

        async def slow(params: dict[str, Any]) -> Any:
            generation = server.opened
            await anyio.sleep(3)
            return {"content": [], "generation": generation}

        server.handlers["tools/call"] = slow
        results: list[Any] = []
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            async with anyio.create_task_group() as tasks:

                async def old() -> None:
                    results.append((await call(supervisor))["generation"])

                tasks.start_soon(old)
                await anyio.sleep(1)
                await supervisor.order("files", Order.RESTART, who="uid:0")
            await reach(supervisor, "files", State.READY)
            results.append((await call(supervisor))["generation"])

        assert results == [1, 2]

    async def test_unknown_servers_are_named(self) -> None:
        """The error says which name, and where to look."""
        async with supervised() as supervisor:
            with pytest.raises(UnknownServer, match="no server is named 'nope'; `mcpvisor status` lists them all"):
                supervisor.connection("nope")


class TestLists:
    async def test_a_storm_of_notices_is_a_handful_of_reads(self) -> None:
        """Hundreds of list_changed are merged, and the last one is followed by one more read."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            reads = server.log.count("tools/list")
            assert server.wire is not None
            for number in range(300):
                server.tools = ["echo", f"extra_{number}"]
                server.wire._received(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
                await anyio.sleep(0.001)
            await anyio.sleep(1)
            names = [tool["name"] for tool in supervisor.connection("files").offer.tools]

        assert names == ["echo", "extra_299"]
        assert server.log.count("tools/list") - reads <= 4

    async def test_a_storm_of_notices_does_not_hasten_a_list_that_is_limited(self) -> None:
        """A server that has named a time for its list is asked at that time, whatever it says has changed meanwhile."""
        server = MemoryServer()
        asked: list[float] = []

        async def tools(params: dict[str, Any]) -> Any:
            asked.append(anyio.current_time())
            if len(asked) == 1:
                raise RequestFailed(Outcome.NOT_SENT, "busy", "too many", retry_after_s=90.0)
            return {"tools": []}

        server.handlers["tools/list"] = tools
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.DEGRADED)
            assert server.wire is not None
            for _ in range(30):
                server.wire._received(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
                await anyio.sleep(1)
            await reach(supervisor, "files", State.READY)

        assert [90.0] == [round(later - earlier, 3) for earlier, later in itertools.pairwise(asked)]

    async def test_the_catalog_stays_while_the_server_is_away(self) -> None:
        """The last known tools are shown, and marked stale."""
        server = MemoryServer()
        async with supervised(spec(), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            server.open_failure = WireEnd(cause="no_such_program", detail="gone")
            server.end()
            await reach(supervisor, "files", State.FAILED)
            connection = supervisor.connection("files")

            assert ([tool["name"] for tool in connection.offer.tools], connection.stale) == (["echo"], True)

    async def test_a_list_that_fails_is_degraded_and_read_again(self) -> None:
        """Calls work meanwhile; once the list is there the server is ready."""
        server = MemoryServer()
        failing = True

        async def tools(params: dict[str, Any]) -> Any:
            if failing:
                raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "warming up", code=-32603)
            return {"tools": []}

        server.handlers["tools/list"] = tools
        async with supervised(spec(), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.DEGRADED)
            await call(supervisor)
            failing = False
            await reach(supervisor, "files", State.READY)

        assert reason == "tools/list failed: warming up"


class TestEvents:
    async def test_the_life_of_a_server_is_told_in_order(self) -> None:
        """What `explain` and the journal read is complete."""
        server = MemoryServer()
        async with supervised(spec(restart=RestartPolicy(intensity=Intensity(ends=1, within=60))), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            server.end()
            await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)
            told = [type(event).__name__ for event in supervisor.history("files") if not _is_state(event)]
            states = [event.new.value for event in supervisor.history("files") if _is_state(event)]

        assert told == [
            *("ServerAdded", "SessionOpened", "CatalogChanged", "ConnectEnded"),
            *("SessionLost", "ServerRestarted", "SessionOpened", "ConnectEnded"),
        ]
        assert states == [
            *("starting", "negotiating", "restoring", "ready"),
            *("backoff", "starting", "negotiating", "restoring", "ready"),
        ]


def _is_state(event: events.Event) -> bool:
    return isinstance(event, events.ServerStateChanged)


class TestLeaving:
    @pytest.mark.parametrize("after", [0.0, 0.5, 1.0, 1.5, 2.0, 3.1, 7.7, 100.0])
    async def test_leaving_ends_a_server_in_whatever_state_it_is(self, after: float) -> None:
        """A server that ends in the middle of every handshake cannot hold up the end of the supervisor."""
        server = MemoryServer()

        async def die(params: dict[str, Any]) -> Any:
            server.end()
            await anyio.sleep_forever()

        server.handlers["server/discover"] = die
        policy = RestartPolicy(intensity=None)
        async with supervised(spec(era=Era.MODERN, restart=policy), files=server):
            await anyio.sleep(after)

        assert server.opened == server.closed

    async def test_cancelling_the_user_still_ends_every_server_in_good_order(self) -> None:
        """A cancellation from outside reaches the body, never the end of the servers."""
        server = MemoryServer()
        with anyio.move_on_after(3):
            async with supervised(spec(), files=server) as supervisor:
                await reach(supervisor, "files", State.READY)
                await anyio.sleep_forever()

        assert (server.opened, server.closed) == (1, 1)


class TestInvalidEntries:
    async def test_an_entry_that_cannot_be_a_server_is_seen_as_failed(self) -> None:
        """It waits for an edit; its neighbours run, and a mended entry takes its place."""
        entry = InvalidEntry(name="broken", reason="comand: unknown key, nearest is command", origin="a.toml:3")
        async with supervised(spec(), files=MemoryServer(), broken=MemoryServer()) as supervisor:
            supervisor.show_invalid([entry])
            status = supervisor.status("broken")
            with pytest.raises(UnknownServer, match="the entry of 'broken' is not valid: comand: unknown key"):
                supervisor.connection("broken")
            supervisor.show_invalid([entry, InvalidEntry(name="late", reason="it waits", origin="b.toml:1", waits=True)])
            with pytest.raises(UnknownServer, match="the entry of 'late' is not in force: it waits"):
                supervisor.connection("late")
            supervisor.show_invalid([entry])
            names = [one.name for one in supervisor.statuses()]
            await supervisor.apply([spec(), spec("broken")])
            await reach(supervisor, "broken", State.READY)

        assert (status.state, status.reason, status.next_attempt) == (State.FAILED, entry.reason, None)
        assert (status.is_healthy, status.origin) == (False, "a.toml:3")
        assert names == ["broken", "files"]

    async def test_outlines_say_the_same_in_short(self) -> None:
        """Counts and probes see what `statuses` shows: servers that come, run, rest or leave, and invalid entries."""
        seen: list[list[str]] = []
        async with supervised(spec(required=True), rest=MemoryServer(), files=MemoryServer()) as supervisor:

            def compare() -> None:
                short = [(one.name, one.state, one.wanted, one.required, one.is_healthy) for one in supervisor.outlines()]
                seen.append([f"{one.name} {one.state.value}" for one in supervisor.statuses()])
                assert short == [
                    (one.name, one.state, one.wanted, one.required, one.is_healthy) for one in supervisor.statuses()
                ]

            compare()
            supervisor.show_invalid([InvalidEntry(name="broken", reason="no command", origin="a.toml:3")])
            await supervisor.apply([spec(required=True), spec("rest", enabled=False)])
            await reach(supervisor, "files", State.READY)
            compare()
            await supervisor.apply([])
            compare()

        assert seen[:2] == [["files starting"], ["broken failed", "files ready", "rest disabled"]]
        assert "files draining" in seen[2]

    async def test_what_comes_and_goes_is_told_like_a_server(self) -> None:
        """Metrics and log see invalid entries as they see servers."""
        told: list[tuple[str, str]] = []
        async with supervised(spec(), files=MemoryServer()) as supervisor:
            supervisor.bus.attach(lambda event: told.append((type(event).__name__, getattr(event, "server", ""))))
            supervisor.show_invalid([InvalidEntry(name="broken", reason="no command", origin="a.toml:3")])
            supervisor.show_invalid([])
            await anyio.sleep(0)

        assert [name for name, server in told if server == "broken"] == ["ServerAdded", "ServerStateChanged", "ServerRemoved"]

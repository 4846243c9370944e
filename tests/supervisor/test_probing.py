"""Whether a server is alive, over servers in memory and under virtual time: what is asked, when, and what follows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.clocks import Reading
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import ClockJumped, Event, ProbeMissed
from mcpvisor.supervisor.looks import Looks
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.probing import Latency
from mcpvisor.supervisor.spec import ProbePolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Supervisor
from tests.supervisor.memory_wire import MemoryServer

ME = Principal("test")
SPEC = ServerSpec(name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))
SILENT = {"ping", "tools/list", "tools/call"}

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@asynccontextmanager
async def supervised(server: MemoryServer, *specs: ServerSpec, **options: Any) -> AsyncIterator[Supervisor]:
    """A supervisor whose servers are all up; each is the same server in memory."""

    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(20_000):
        async with Supervisor(opener=opener, guarded=False, **options) as supervisor:
            await supervisor.apply(specs or (SPEC,))
            for name in supervisor.names():
                await supervisor.wait_until(name, lambda status: status.state is State.READY)
            server.log.clear()
            yield supervisor


async def failure_of(supervisor: Supervisor) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=ME)
    return caught.value


def after(seconds: float, server: MemoryServer, tasks: Any, **changes: Any) -> None:
    """Change how the server behaves, later."""

    async def change() -> None:
        await anyio.sleep(seconds)
        for name, value in changes.items():
            setattr(server, name, value)

    tasks.start_soon(change)


class TestSilence:
    async def test_whoever_is_silent_is_found_within_the_probes_own_time(self) -> None:
        """No longer than interval + timeout x failures; the first miss shows already."""
        server = MemoryServer()
        async with supervised(server) as supervisor:
            server.silent = SILENT
            began = anyio.current_time()
            shown = await supervisor.wait_until("files", lambda status: status.state is not State.READY)
            first = anyio.current_time() - began
            await supervisor.wait_until("files", lambda status: status.state not in (State.READY, State.DEGRADED))
            took = anyio.current_time() - began

        assert (State.DEGRADED, "probe 1/3 missed") == (shown.state, shown.reason)
        assert first == pytest.approx(35.0, abs=0.1)
        assert took == pytest.approx(45.0, abs=0.1)

    async def test_a_request_that_hears_nothing_asks_at_once(self) -> None:
        """After 5 s without a byte for it, and once for each request, however long it lasts."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        async with supervised(server, replace(SPEC, call_timeout=25.0)) as supervisor, anyio.create_task_group() as tasks:
            tasks.start_soon(failure_of, supervisor)
            await anyio.sleep(4.9)
            before = server.log.count("ping")
            await anyio.sleep(0.2)
            at_once = server.log.count("ping")
            await anyio.sleep(15)
            later = server.log.count("ping")

        assert (0, 1, 1) == (before, at_once, later)

    async def test_progress_is_a_byte(self) -> None:
        """A call that reports keeps quiet about nothing, so nobody asks."""
        server = MemoryServer()

        async def slow(params: dict[str, Any]) -> Any:
            assert server.wire is not None
            token = params["_meta"]["progressToken"]
            for _ in range(5):
                await anyio.sleep(4)
                body = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}'
                server.wire._received(body % token)
            return {"content": []}

        server.handlers["tools/call"] = slow
        async with supervised(server) as supervisor:
            connection = supervisor.connection("files")
            await connection.request("tools/call", {"name": "echo"}, principal=ME, on_progress=lambda _: None)
            asked = server.log.count("ping")

        assert 0 == asked

    async def test_a_request_inside_its_own_deadline_excuses_every_miss(self) -> None:
        """It shows as busy from the first miss, and costs nothing; when its time is over the silence counts."""
        server = MemoryServer()
        async with supervised(server, replace(SPEC, call_timeout=60.0)) as supervisor, anyio.create_task_group() as tasks:
            server.silent = SILENT
            began = anyio.current_time()
            tasks.start_soon(failure_of, supervisor)
            shown = await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            first = anyio.current_time() - began
            await supervisor.wait_until("files", lambda status: status.state is State.BACKOFF)
            took = anyio.current_time() - began

        assert "busy: a probe was not answered" == shown.reason
        assert first == pytest.approx(10.0, abs=0.1)
        assert 60.0 < took < 90.0

    async def test_who_answers_neither_is_tried_again_with_growing_delays(self) -> None:
        """A server that is never heard of after its handshake has not served, however long that took to find out."""
        server = MemoryServer()
        async with supervised(server, replace(SPEC, probe=ProbePolicy(interval=10.0, timeout=1.0))):
            server.silent = {"ping"}
            server.handlers["tools/list"] = _hang_after_the_first(server)
            await anyio.sleep(600)
            opened = server.opened

        assert opened < 600 / 13


def _hang_after_the_first(server: MemoryServer) -> Any:
    asked: set[int] = set()

    async def tools(params: dict[str, Any]) -> Any:
        del params
        if server.opened in asked:
            await anyio.sleep_forever()
        asked.add(server.opened)
        return {"tools": []}

    return tools


class TestServersWithoutPing:
    @pytest.mark.parametrize("failures", [1, 2, 3])
    async def test_one_that_answers_its_lists_lives(self, failures: int) -> None:
        """Silence to ping alone is no reason to start it again, in hours; after two times ping is not asked any more."""
        server = MemoryServer()
        server.silent = {"ping"}
        async with supervised(server, replace(SPEC, probe=ProbePolicy(failures=failures))) as supervisor:
            await anyio.sleep(3 * 3600)
            status = supervisor.status("files")
            misses = [event for event in supervisor.history("files") if isinstance(event, ProbeMissed)]

        assert (1, State.READY) == (status.generation, status.state)
        assert server.log.count("ping") == len(misses) == (0 if failures == 1 else 2)
        assert server.log.count("tools/list") > 300

    async def test_a_moment_of_silence_does_not_change_the_question(self) -> None:
        """Who answers ping again is asked ping."""
        server = MemoryServer()
        async with supervised(server) as supervisor, anyio.create_task_group() as tasks:
            server.silent = {"ping"}
            after(40.0, server, tasks, silent=set())
            await anyio.sleep(300)
            status = supervisor.status("files")

        assert (1, State.READY) == (status.generation, status.state)
        assert 1 == server.log.count("tools/list")
        assert server.log.count("ping") > 5

    async def refused(self, cause: str, seconds: float) -> ServerStatus:
        """How a server stands that refuses everything for so long."""
        server = MemoryServer(kind="http")

        async def refuse(params: dict[str, Any]) -> Any:
            del params
            raise RequestFailed(Outcome.NOT_SENT, cause, "refused")

        async with supervised(server) as supervisor:
            server.handlers |= {"ping": refuse, "tools/list": refuse}
            await anyio.sleep(seconds)
            return supervisor.status("files")

    async def test_a_limit_is_a_sign_of_life(self) -> None:
        """Whoever says that he is busy is alive."""
        status = await self.refused("busy", 600)

        assert (1, State.READY, "") == (status.generation, status.state, status.reason)

    @pytest.mark.parametrize(("seconds", "state"), [(32, State.DEGRADED), (60, State.AUTH_REQUIRED)])
    async def test_refused_credentials_show_and_end_a_session_in_the_end(self, seconds: float, state: State) -> None:
        """The first refusal shows; as many in a row as probes may be missed are no accident."""
        status = await self.refused("auth", seconds)
        shown = "credentials refused: refused" if state is State.DEGRADED else "refused"

        assert (1, state, shown) == (status.generation, status.state, status.reason)


class TestSlowness:
    def pinging(self, server: MemoryServer, seconds: float) -> None:
        async def ping(params: dict[str, Any]) -> Any:
            del params
            await anyio.sleep(seconds)
            return {}

        server.handlers["ping"] = ping

    async def test_three_slow_answers_are_degraded_until_three_are_not(self) -> None:
        """The reason names what was measured and the key; calls go on, and nothing is started again."""
        server = MemoryServer()
        async with supervised(server) as supervisor:
            self.pinging(server, 3.0)
            began = anyio.current_time()
            shown = await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            slow_after, asked = anyio.current_time() - began, server.log.count("ping")
            self.pinging(server, 0.1)
            await supervisor.wait_until("files", lambda status: status.state is State.READY)
            asked_again, generation = server.log.count("ping") - asked, supervisor.status("files").generation

        assert "slow: it takes 3.0 s for a probe (probe.slow is 2 s)" == shown.reason
        assert slow_after < 30.0 + 3 * (3.0 + 5.0)
        assert (3, 3, 1) == (asked, asked_again, generation)

    def test_it_does_not_flap(self) -> None:
        """One answer of the other kind changes nothing, and begins the count anew."""
        latency, seen = Latency(), []
        for seconds in (3, 3, 1, 3, 3, 3, 1, 1, 3, 1, 1, 1, 3):
            latency.answered(seconds, 2.0)
            seen.append(latency.is_slow)

        assert [False] * 5 + [True] * 6 + [False] * 2 == seen

    async def test_a_server_at_work_may_be_slow(self) -> None:
        """No answer counts that came while a call was under way."""
        server = MemoryServer()
        server.silent = {"tools/call"}
        self.pinging(server, 3.0)
        policy = ProbePolicy(interval=1.0)
        spec = replace(SPEC, probe=policy, call_timeout=50.0)
        async with supervised(server, spec) as supervisor, anyio.create_task_group() as tasks:
            tasks.start_soon(failure_of, supervisor)
            await anyio.sleep(45)
            state, asked = supervisor.status("files").state, server.log.count("ping")

        assert (State.READY, True) == (state, asked > 5)


class Clocks:
    """Clocks of which the one on the wall can be set, and all but one can sleep."""

    def __init__(self) -> None:
        self.set_by = 0.0
        self.slept = 0.0

    def __call__(self) -> Reading:
        now = anyio.current_time()
        return Reading(wall=1e9 + now + self.set_by + self.slept, monotonic=now, boottime=now + self.slept)


class TestJumpsOfTheClocks:
    @pytest.mark.parametrize(
        ("set_by", "slept", "told"),
        [(3600.0, 0.0, [(3600.0, 0.0)]), (-60.0, 0.0, [(-60.0, 0.0)]), (0.0, 90.0, [(90.0, 90.0)]), (4.0, 0.0, [])],
    )
    async def test_a_jump_is_one_event_and_one_look_at_every_session(
        self, set_by: float, slept: float, told: list[tuple[float, float]]
    ) -> None:
        """However large it is; the looks are spread over a while, and a correction of a few seconds is no jump."""
        server, clocks, heard = MemoryServer(), Clocks(), list[Event]()
        pinged: list[float] = []

        async def ping(params: dict[str, Any]) -> Any:
            del params
            pinged.append(anyio.current_time())
            return {}

        server.handlers["ping"] = ping
        specs = [replace(SPEC, name=f"s{number}", probe=ProbePolicy(interval=3600.0)) for number in range(40)]
        async with supervised(server, *specs, looks=Looks(clocks=clocks)) as supervisor:
            supervisor.bus.attach(heard.append)
            await anyio.sleep(10)
            clocks.set_by, clocks.slept = set_by, slept
            at = anyio.current_time()
            await anyio.sleep(60)

        jumps = [(event.seconds, event.asleep) for event in heard if isinstance(event, ClockJumped)]
        assert told == [pytest.approx(jump) for jump in jumps]
        assert len(pinged) == (40 if told else 0)
        assert len(set(pinged)) == len(pinged)
        assert all(at <= one <= at + 2.0 + 5.0 for one in pinged)

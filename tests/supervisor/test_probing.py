"""Whether a server is alive, over servers in memory and under virtual time: what is asked, when, and what follows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.clocks import Reading
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import ClockJumped, Event, ProbeMissed, ServerStateChanged
from mcpvisor.supervisor.looks import Looks
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.probing import Latency, Sign, sign_of
from mcpvisor.supervisor.spec import ProbePolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import Hindrance, ServerStatus
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.exchange import peer_error
from mcpvisor.supervisor.transports.http_outcome import Reply, judge
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

    @pytest.mark.parametrize(("seconds", "state"), [(32, State.DEGRADED), (46, State.AUTH_REQUIRED)])
    async def test_refused_credentials_show_and_end_a_session_in_the_end(self, seconds: float, state: State) -> None:
        """The first refusal shows; as many in a row as probes may be missed are no accident."""
        status = await self.refused("auth", seconds)
        shown = "credentials refused: refused" if state is State.DEGRADED else "refused"

        assert (1, state, shown) == (status.generation, status.state, status.reason)


def busy(retry_after: float | None = None, status: int = 503) -> RequestFailed:
    data = {"http_status": status}
    return RequestFailed(Outcome.MAYBE_EXECUTED, "busy", "tried again later", data=data, retry_after_s=retry_after)


def bad_request(text: str = "the server answered 400 Bad Request, text/plain: no") -> RequestFailed:
    return RequestFailed(Outcome.PEER_ERROR, "http_refused", text, data={"http_status": 400})


class Refusing:
    """A server that answers whatever is in `refusals`, by method, with a failure; and when it was asked."""

    def __init__(self) -> None:
        self.memory = MemoryServer(kind="http")
        self.refusals: dict[str, RequestFailed] = {}
        self.asked: list[tuple[str, float]] = []
        for method in ("ping", "tools/list", "tools/call"):
            self.memory.handlers[method] = self._of(method)

    def _of(self, method: str) -> Any:
        async def answer(params: dict[str, Any]) -> Any:
            del params
            self.asked.append((method, anyio.current_time()))
            if method in self.refusals:
                raise self.refusals[method]
            return {"tools": []} if method == "tools/list" else {"content": []} if method == "tools/call" else {}

        return answer

    def everything(self, failure: RequestFailed) -> None:
        self.refusals = dict.fromkeys(("ping", "tools/list", "tools/call"), failure)

    def gaps(self, method: str) -> list[float]:
        times = [at for one, at in self.asked if one == method]
        return [round(later - at, 1) for at, later in pairwise(times)]


def moves(supervisor: Supervisor) -> list[tuple[State, str]]:
    """Where the server has come since it was first ready."""
    told = [event for event in supervisor.history("files") if isinstance(event, ServerStateChanged)]
    first = next(number for number, event in enumerate(told) if event.new is State.READY)
    return [(event.new, event.reason) for event in told[first + 1 :]]


class TestRefusals:
    """A server that answers its probes by refusing them: kept, and shown as one that serves no call."""

    @pytest.mark.parametrize(
        ("failure", "reason"),
        [
            (busy(2.0), "no room: ping was answered 503 Service Unavailable"),
            (busy(None, 429), "no room: ping was answered 429 Too Many Requests"),
            (bad_request(), "refuses: tools/list: the server answered 400 Bad Request, text/plain: no"),
            (peer_error({"code": -32603, "message": "no"}), "answers with errors: tools/list was answered -32603: no"),
        ],
    )
    async def test_it_is_degraded_within_the_interval_and_never_ended(self, failure: RequestFailed, reason: str) -> None:
        """What it answered, to what and since when is told once; the first proper answer makes it ready again."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.everything(failure)
            began = anyio.current_time()
            shown = await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            took = anyio.current_time() - began
            await anyio.sleep(3600)
            later = supervisor.status("files")
            assert shown.refused_since is not None
            assert later.refused_since is not None
            server.refusals.clear()
            again = anyio.current_time()
            await supervisor.wait_until("files", lambda status: status.state is State.READY)
            recovered = anyio.current_time() - again
            told, generation = moves(supervisor), supervisor.status("files").generation

        assert (reason, Hindrance.REFUSAL) == (shown.reason, shown.hindrance)
        assert (30.0, True) == (pytest.approx(took, abs=0.1), recovered <= 30.1)
        assert [(State.DEGRADED, reason), (State.READY, "")] == told
        assert (1, 3600.0) == (generation, pytest.approx(shown.refused_since - later.refused_since, abs=5.0))

    async def test_a_call_that_is_answered_is_enough(self) -> None:
        """Nobody waits for the next probe then."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.everything(busy(300.0))
            await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            failed = await failure_of(supervisor)
            still = supervisor.status("files").state
            server.refusals.clear()
            await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=ME)
            state = supervisor.status("files").state

        assert ("busy", State.DEGRADED, State.READY) == (failed.cause, still, state)

    @pytest.mark.parametrize(("retry_after", "gap"), [(0.0, 5.0), (20.0, 20.0), (86_400.0, 300.0), (None, 30.0)])
    async def test_it_is_looked_at_when_it_said(self, retry_after: float | None, gap: float) -> None:
        """No sooner than after the pause between two misses, no later than after five minutes; and that is shown."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.everything(busy(retry_after))
            shown = await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            now = anyio.current_time()
            wall = time.time()
            await anyio.sleep(1000)
            gaps = server.gaps("ping")

        assert ({gap}, True) == (set(gaps), now > 0)
        assert shown.probe_next is not None
        assert gap == pytest.approx(shown.probe_next - wall, abs=1.0)
        assert (retry_after is not None and retry_after > 0) == shown.probe_asked_to_wait

    async def test_its_words_are_told_once_though_they_change(self) -> None:
        """The time that it wants and a number of the request in its answer are no news; another status is."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            for number in range(10):
                server.everything(bad_request(f"the server answered 400 Bad Request: request {number}"))
                await anyio.sleep(30)
            server.everything(busy(7.0, 429))
            await anyio.sleep(300)
            told = [reason for _, reason in moves(supervisor)]

        assert 2 == len(told)
        assert told[0].startswith("refuses: tools/list: the server answered 400 Bad Request: request ")
        assert "no room: ping was answered 429 Too Many Requests" == told[1]

    async def test_one_question_alone_that_is_refused_is_no_matter(self) -> None:
        """A server whose ping is broken and whose lists are not is ready; after two times ping is not asked any more."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.refusals = {"ping": peer_error({"code": -32603, "message": "no"})}
            await anyio.sleep(600)
            told = moves(supervisor)
            counts = [sum(one == method for one, _ in server.asked) for method in ("ping", "tools/list")]

        assert ([], 2, True) == (told, counts[0], counts[1] > 15)

    async def test_nobody_has_to_know_ping(self) -> None:
        """An unknown method is a proper answer."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.refusals = {"ping": peer_error({"code": -32601, "message": "Method not found"})}
            await anyio.sleep(600)
            told = moves(supervisor)
            asked = {method for method, _ in server.asked[1:]}

        assert ([], {"ping"}) == (told, asked)

    async def test_a_refusal_of_one_call_is_none_of_the_server(self) -> None:
        """Who limits a tool and answers everything else is ready."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.refusals = {"tools/call": busy(300.0, 429)}
            for _ in range(20):
                await failure_of(supervisor)
                await anyio.sleep(10)
            told = moves(supervisor)

        assert [] == told

    async def test_an_answer_lifts_the_wait(self) -> None:
        """Who wanted five minutes, has served since and refuses again is found out like anybody else."""
        server = Refusing()
        async with supervised(server.memory) as supervisor:
            server.everything(busy(300.0))
            await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            server.refusals.clear()
            await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=ME)
            server.everything(busy(300.0))
            began = anyio.current_time()
            await supervisor.wait_until("files", lambda status: status.state is State.DEGRADED)
            took = anyio.current_time() - began

        assert 30.0 == pytest.approx(took, abs=0.1)

    async def test_what_is_newest_is_shown(self) -> None:
        """Who refused and falls silent is silent, and who was silent and refuses lives; it is not ready in between."""
        server = Refusing()
        async with supervised(server.memory, replace(SPEC, probe=ProbePolicy(failures=9))) as supervisor:
            server.everything(busy(20.0))
            await supervisor.wait_until("files", lambda status: status.hindrance is Hindrance.REFUSAL)
            server.memory.silent = SILENT
            silent = await supervisor.wait_until("files", lambda status: status.hindrance is Hindrance.SILENCE)
            server.memory.silent = set()
            refusing = await supervisor.wait_until("files", lambda status: status.hindrance is Hindrance.REFUSAL)
            states = {state for state, _ in moves(supervisor)}

        assert ("probe 1/9 missed", None) == (silent.reason, silent.refused_since)
        assert "no room: tools/list was answered 503 Service Unavailable" == refusing.reason
        assert {State.DEGRADED} == states


@pytest.mark.parametrize("status", [400, 402, 406, 408, 409, 413, 418, 421, 425, 429, 431, 451, 500, 501, 502, 503, 504, 599])
@pytest.mark.parametrize("body", [b"", b"<p>no</p>", b'{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}'])
@pytest.mark.parametrize("retry_after", ["", "5"])
def test_no_refusal_of_http_shows_that_calls_are_served(status: int, body: bytes, retry_after: str) -> None:
    """Whatever a server or a proxy before it says no with, and however it is told to wait."""
    content_type = "application/json" if body.startswith(b"{") else "text/html"
    reply = Reply(
        status=status, content_type=content_type, body=body, method="ping", request_id=7, retry_after=retry_after
    )  # fmt: skip

    assert sign_of(judge(reply).failure) in (Sign.REFUSES, Sign.MISSED)


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

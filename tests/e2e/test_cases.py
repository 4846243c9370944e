"""What goes wrong in the field, each case run by a puppet server, and what its header says a client must do.

The supervisor runs in this process, as a library; the puppets are real processes, and `$FIELD_LOG` tells what they saw.
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from tests.e2e.running import is_alive
from tests.supervisor.transports.http_rig import Puppet
from tests.supervisor.transports.http_rig import puppet as http_puppet

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import (
    CatalogChanged,
    CatalogEntryDropped,
    Event,
    MessageRefused,
    ProcessEnded,
    ProcessStarted,
    ServerNotified,
    ServerStateChanged,
    SessionLost,
    StderrWritten,
    StdoutNoise,
)
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.process.stderr import LINE_CHARACTERS, RING_LINES
from mcpvisor.supervisor.spec import HttpTarget, Intensity, RestartPolicy, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import COMING, State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Order, Supervisor

pytestmark = pytest.mark.anyio

ME = Principal("test")
E = TypeVar("E", bound=Event)


@pytest.fixture
def quick() -> RestartPolicy:
    """The one policy of these tests: the delays of the real one, a twentieth as long."""
    return RestartPolicy(delay=0.05, max_delay=0.4, intensity=Intensity(ends=5, within=60.0), crash_loop_retry=60.0)


@dataclass
class Case:
    """A puppet under supervision: what it was asked, and what the supervisor told of it."""

    supervisor: Supervisor
    name: str
    field_log: Path

    async def reach(self, *states: State, seconds: float = 10) -> ServerStatus:
        """Its status once it is in one of these states."""
        with anyio.fail_after(seconds):
            return await self.supervisor.wait_until(self.name, lambda status: status.state in states)

    async def gone(self) -> ServerStatus:
        """Its status once it has no process."""
        with anyio.fail_after(10):
            return await self.supervisor.wait_until(self.name, lambda status: status.pid is None)

    async def request(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        with anyio.fail_after(20):
            return await self.supervisor.connection(self.name).request(method, params, principal=ME, **options)

    async def call(self, tool: str = "echo", **arguments: Any) -> str:
        """The text that a tool gives."""
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        return result["content"][0]["text"]

    async def failure(self, method: str = "tools/call", params: dict[str, Any] | None = None) -> RequestFailed:
        """How a request fails that must not succeed."""
        with pytest.raises(RequestFailed) as caught:
            await self.request(method, params or {"name": "echo", "arguments": {"text": "x"}})
        return caught.value

    @property
    def status(self) -> ServerStatus:
        return self.supervisor.status(self.name)

    @property
    def tools(self) -> list[str]:
        """The names of the tools it offers, as it sent them."""
        return [tool["name"] for tool in self.supervisor.connection(self.name).offer.tools]

    def told(self, kind: type[E]) -> list[E]:
        """The events of one kind, oldest first."""
        return [event for event in self.supervisor.history(self.name) if isinstance(event, kind)]

    def noted(self, event: str) -> list[dict[str, Any]]:
        """What the puppet has noted in $FIELD_LOG, of one kind."""
        text = self.field_log.read_text() if self.field_log.exists() else ""
        return [note for note in map(json.loads, text.splitlines()) if note["event"] == event]

    def asked(self, method: str) -> int:
        """How many times the puppet was sent that method."""
        return sum(note["method"] == method for note in self.noted("in"))

    async def until(self, is_so: Callable[[], bool], seconds: float = 10) -> None:
        """Return once it is so; for what a puppet notes there is no event to wait for."""
        with anyio.fail_after(seconds):
            while not is_so():
                await anyio.sleep(0.01)


@pytest.fixture
async def case(supervisor: Supervisor, servers: Path, tmp_path: Path, quick: RestartPolicy) -> Callable[..., Any]:
    """Puts puppets under supervision: `await case("stdio_banner", "glued")`; keywords are those of ServerSpec."""
    specs: dict[str, ServerSpec] = {}

    async def start(script: str, *args: str, name: str = "puppet", **keys: Any) -> Case:
        env = (("FIELD_LOG", str(tmp_path / f"{name}.log")), ("FIELD_STATE", str(tmp_path / f"{name}.state")))
        target = StdioLaunch(command=sys.executable, args=(str(servers / f"{script}.py"), *args), env=env)
        short = StopGraces(stdin=0.2, term=0.2)
        specs[name] = ServerSpec(name=name, target=target, **{"restart": quick, "stop": short, **keys})
        await supervisor.apply(specs.values())
        return Case(supervisor, name, tmp_path / f"{name}.log")

    return start


class TestBanner:
    async def test_noise_on_stdout_is_skipped_counted_and_told_rarely(self, case):
        """Text, JSON that is no JSON-RPC, numbers and blank lines are skipped; the connection and every reply stay."""
        puppet = await case("stdio_banner")
        await puppet.reach(State.READY)
        answers = [await puppet.call(text=text) for text in ("one", "two")]

        assert ["one", "two"] == answers
        assert (State.READY, 1) == (puppet.status.state, puppet.status.generation)
        # Seven lines at the start and two at each call make eleven: told of are the first three and each power of ten.
        assert [1, 2, 3, 10] == [noise.count for noise in puppet.told(StdoutNoise)]
        assert "=" * 60 == puppet.told(StdoutNoise)[0].excerpt
        assert "Example Server v1.0" in puppet.told(StdoutNoise)[1].excerpt

    async def test_a_reply_glued_to_text_fails_its_call_and_is_named(self, case):
        """The one call fails, with a message that names the bad line; the connection stays."""
        puppet = await case("stdio_banner", "glued", call_timeout=2.0)
        pid = (await puppet.reach(State.READY)).pid
        failure = await puppet.failure()

        assert "Fetching..." in failure.message
        assert Outcome.MAYBE_EXECUTED == failure.outcome
        assert ["syntax"] == [refusal.reason for refusal in puppet.told(MessageRefused)]
        assert "Fetching..." in puppet.told(MessageRefused)[0].detail
        assert {} == await puppet.request("ping")
        assert (State.READY, pid) == (puppet.status.state, puppet.status.pid)


class TestSplitLines:
    async def test_lines_are_joined_before_they_are_decoded(self, case):
        """A message in pieces that end within a character arrives whole, its CR and the blank lines after it are cut."""
        puppet = await case("stdio_crlf_split")
        await puppet.reach(State.READY)
        tool = puppet.supervisor.connection("puppet").offer.tools[0]

        assert "Gibt den Text zurück \N{ROCKET} 文字" == tool["description"]
        assert [] == puppet.told(StdoutNoise)
        assert [] == puppet.told(MessageRefused)

    async def test_every_message_of_one_write_is_handled(self, case):
        """Two notifications and a reply in one write are two notifications and a reply."""
        puppet = await case("stdio_crlf_split")
        await puppet.reach(State.READY)
        with puppet.supervisor.bus.subscribe() as events:
            answer = await puppet.call(text="Übung ☃")
            notified: list[ServerNotified] = []
            with anyio.fail_after(5):
                while len(notified) < 2:
                    event = await anext(events)
                    notified += [event] if isinstance(event, ServerNotified) else []

        assert "Übung ☃" == answer
        assert ["before ☃ Übung ☃"] * 2 == [event.params["data"] for event in notified]


class TestHugeLine:
    async def test_ten_megabytes_are_delivered_and_nobody_waits_for_them(self, case):
        """A large reply arrives whole, another server stays responsive meanwhile, and the bytes are not kept."""
        puppet = await case("stdio_huge_line", "10")
        other = await case("lite", name="other")
        await puppet.reach(State.READY)
        await other.reach(State.READY)
        longest, finished = 0.0, anyio.Event()

        async def keep_asking() -> None:
            nonlocal longest
            while not finished.is_set():
                began = time.perf_counter()
                await other.request("ping")
                longest = max(longest, time.perf_counter() - began)

        await puppet.call("blob")  # so that what is measured below is what is kept, not what a first time costs
        gc.collect()
        before = resident()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_asking)
            sizes = [len(await puppet.call("blob")) for _ in range(4)]
            finished.set()
        gc.collect()

        assert [10 * 1024 * 1024] * 4 == sizes
        assert longest < 0.5
        assert resident() - before < 20 * 1024 * 1024
        assert "next" == await puppet.call(text="next")
        assert 1 == puppet.status.generation

    async def test_a_reply_over_the_limit_costs_that_one_request(self, case):
        """A limit of one's own is an error for the one request; the connection stays and answers the next."""
        puppet = await case("stdio_huge_line", "10", max_message=1024 * 1024)
        await puppet.reach(State.READY)
        failure = await puppet.failure("tools/call", {"name": "blob", "arguments": {}})

        assert (Outcome.MAYBE_EXECUTED, "answer_refused") == (failure.outcome, failure.cause)
        assert "over the limit of 1048576" in failure.message
        assert ["size"] == [refusal.reason for refusal in puppet.told(MessageRefused)]
        assert "next" == await puppet.call(text="next")
        assert (State.READY, 1) == (puppet.status.state, puppet.status.generation)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class TestStderrFlood:
    async def test_stderr_is_drained_for_the_whole_life(self, case):
        """More than a pipe holds at the start and before each reply, and every reply still comes."""
        puppet = await case("stdio_stderr_flood")
        await puppet.reach(State.READY)
        answers = [await puppet.call(text=text) for text in ("one", "two")]

        assert ["one", "two"] == answers
        assert 2 == [note["when"] for note in puppet.noted("stderr-written")].count("tools/call")
        assert 1 == puppet.status.generation

    async def test_what_is_kept_of_stderr_is_bounded_and_clean(self, case, supervisor):
        """A bounded tail, also of text without line ends; bytes that are no UTF-8 and control characters do no harm."""
        passed: list[str] = []

        def take(event: Event) -> None:
            passed.extend(event.lines if isinstance(event, StderrWritten) else ())

        supervisor.bus.attach(take)
        puppet = await case("stdio_stderr_flood")
        await puppet.reach(State.READY)
        await puppet.call(text="x")
        tail = supervisor.stderr_tail("puppet", 10_000)

        assert RING_LINES - 1 <= len(tail) <= RING_LINES + 1
        assert all(len(line) <= LINE_CHARACTERS for line in [*tail, *passed])
        assert [] == [line for line in [*tail, *passed] if not line.isprintable()]
        for lines in (tail, passed):
            assert any(re.fullmatch("WARN retrying request .* �� caf� level=warn", line) for line in lines)


class TestExits:
    @pytest.mark.parametrize(
        ("mode", "starts", "code", "word"),
        [
            ("before", 7, 2, "configuration error: EXAMPLE_API_KEY is not set"),  # the first end may be the probe's fault
            ("after-init", 6, 1, "fatal: lost backend connection"),
            ("clean", 6, 0, "fatal: lost backend connection"),
            ("after-list", 6, 1, "fatal: lost backend connection"),
        ],
    )
    async def test_one_that_keeps_ending_is_restarted_slower_and_then_parked(self, case, mode, starts, code, word):
        """Whatever the exit code and however good the handshake: growing, capped, jittered delays, then `crash_loop`.

        The exit status and the last words are shown, no two processes run at a time, and other servers are left alone.
        """
        other = await case("lite", name="other")
        pid = (await other.reach(State.READY)).pid
        puppet = await case("stdio_exit_after_init", mode)
        reason = (await puppet.reach(State.CRASH_LOOP)).reason
        status = await puppet.gone()
        waits = [event.next_attempt - event.at for event in puppet.told(ServerStateChanged) if event.new is State.BACKOFF]
        life = [event for event in puppet.supervisor.history("puppet") if isinstance(event, ProcessStarted | ProcessEnded)]

        assert reason.startswith(f"ended more than 5 times in 60 s; last: the server exited with code {code}")
        assert re.fullmatch(rf"exited with code {code} after \d+\.\d s", status.last_exit)
        assert word in puppet.supervisor.stderr_tail("puppet")
        assert (starts, starts) == (len(puppet.noted("start")), len(puppet.told(ProcessStarted)))
        assert all(step / 2 <= wait <= step + 0.02 for step, wait in zip([0.05, 0.1, 0.2, 0.4, 0.4], waits, strict=True))
        assert [ProcessStarted, ProcessEnded] * starts == [type(event) for event in life]
        assert (State.READY, pid) == (other.status.state, other.status.pid)

    async def test_pending_calls_fail_at_once(self, case):
        """A call that is in flight when the process ends does not wait for its own time to run out."""
        puppet = await case("stdio_exit_after_init", "after-list", call_timeout=60.0, wait_ready=0.01)
        await puppet.reach(State.RESTORING)
        began = time.monotonic()
        failure = await puppet.failure()

        assert time.monotonic() - began < 2.0
        assert failure.outcome in (Outcome.MAYBE_EXECUTED, Outcome.NOT_SENT)

    async def test_one_that_dies_twice_comes_up_by_itself(self, case):
        """Two early deaths, then it stays: three starts, and it serves."""
        puppet = await case("stdio_exit_after_init", "flaky:2")
        await puppet.reach(State.READY)

        assert "up" == await puppet.call(text="up")
        assert (3, 3) == (len(puppet.noted("start")), puppet.status.generation)

    @pytest.mark.parametrize(("stable_after", "ends_in"), [(0.3, State.READY), (60.0, State.CRASH_LOOP)])
    async def test_only_real_uptime_makes_a_fresh_start(self, case, quick, stable_after, ends_in):
        """Ends are forgotten after a while of being up, not after a good handshake."""
        policy = replace(quick, intensity=Intensity(ends=2, within=60.0), stable_after=stable_after)
        puppet = await case("stdio_exit_after_init", "flaky:2", restart=policy)
        pid = (await puppet.reach(State.READY)).pid
        await anyio.sleep(0.5)  # real uptime is the subject: nothing happens that could be waited for
        os.kill(pid, 9)
        with anyio.fail_after(10):
            after = await puppet.supervisor.wait_until(
                "puppet", lambda status: status.pid != pid and status.state in (State.READY, State.CRASH_LOOP)
            )

        assert ends_in is after.state


class TestSlowStart:
    async def test_a_cold_start_is_waited_for(self, case):
        """The limit of a start is its own, not that of a call; one process, no second one on top, others not held up."""
        puppet = await case("stdio_slow_start", "1.5", "lossy", start_timeout=15.0, call_timeout=0.3, wait_ready=0.2)
        other = await case("lite", name="other")
        await other.reach(State.READY, seconds=1.4)
        seen = puppet.status.state
        early = await puppet.failure()
        await puppet.reach(State.READY)

        assert seen in COMING
        assert (Outcome.NOT_SENT, seen.value) == (early.outcome, early.cause)
        assert {State.STARTING, State.NEGOTIATING} == {
            event.new for event in puppet.told(ServerStateChanged) if event.new not in (State.RESTORING, State.READY)
        }
        assert (1, 1) == (len(puppet.noted("start")), puppet.status.generation)
        assert "up" == await puppet.call(text="up")

    async def test_a_start_that_timed_out_says_that_stderr_was_moving(self, case):
        """The reason names the limit, and that the server was still at work: it needs time, not an edit."""
        puppet = await case("stdio_slow_start", "30", "lossy", start_timeout=1.0)
        reason = (await puppet.reach(State.BACKOFF)).reason

        assert reason.startswith("did not answer the handshake within 1 s (start_timeout)")
        assert "still writing to stderr" in reason

    async def test_a_silent_start_that_timed_out_does_not(self, case):
        """A server that hangs without a word is not said to be at work."""
        puppet = await case("lite", "--hang-init", start_timeout=0.5)
        reason = (await puppet.reach(State.BACKOFF)).reason

        assert "did not answer the handshake within 0.5 s (start_timeout)" == reason

    async def test_later_tries_are_given_more_time(self, case):
        """A start that loses its progress when it is ended gets there in the end, for each try may take twice as long."""
        puppet = await case("stdio_slow_start", "1.5", "lossy", start_timeout=0.6)
        await puppet.reach(State.READY, seconds=15)

        assert 3 == len(puppet.noted("start")) == puppet.status.generation


class TestStubbornTree:
    @pytest.mark.parametrize("way", ["stop", "restart", "config change", "removal"])
    async def test_the_whole_tree_is_ended(self, case, way):
        """Stdin is closed, then the group is told to end, then killed, without waiting for the end of stdout."""
        puppet = await case("stdio_stubborn_tree", "30")
        status = await puppet.reach(State.READY)
        tree = [puppet.noted("launcher")[0]["pid"], puppet.noted("worker")[0]["pid"]]
        alive_before = [is_alive(pid) for pid in tree]
        began = time.monotonic()
        match way:
            case "stop":
                await puppet.supervisor.order("puppet", Order.STOP, who="test")
                await puppet.reach(State.STOPPED)
            case "restart":
                await puppet.supervisor.order("puppet", Order.RESTART, who="test")
            case "config change":
                await case("stdio_stubborn_tree", "31")
            case _:
                await puppet.supervisor.apply([])
        await puppet.until(lambda: not any(map(is_alive, tree)))
        took = time.monotonic() - began

        assert [True, True] == alive_before
        assert status.pid == tree[0]
        assert took < 3.0
        ladder = [
            (note["event"], note.get("signal")) for note in puppet.noted("stdin-eof") + puppet.noted("worker-ignored-signal")
        ]
        assert [("stdin-eof", None), ("worker-ignored-signal", 15)] == ladder[:2]
        if way in ("restart", "config change"):
            assert (await puppet.reach(State.READY)).pid not in tree

    async def test_nothing_is_left_when_the_supervisor_ends(self, case, supervisor):
        """The supervisor's own end is an end of everything it has started."""
        puppet = await case("stdio_stubborn_tree", "30")
        await puppet.reach(State.READY)
        tree = [puppet.noted("launcher")[0]["pid"], puppet.noted("worker")[0]["pid"]]
        with anyio.fail_after(5):
            await supervisor.close()

        assert [False, False] == [is_alive(pid) for pid in tree]


class TestEraProbe:
    @pytest.mark.parametrize(("mode", "starts", "seconds"), [("exit", 2, 2.0), ("silent", 1, 4.0), ("confused", 1, 2.0)])
    async def test_one_that_cannot_stand_the_probe_is_connected_soon(self, case, quick, mode, starts, seconds):
        """It is ready by `initialize` in little time, in a fresh process where the first one died, and no crash is counted."""
        no_end_allowed = replace(quick, intensity=Intensity(ends=0, within=60.0))
        puppet = await case("stdio_discover_exit", mode, restart=no_end_allowed)
        await puppet.reach(State.READY, seconds=seconds)

        assert ("legacy", starts) == (puppet.status.era, len(puppet.noted("start")))
        assert "up" == await puppet.call(text="up")

    @pytest.mark.parametrize("mode", ["exit", "silent", "confused"])
    async def test_the_outcome_is_remembered(self, case, mode):
        """The next process is not asked again."""
        puppet = await case("stdio_discover_exit", mode)
        await puppet.reach(State.READY)
        generation, asked = puppet.status.generation, puppet.asked("server/discover")
        await puppet.supervisor.order("puppet", Order.RESTART, who="test")
        with anyio.fail_after(5):
            await puppet.supervisor.wait_until(
                "puppet", lambda status: status.generation > generation and status.state is State.READY
            )

        assert (1, 1) == (asked, puppet.asked("server/discover"))


class TestEarlyTraffic:
    async def test_a_server_may_speak_and_ask_before_it_answers(self, case, supervisor):
        """Early notifications are taken, pings answered at any time, and what is not supported is refused, never ignored."""
        with supervisor.bus.subscribe(size=1000) as events:
            puppet = await case("stdio_early_traffic")
            await puppet.reach(State.READY)
            notified: list[ServerNotified] = []
            with anyio.fail_after(5):
                while not notified:
                    event = await anext(events)
                    notified += [event] if isinstance(event, ServerNotified) else []
        answered = [(note["method"], note["ok"], note["code"]) for note in puppet.noted("answered")]

        assert [
            ("ping", True, None),
            ("ping", True, None),
            ("roots/list", False, -32601),
            ("vendor/unknown", False, -32601),
        ] == (sorted(answered))
        assert [] == puppet.noted("unanswered")
        assert ("notifications/message", "warming up") == (notified[0].method, notified[0].params["data"])
        assert "up" == await puppet.call(text="up")
        assert 1 == puppet.status.generation


class TestPages:
    @pytest.mark.parametrize(
        ("mode", "tools", "most_calls", "warning"),
        [
            ("cycle", ["echo", "t1", "t2", "t3"], 4, "a cursor came a second time"),
            ("same", ["echo", "t1", "t2", "t3"], 2, "a cursor came a second time"),
            ("endless", ["echo"], 100, "the list has more than 100 pages"),
            ("empty", ["echo"], 2, "name stands in the list already; the first one is kept"),
        ],
    )
    async def test_pages_that_never_end_are_cut(self, case, mode, tools, most_calls, warning):
        """Reading stops at a cursor that was used and at a budget of our own; what was had is kept, repeats are dropped."""
        puppet = await case("stdio_cursor_loop", mode)
        await puppet.reach(State.READY)

        assert tools == puppet.tools
        assert most_calls == len(puppet.noted("list"))
        assert warning in {drop.why for drop in puppet.told(CatalogEntryDropped)}
        assert "up" == await puppet.call(text="up")
        assert (State.READY, 1) == (puppet.status.state, puppet.status.generation)


class TestBadTools:
    GOOD = ("echo", "any_of", "recursive", "empty_schema", "bad_output")
    ODD_NAMES = ("Echo", "has space/and:signs", "工具", "n" * 200)

    async def test_each_entry_is_judged_by_itself(self, case):
        """The good tools stay and can be called, whatever stands beside them; odd names are the gateway's to make fit."""
        puppet = await case("stdio_bad_tools")
        await puppet.reach(State.READY)
        for name in self.GOOD:
            assert "up" == await puppet.call(name, text="up")

        assert [*self.GOOD, *self.ODD_NAMES] == puppet.tools
        assert list(self.GOOD) == [note["name"] for note in puppet.noted("call")]
        assert (State.READY, 1) == (puppet.status.state, puppet.status.generation)

    async def test_what_is_wrong_is_told_once_with_server_and_tool(self, case):
        """Every entry that was dropped or repaired has one warning that names it and why."""
        puppet = await case("stdio_bad_tools")
        await puppet.reach(State.READY)
        told = {(drop.server, drop.entry): drop.why for drop in puppet.told(CatalogEntryDropped)}
        named = ("bad_output", "no_schema", "null_schema", "string_schema", "required_inside", "remote_ref", "echo")
        nameless = ("entry 15", "entry 16", "entry 17", "entry 18", "entry 19")

        assert {("puppet", name) for name in (*named, *nameless)} == told.keys()
        assert len(told) == len(puppet.told(CatalogEntryDropped))
        assert "name stands in the list already; the first one is kept" == told["puppet", "echo"]
        assert "never fetched" in told["puppet", "remote_ref"]
        assert "the tool is kept without it" in told["puppet", "bad_output"]

    async def test_repairs_are_made_in_the_tool_itself(self, case):
        """A bad output schema is taken off, of two equal names the first is kept, and an empty schema is one of an object."""
        puppet = await case("stdio_bad_tools")
        await puppet.reach(State.READY)
        tools = {tool["name"]: tool for tool in puppet.supervisor.connection("puppet").offer.tools}

        assert "outputSchema" not in tools["bad_output"]
        assert "Return the given text." == tools["echo"]["description"]
        assert {"type": "object"} == tools["empty_schema"]["inputSchema"]


class TestStorm:
    async def test_hundreds_of_notices_are_a_handful_of_lists(self, case):
        """One list at a time, one more after the last notice, exactly the last list, and calls that work meanwhile."""
        puppet = await case("stdio_list_changed_storm", "300")
        await puppet.reach(State.READY)
        longest = 0.0

        def over() -> bool:
            return bool(puppet.noted("storm-over")) and ["echo", "extra_final"] == puppet.tools

        with anyio.fail_after(10):
            while not over():
                began = time.perf_counter()
                assert "meanwhile" == await puppet.call(text="meanwhile")
                longest = max(longest, time.perf_counter() - began)
        lists = puppet.noted("list")

        assert {1} == {note["at_once"] for note in lists}
        assert 2 <= len(lists) <= 10
        assert lists[-1]["time"] >= puppet.noted("storm-over")[0]["time"]
        assert len(puppet.told(CatalogChanged)) <= len(lists)
        assert longest < 1.0
        assert 1 == puppet.status.generation


MODES = ("404-json", "404-empty", "404-html", "400", "200-sse", "late")


class TestLostSession:
    @pytest.fixture
    async def session(self, supervisor: Supervisor, tmp_path: Path, quick: RestartPolicy) -> AsyncIterator[Callable[..., Any]]:
        """Puts an HTTP puppet under supervision: `await session("404-html")`; gives the case and the puppet."""
        with ExitStack() as puppets:

            async def start(*args: str) -> tuple[Case, Puppet]:
                puppet = puppets.enter_context(http_puppet("http_session_expiry.py", *args))
                await supervisor.apply([ServerSpec(name="http", target=HttpTarget(url=puppet.url), restart=quick)])
                case = Case(supervisor, "http", tmp_path / "http.log")
                await case.reach(State.READY)
                return case, puppet

            yield start

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_read_does_not_notice(self, session, mode):
        """The id is dropped, the handshake made without it, and what only reads is repeated once: the caller has its answer."""
        case, puppet = await session(mode)
        before = puppet.state()
        puppet.control("expire")
        result = await case.request("tools/list")
        after = puppet.state()

        assert ["echo", "add_one"] == [tool["name"] for tool in result["tools"]]
        assert 1 == after["dead_requests"] - before["dead_requests"]
        assert (2, 0) == (after["initializes"], after.get("init_with_session", 0))
        assert ["session_lost"] == [event.cause for event in case.told(SessionLost)]

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_tool_is_not_called_twice(self, session, mode):
        """The server may have run it before it said so: the caller is told that nobody knows, and the next call works."""
        case, puppet = await session(mode)
        puppet.control("expire")
        failure = await case.failure("tools/call", {"name": "add_one", "arguments": {}})
        once = puppet.state().get("added", 0)
        await case.call("add_one")

        assert (Outcome.MAYBE_EXECUTED, "session_lost") == (failure.outcome, failure.cause)
        assert (1 if mode == "late" else 0) == once
        assert once + 1 == puppet.state()["added"]
        assert (2, 0) == (puppet.state()["initializes"], puppet.state().get("init_with_session", 0))

    @pytest.mark.parametrize("mode", MODES)
    async def test_many_that_fail_together_share_one_recovery(self, session, mode):
        """Ten calls meet the loss at once, and there is one handshake for all of them."""
        case, puppet = await session(mode, "--every", "50")
        puppet.control("expire")
        failures: list[RequestFailed] = []

        async def call() -> None:
            try:
                await case.call("add_one")
            except RequestFailed as failure:
                failures.append(failure)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(call)
        added = puppet.state().get("added", 0)
        with anyio.fail_after(5):
            await case.supervisor.wait_until("http", lambda status: status.generation > 1 and status.state is State.READY)

        assert 2 == puppet.state()["initializes"]
        assert {Outcome.MAYBE_EXECUTED} == {failure.outcome for failure in failures}
        assert (10 if mode == "late" else 10 - len(failures)) == added

    async def test_sessions_that_run_out_are_renewed_again_and_again(self, session):
        """Five requests a session, twenty reads: every one has its answer."""
        case, puppet = await session("404-json")
        for _ in range(20):
            await case.request("tools/list")

        assert 5 <= puppet.state()["initializes"] <= 7

    async def test_a_session_that_ends_at_once_is_backed_off_from(self, session):
        """Where each new session ends at once too, tries become rarer, whatever callers do."""
        case, puppet = await session("404-json", "--every", "1")
        before = puppet.state()["initializes"]
        began = time.monotonic()
        while time.monotonic() - began < 2.0:
            with suppress(RequestFailed):
                await case.request("tools/list", deadline=0.5)
        tries = puppet.state()["initializes"] - before
        waits = [event.next_attempt - event.at for event in case.told(ServerStateChanged) if event.new is State.BACKOFF]

        assert 4 <= len(waits) <= tries + 1 <= 16
        assert all(step / 2 <= wait <= step + 0.02 for step, wait in zip([0.05, 0.1, 0.2, 0.4], waits, strict=False))

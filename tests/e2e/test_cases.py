"""What servers of the field say: each case run by a puppet, and what its header says a client must do.

The supervisor runs in this process, as a library; the puppets are real processes, and `$FIELD_LOG` tells what they saw.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import time

import anyio
import pytest
from tests.processes import resident

from mcpvisor.supervisor.cleaning import clean_text
from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.events import (
    CatalogChanged,
    CatalogEntryDropped,
    Event,
    MessageRefused,
    ServerNotified,
    StderrWritten,
    StdoutNoise,
)
from mcpvisor.supervisor.process.stderr import LINE_CHARACTERS, RING_LINES
from mcpvisor.supervisor.spec import Era
from mcpvisor.supervisor.states import State

pytestmark = pytest.mark.anyio


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


class TestMended:
    SCRIPT = """
import json, os, sys
ill = not os.path.exists(os.environ["FIELD_STATE"])
open(os.environ["FIELD_STATE"], "w").close()
listed = [{"name": "echo", "inputSchema": {"type": "object"}}] + ([{"name": ""}, 5] if ill else [])
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}
sys.stdout.write("not a message\\n" * 90 if ill else "")
for line in sys.stdin:
    message = json.loads(line)
    answers = {"initialize": info, "tools/list": {"tools": listed}, "ping": {}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answers[message["method"]]}), flush=True)
"""

    async def test_a_server_that_was_mended_is_accused_of_nothing(self, case):
        """What a process wrote to stdout and left wrong in its lists is told of it in full, and of none after it."""
        puppet = await case("stdio_inline", self.SCRIPT, era=Era.LEGACY)
        ill_pid = (await puppet.reach(State.READY)).pid
        ill = puppet.supervisor.signs("puppet")
        os.kill(ill_pid, signal.SIGKILL)
        with anyio.fail_after(30):
            await puppet.supervisor.wait_until("puppet", lambda one: one.pid != ill_pid and one.state is State.READY)
        mended = puppet.supervisor.signs("puppet")

        assert (90, "not a message", 2, 2) == (ill.noise, ill.excerpt, ill.dropped, len(ill.drops))
        assert ("", 0, "", 0, ()) == (mended.cause, mended.noise, mended.excerpt, mended.dropped, mended.drops)


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
            with anyio.fail_after(20):
                while len(notified) < 2:
                    event = await anext(events)
                    notified += [event] if isinstance(event, ServerNotified) else []

        assert "Übung ☃" == answer
        assert ["before ☃ Übung ☃"] * 2 == [event.params["data"] for event in notified]


class TestHugeLine:
    @pytest.mark.alone
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


class TestEarlyTraffic:
    async def test_a_server_may_speak_and_ask_before_it_answers(self, case, supervisor):
        """Early notifications are taken, pings answered at any time, and what is not supported is refused, never ignored."""
        with supervisor.bus.subscribe(size=1000) as events:
            puppet = await case("stdio_early_traffic")
            await puppet.reach(State.READY)
            notified: list[ServerNotified] = []
            with anyio.fail_after(20):
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

        odd = self.ODD_NAMES[1:]  # "Echo" is a name like any other

        assert {("puppet", name) for name in (*named, *nameless, *(clean_text(name, 120) for name in odd))} == told.keys()
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
    @pytest.mark.alone
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

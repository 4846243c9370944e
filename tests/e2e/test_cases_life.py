"""How servers of the field live and die: each case run by a puppet, and what its header says a client must do."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace

import anyio
import pytest
from tests.e2e.case import are_steps
from tests.processes import is_alive

from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.events import ProcessEnded, ProcessStarted, ServerStateChanged
from mcpvisor.supervisor.spec import Intensity
from mcpvisor.supervisor.states import COMING, State
from mcpvisor.supervisor.supervisor import Order

pytestmark = pytest.mark.anyio


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
        waits = [
            event.next_attempt - event.at
            for event in puppet.told(ServerStateChanged)
            if event.new is State.BACKOFF and event.next_attempt is not None  # none yet while the process is still ending
        ]
        life = [event for event in puppet.supervisor.history("puppet") if isinstance(event, ProcessStarted | ProcessEnded)]

        assert reason.startswith(f"ended more than 5 times in 60 s; last: the server exited with code {code}")
        assert re.fullmatch(rf"exited with code {code} after \d+\.\d s", status.last_exit)
        assert word in puppet.supervisor.stderr_tail("puppet")
        assert (starts, starts) == (len(puppet.noted("start")), len(puppet.told(ProcessStarted)))
        assert are_steps([0.05, 0.1, 0.2, 0.4, 0.4], waits)
        assert [ProcessStarted, ProcessEnded] * starts == [type(event) for event in life]
        assert (State.READY, pid) == (other.status.state, other.status.pid)

    async def test_pending_calls_fail_at_once(self, case):
        """A call that is in flight when the process ends does not wait for its own time to run out."""
        puppet = await case("stdio_exit_after_init", "after-list", call_timeout=60.0, wait_ready=0.01)
        await puppet.reach(State.RESTORING)
        began = time.monotonic()
        failure = await puppet.failure()

        assert time.monotonic() - began < 15.0
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
        with anyio.fail_after(20):
            after = await puppet.supervisor.wait_until(
                "puppet", lambda status: status.pid != pid and status.state in (State.READY, State.CRASH_LOOP)
            )

        assert ends_in is after.state


class TestSlowStart:
    async def test_a_cold_start_is_waited_for(self, case):
        """The limit of a start is its own, not that of a call; one process, no second one on top, others not held up."""
        puppet = await case("stdio_slow_start", "6", "lossy", start_timeout=60.0, call_timeout=0.3, wait_ready=0.2)
        other = await case("lite", name="other")
        await other.reach(State.READY)
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
        puppet = await case("stdio_slow_start", "30", "lossy", start_timeout=3.0)
        reason = (await puppet.reach(State.BACKOFF)).reason

        assert reason.startswith("did not answer the handshake within 3 s (start_timeout)")
        assert "still writing to stderr" in reason

    async def test_a_silent_start_that_timed_out_does_not(self, case):
        """A server that hangs without a word is not said to be at work."""
        puppet = await case("lite", "--hang-init", start_timeout=0.5)
        reason = (await puppet.reach(State.BACKOFF)).reason

        assert "did not answer the handshake within 0.5 s (start_timeout)" == reason

    async def test_later_tries_are_given_more_time(self, case):
        """A start that loses its progress when it is ended gets there in the end, for each try may take twice as long."""
        puppet = await case("stdio_slow_start", "3", "lossy", start_timeout=1.2)
        await puppet.reach(State.READY)

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
        assert took < 10.0
        # The launcher leaves at the first signal, and what it leaves behind is killed: the worker may note no signal at all.
        ladder = sorted(puppet.noted("stdin-eof") + puppet.noted("worker-ignored-signal"), key=lambda note: note["time"])
        assert "stdin-eof" == ladder[0]["event"]
        assert {15} >= {note["signal"] for note in ladder[1:]}
        if way in ("restart", "config change"):
            assert (await puppet.reach(State.READY)).pid not in tree

    async def test_nothing_is_left_when_the_supervisor_ends(self, case, supervisor):
        """The supervisor's own end is an end of everything it has started."""
        puppet = await case("stdio_stubborn_tree", "30")
        await puppet.reach(State.READY)
        tree = [puppet.noted("launcher")[0]["pid"], puppet.noted("worker")[0]["pid"]]
        with anyio.fail_after(20):
            await supervisor.close()

        assert [False, False] == [is_alive(pid) for pid in tree]


class TestEraProbe:
    @pytest.mark.parametrize(("mode", "starts", "seconds"), [("exit", 2, 10.0), ("silent", 1, 12.0), ("confused", 1, 10.0)])
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
        with anyio.fail_after(20):
            await puppet.supervisor.wait_until(
                "puppet", lambda status: status.generation > generation and status.state is State.READY
            )

        assert (1, 1) == (asked, puppet.asked("server/discover"))

"""The table of states, walked by hand and at random, with time as an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcpvisor.supervisor import lifecycle_messages as lc
from mcpvisor.supervisor.lifecycle import Lifecycle
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.spec import HttpTarget, Intensity, RestartPolicy, RestartRule, ServerSpec, StdioLaunch
from mcpvisor.supervisor.states import ADMITTING, AT_REST, State


def spec(**changes: object) -> ServerSpec:
    return replace(ServerSpec(name="files", target=StdioLaunch(command="files")), **changes)


def http(**changes: object) -> ServerSpec:
    return replace(ServerSpec(name="docs", target=HttpTarget(url="http://127.0.0.1:1/mcp")), **changes)


def machine(made: ServerSpec | None = None, jitter: float = 1.0) -> Lifecycle:
    return Lifecycle(made or spec(), lambda: jitter)


def opens(commands: list[lc.Command]) -> list[int]:
    return [command.generation for command in commands if isinstance(command, lc.Open)]


def run_to_ready(cycle: Lifecycle, now: float = 0.0) -> int:
    cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), now)
    return bring_up(cycle, now)


def bring_up(cycle: Lifecycle, now: float) -> int:
    number = cycle.generation
    for event in (lc.Launched(number), lc.Opened(number), lc.Negotiated(number), lc.Restored(number)):
        cycle.handle(event, now)
    assert cycle.state is State.READY
    return number


def end(cycle: Lifecycle, now: float, cause: str = "process_exited", **more: object) -> list[lc.Command]:
    number = cycle.generation
    commands = cycle.handle(lc.Ended(number, cause, "exited with code 1", **more), now)
    return commands + cycle.handle(lc.Closed(number), now)


class TestUptime:
    def test_a_failed_start_after_a_stop_has_not_lived_by_the_one_before_it(self) -> None:
        """What ran before the stop says nothing of the process that was started after it: its end is waited out."""
        cycle = machine()
        first = run_to_ready(cycle)
        cycle.handle(lc.WantedSet(Wanted.STOPPED, "ordered"), 100.0)
        cycle.handle(lc.Closed(first), 101.0)
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "ordered"), 102.0)
        cycle.handle(lc.Launched(2), 102.0)
        end(cycle, 103.0)

        assert (State.BACKOFF, 104.0) == (cycle.state, cycle.next_attempt)


class TestTheWayUp:
    def test_a_server_passes_the_states_in_order(self) -> None:
        """starting, negotiating, restoring and ready follow each other."""
        cycle = machine()
        seen = []
        for event in (
            lc.WantedSet(Wanted.RUNNING, "test"),
            lc.Opened(1),
            lc.Negotiated(1),
            lc.Restored(1),
        ):
            cycle.handle(event, 0.0)
            seen.append(cycle.state)

        assert seen == [State.STARTING, State.NEGOTIATING, State.RESTORING, State.READY]

    @pytest.mark.parametrize(("stderr_at", "is_said"), [(None, False), (94.0, False), (96.0, True), (100.0, True)])
    def test_a_start_that_timed_out_while_stderr_moved_says_so(self, stderr_at: float | None, is_said: bool) -> None:
        """Whoever wrote to stderr within five seconds of the limit was at work; what a former process wrote says nothing."""
        cycle = machine(spec(start_timeout=5.5))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 94.5)
        cycle.handle(lc.Launched(1), 94.5)
        cycle.handle(lc.Opened(1), 94.5)
        cycle.handle(lc.TimePassed(stderr_at), 100.0)

        assert (cycle.state, "still writing to stderr" in cycle.reason) == (State.BACKOFF, is_said)

    def test_what_could_not_be_restored_is_degraded_and_named(self) -> None:
        """Calls work, and the reason says what does not."""
        cycle = machine()
        number = run_to_ready(cycle)
        cycle.handle(lc.Impaired(number, "probe 1/3 missed"), 1.0)

        assert (cycle.state, cycle.reason) == (State.DEGRADED, "probe 1/3 missed")

    def test_the_time_to_start_runs_from_the_launch_and_not_from_the_queue(self) -> None:
        """A server that waits for its turn to start does not use up its own time."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        before = cycle.deadline
        cycle.handle(lc.Launched(1), 40.0)

        assert (before, cycle.deadline) == (None, 100.0)

    def test_a_start_that_timed_out_gets_twice_the_time_up_to_five_minutes(self) -> None:
        """Later tries get more time, since a cold package start may need it."""
        cycle = machine(spec(restart=RestartPolicy(intensity=None)))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        budgets, now = [], 0.0
        for _ in range(5):
            cycle.handle(lc.Launched(cycle.generation), now)
            assert cycle.deadline is not None
            budgets.append(cycle.deadline - now)
            number, now = cycle.generation, cycle.deadline
            cycle.handle(lc.TimePassed(), now)
            assert cycle.state is State.BACKOFF
            cycle.handle(lc.Closed(number), now)
            now = cycle.deadline or now
            cycle.handle(lc.TimePassed(), now)

        assert budgets == [60.0, 120.0, 240.0, 300.0, 300.0]


class TestTheWayBack:
    def test_the_first_restart_is_immediate_when_the_generation_had_served(self) -> None:
        """Whoever calls next hardly notices."""
        cycle = machine()
        run_to_ready(cycle)
        end(cycle, 1.0, served=True)

        assert (cycle.state, cycle.next_attempt) == (State.BACKOFF, 1.0)

    def test_the_delay_doubles_when_generations_end_unused(self) -> None:
        """1, 2, 4, 8 seconds (at full jitter), and no more than max_delay."""
        cycle = machine(spec(restart=RestartPolicy(intensity=None, max_delay=10.0)))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        delays, now = [], 0.0
        for _ in range(6):
            bring_up(cycle, now)
            end(cycle, now)
            assert cycle.next_attempt is not None
            delays.append(cycle.next_attempt - now)
            now = cycle.next_attempt
            cycle.handle(lc.TimePassed(), now)

        assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]

    def test_too_many_ends_are_a_crash_loop_with_a_half_open_try(self) -> None:
        """The sixth end within a minute parks the server, and one try follows after five minutes."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        now = 0.0
        for _ in range(6):
            bring_up(cycle, now)
            end(cycle, now, served=True)
            if cycle.state is State.BACKOFF:
                cycle.handle(lc.TimePassed(), now)

        assert (cycle.state, cycle.next_attempt) == (State.CRASH_LOOP, 300.0)
        assert opens(cycle.handle(lc.TimePassed(), 300.0)) == [7]

    def test_real_uptime_forgets_what_was(self) -> None:
        """After stable_after the count and the delay begin anew; a mere handshake changes nothing."""
        cycle = machine()
        run_to_ready(cycle)
        for _ in range(4):
            end(cycle, 0.0, served=True)
            cycle.handle(lc.TimePassed(), 0.0)
            bring_up(cycle, 0.0)
        cycle.handle(lc.TimePassed(), 60.0)
        states = []
        for _ in range(5):
            end(cycle, 61.0, served=True)
            states.append(cycle.state)
            cycle.handle(lc.TimePassed(), 61.0)
            bring_up(cycle, 61.0)

        assert states == [State.BACKOFF] * 5

    def test_failed_dials_never_become_a_crash_loop(self) -> None:
        """An HTTP server that is away is dialled for ever, with a capped delay."""
        cycle = machine(http())
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        now = 0.0
        for _ in range(50):
            end(cycle, now, "connect_failed")
            assert cycle.next_attempt is not None
            delay, now = cycle.next_attempt - now, cycle.next_attempt
            cycle.handle(lc.TimePassed(), now)

        assert (cycle.generation, delay) == (51, 60.0)

    def test_retry_after_is_obeyed(self) -> None:
        """A server that names a time is not asked before it."""
        cycle = machine(http())
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0, "connect_failed", retry_after_s=42.0)

        assert cycle.next_attempt == 42.0

    @pytest.mark.parametrize("cause", ["no_such_program", "permission", "bad_cwd", "tls", "redirect", "version_mismatch"])
    def test_what_cannot_work_as_written_is_failed_and_tried_slowly(self, cause: str) -> None:
        """Every five minutes, since a machine changes too; it is no crash loop."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0, cause)

        assert (cycle.state, cycle.next_attempt) == (State.FAILED, 300.0)

    def test_a_server_that_does_not_survive_the_probe_is_started_again_at_once(self) -> None:
        """It is no crash, and no second process meets the first."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        cycle.handle(lc.Opened(1), 0.0)
        early = cycle.handle(lc.Ended(1, "era_probe", "ended when asked"), 0.0)
        late = cycle.handle(lc.Closed(1), 0.1)

        assert (opens(early), opens(late), cycle.state) == ([], [2], State.STARTING)

    def test_a_lost_session_is_renewed_while_answers_are_still_coming(self) -> None:
        """The new session does not wait for the calls that are in flight on the old one."""
        cycle = machine(http())
        number = run_to_ready(cycle)
        commands = cycle.handle(lc.Ended(number, "session_lost", "404", served=True), 1.0)
        again = cycle.handle(lc.TimePassed(), 1.0)

        assert lc.Retire(number, 30.0) in commands
        assert opens(again) == [2]

    @pytest.mark.parametrize(
        ("rule", "code", "expected"),
        [
            (RestartRule.ALWAYS, 0, State.BACKOFF),
            (RestartRule.ON_FAILURE, 1, State.BACKOFF),
            (RestartRule.ON_FAILURE, 0, State.STOPPED),
            (RestartRule.NEVER, 1, State.FAILED),
            (RestartRule.NEVER, 0, State.STOPPED),
        ],
    )
    def test_the_restart_policy_decides(self, rule: RestartRule, code: int, expected: State) -> None:
        """always, on-failure and never do what their names say."""
        cycle = machine(spec(restart=RestartPolicy(policy=rule)))
        run_to_ready(cycle)
        end(cycle, 1.0, exit_code=code)

        assert cycle.state is expected

    @pytest.mark.parametrize(
        ("rule", "code", "expected", "next_attempt"),
        [
            (RestartRule.ALWAYS, 78, State.FAILED, None),
            (RestartRule.ON_FAILURE, 78, State.FAILED, None),
            (RestartRule.ALWAYS, 3, State.STOPPED, None),
            (RestartRule.ALWAYS, 143, State.BACKOFF, 1.0),
            (RestartRule.ON_FAILURE, 143, State.STOPPED, None),
            (RestartRule.NEVER, 143, State.STOPPED, None),
            (RestartRule.ON_FAILURE, 1, State.BACKOFF, 1.0),
        ],
    )
    def test_exit_codes_are_classed(self, rule: RestartRule, code: int, expected: State, next_attempt: float | None) -> None:
        """A code of `success_codes` is a good end; one of `prevent_codes` ends it whatever the policy, well or not."""
        cycle = machine(spec(restart=RestartPolicy(policy=rule, success_codes=(143, 3), prevent_codes=(78, 3))))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0, exit_code=code)

        assert (expected, next_attempt) == (cycle.state, cycle.next_attempt)

    def test_who_is_not_started_again_says_why(self) -> None:
        """The reason names the key, and an order starts it all the same."""
        cycle = machine(spec(restart=RestartPolicy(prevent_codes=(1,))))
        run_to_ready(cycle)
        end(cycle, 1.0, exit_code=1)

        assert "exited with code 1, after which it is not to be started again (restart.prevent_codes)" == cycle.reason
        assert [2] == opens(cycle.handle(lc.WantedSet(Wanted.RUNNING, "ordered"), 2.0))

    @pytest.mark.parametrize(
        ("cause", "state", "next_attempt"),
        [
            ("auth", State.AUTH_REQUIRED, 10.0),
            ("protocol", State.BACKOFF, 1.0),
            ("no_answer", State.BACKOFF, 1.0),
            ("start_timeout", State.BACKOFF, 1.0),
            ("stdout_closed", State.BACKOFF, 1.0),
            ("internal", State.BACKOFF, 1.0),
        ],
    )
    def test_each_cause_has_its_own_reaction(self, cause: str, state: State, next_attempt: float) -> None:
        """Credentials wait for others; what may mend itself is tried again soon."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0, cause)

        assert (state, next_attempt) == (cycle.state, cycle.next_attempt)

    def test_a_crash_loop_lasts_until_real_uptime(self) -> None:
        """A half-open try that fails leads back to it, and to no quicker tries; a minute of being up ends it."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        for _ in range(6):
            bring_up(cycle, 0.0)
            end(cycle, 0.0, served=True)
            cycle.handle(lc.TimePassed(), 0.0)
        seen = []
        for attempt in range(1, 4):
            cycle.handle(lc.TimePassed(), 300.0 * attempt)
            end(cycle, 300.0 * attempt)
            seen.append((cycle.state, cycle.next_attempt))
        cycle.handle(lc.TimePassed(), 1200.0)
        bring_up(cycle, 1200.0)
        cycle.handle(lc.TimePassed(), 1260.0)
        end(cycle, 1261.0)

        assert seen == [(State.CRASH_LOOP, 600.0), (State.CRASH_LOOP, 900.0), (State.CRASH_LOOP, 1200.0)]
        assert cycle.state is State.BACKOFF

    def test_what_failed_for_good_is_not_healthy_and_can_be_started(self) -> None:
        """A policy of never leaves a crashed server wanted, failed and without a next try."""
        cycle = machine(spec(restart=RestartPolicy(policy=RestartRule.NEVER)))
        run_to_ready(cycle)
        end(cycle, 1.0, exit_code=3)
        failed = (cycle.wanted, cycle.state, cycle.next_attempt, cycle.reason)
        started = opens(cycle.handle(lc.WantedSet(Wanted.RUNNING, "ordered"), 2.0))

        assert failed == (Wanted.RUNNING, State.FAILED, None, "exited with code 1; its restart policy is never")
        assert started == [2]

    def test_a_list_that_hangs_does_not_end_the_session(self) -> None:
        """Calls are served already; the state says what is missing until the lists are in."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        for event in (lc.Launched(1), lc.Opened(1), lc.Negotiated(1)):
            cycle.handle(event, 0.0)
        cycle.handle(lc.TimePassed(), 60.0)
        hanging = (cycle.state, cycle.reason)
        cycle.handle(lc.Restored(1), 70.0)

        assert hanging == (State.DEGRADED, "its lists are not read after 60 s; calls are served")
        assert (cycle.state, cycle.generation) == (State.READY, 1)


class TestRefusedCredentials:
    def test_they_are_tried_ever_more_slowly(self) -> None:
        """A refusal of a few seconds costs little, and one that lasts hammers nobody; being let in forgets it."""
        cycle = machine(http())
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        waits, now = [], 0.0
        for _ in range(7):
            end(cycle, now, "auth")
            assert cycle.next_attempt is not None
            waits.append(cycle.next_attempt - now)
            now = cycle.next_attempt
            cycle.handle(lc.TimePassed(), now)
        bring_up(cycle, now)
        end(cycle, now + 1, "auth")

        assert [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0] == waits
        assert (State.AUTH_REQUIRED, now + 11) == (cycle.state, cycle.next_attempt)

    def test_what_the_server_said_counts(self) -> None:
        """A time that it named is waited for, whatever was waited before."""
        cycle = machine(http())
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0, "auth", retry_after_s=77.0)

        assert cycle.next_attempt == 77.0


class TestWaking:
    def test_callers_do_not_override_what_the_server_asked_for(self) -> None:
        """A server that named a time is not woken before it, however many call."""
        cycle = machine(http())
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0, "busy", retry_after_s=20.0)

        assert [opens(cycle.handle(lc.Woken(), at)) for at in (5.0, 19.0, 20.0)] == [[], [], [2]]

    def test_a_call_wakes_one_try(self) -> None:
        """A server in backoff is tried at once when somebody wants it."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0)

        assert opens(cycle.handle(lc.Woken(), 1.0)) == [2]

    def test_callers_cannot_cause_more_than_one_try_per_delay(self) -> None:
        """However many call, the tries are a delay apart."""
        cycle = machine(spec(restart=RestartPolicy(intensity=None)))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0)
        tries = []
        for tenth in range(100):
            opened = opens(cycle.handle(lc.Woken(), tenth / 10))
            tries += opened
            if opened:
                end(cycle, tenth / 10)

        assert len(tries) == 9

    def test_callers_wake_a_crash_loop_ever_more_rarely(self) -> None:
        """A client that calls all the time: each try in vain doubles the wait for the next, up to the longest delay."""
        cycle = machine(spec(restart=RestartPolicy(delay=1.0, max_delay=60.0, intensity=Intensity(ends=1, within=60.0))))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0)
        opened_at = []
        for tenth in range(10, 2400):
            if opens(cycle.handle(lc.Woken(), tenth / 10)):
                opened_at.append(tenth / 10)
                end(cycle, tenth / 10)

        # The first ends of all make the loop; after it 1, 2, 4, 8, 16, 32 and then always 60 seconds.
        assert cycle.state is State.CRASH_LOOP
        assert [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 124.0, 184.0] == opened_at

    def test_a_refused_call_is_told_when_the_next_one_may_wake_the_server(self) -> None:
        """The next try by itself may be minutes away: a call is worth another try as soon as it may ask for one."""
        cycle = machine(
            spec(restart=RestartPolicy(delay=1.0, crash_loop_retry=300.0, intensity=Intensity(ends=1, within=60.0)))
        )
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        end(cycle, 0.0)
        told = [(cycle.state, cycle.next_attempt, cycle.call_again_at)]
        for at in (1.0, 2.0, 4.0):
            cycle.handle(lc.Woken(), at)
            end(cycle, at)
            told.append((cycle.state, cycle.next_attempt, cycle.call_again_at))

        assert told == [
            (State.BACKOFF, 1.0, 1.0),
            (State.CRASH_LOOP, 301.0, 2.0),
            (State.CRASH_LOOP, 302.0, 4.0),
            (State.CRASH_LOOP, 304.0, 8.0),
        ]

    def test_callers_wake_at_once_again_after_the_end_of_a_crash_loop(self) -> None:
        """Being up for long forgets how often calls have woken it in vain."""
        cycle = machine(spec(restart=RestartPolicy(delay=1.0, stable_after=60.0, intensity=Intensity(ends=1, within=60.0))))
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        for at in (0.0, 1.0, 2.0, 4.0, 8.0):
            cycle.handle(lc.Woken(), at)
            end(cycle, at)
        cycle.handle(lc.Woken(), 16.0)
        bring_up(cycle, 16.0)
        cycle.handle(lc.TimePassed(), 80.0)
        end(cycle, 100.0)
        cycle.handle(lc.TimePassed(), 100.0)
        end(cycle, 100.0)

        assert [[], [cycle.generation + 1]] == [opens(cycle.handle(lc.Woken(), at)) for at in (100.9, 101.0)]


class TestOrders:
    def test_a_stop_drains_and_then_rests(self) -> None:
        """Calls in flight may finish; after that nothing is left."""
        cycle = machine()
        number = run_to_ready(cycle)
        commands = cycle.handle(lc.WantedSet(Wanted.STOPPED, "ordered"), 1.0)
        draining = cycle.state
        cycle.handle(lc.Closed(number), 2.0)

        assert lc.Retire(number, 30.0) in commands
        assert (draining, cycle.state, cycle.reason) == (State.DRAINING, State.STOPPED, "ordered")

    def test_a_stop_during_a_restart_is_not_lost(self) -> None:
        """What is wanted is stored: the order that came last holds."""
        cycle = machine()
        number = run_to_ready(cycle)
        cycle.handle(lc.RestartOrdered("ordered"), 1.0)
        cycle.handle(lc.WantedSet(Wanted.STOPPED, "ordered"), 1.0)
        commands = cycle.handle(lc.Closed(number), 2.0)

        assert (opens(commands), cycle.state) == ([], State.STOPPED)

    def test_a_start_during_a_stop_starts_after_it(self) -> None:
        """Never two processes, and never a lost order."""
        cycle = machine()
        number = run_to_ready(cycle)
        cycle.handle(lc.WantedSet(Wanted.STOPPED, "ordered"), 1.0)
        early = cycle.handle(lc.WantedSet(Wanted.RUNNING, "start ordered"), 1.0)
        late = cycle.handle(lc.Closed(number), 2.0)

        assert (opens(early), opens(late)) == ([], [2])
        # Calls that come meanwhile wait for it, and all are told why it starts.
        assert early == [lc.Moved(State.DRAINING, State.DRAINING, "start ordered")]
        assert commands_of(late, lc.Moved) == [lc.Moved(State.DRAINING, State.STARTING, "start ordered")]

    def test_a_next_try_that_comes_earlier_than_was_shown_is_told(self) -> None:
        """A try that waits for nothing but the end of the last process has no time: it follows as soon as that is gone."""
        cycle = machine()
        cycle.handle(lc.WantedSet(Wanted.RUNNING, "test"), 0.0)
        number = cycle.generation
        cycle.handle(lc.Ended(number, "start_timeout", "did not start"), 2.0)
        due = cycle.next_attempt
        told = cycle.handle(lc.RestartOrdered("restart ordered"), 2.1)

        assert due == 3.0
        assert told == [lc.Moved(State.BACKOFF, State.BACKOFF, cycle.reason)]
        assert cycle.next_attempt is None
        assert opens(cycle.handle(lc.Closed(number), 7.0)) == [number + 1]

    def test_an_end_while_stopping_is_no_crash(self) -> None:
        """A process that goes because it was asked to is not started again."""
        cycle = machine()
        number = run_to_ready(cycle)
        cycle.handle(lc.WantedSet(Wanted.DISABLED, "ordered"), 1.0)
        cycle.handle(lc.Ended(number, "process_exited", "exited with code 0"), 1.0)
        cycle.handle(lc.Closed(number), 1.0)

        assert (cycle.state, cycle.next_attempt) == (State.DISABLED, None)


def commands_of(commands: list[lc.Command], *kinds: type) -> list[lc.Command]:
    return [command for command in commands if isinstance(command, kinds)]


def overlapping(**changes: object) -> ServerSpec:
    return spec(overlap=True, restart=RestartPolicy(intensity=None), **changes)


class TestPlannedReplacement:
    @pytest.mark.parametrize("made", [http(), overlapping()])
    def test_the_next_generation_is_ready_before_the_last_one_is_given_up(self, made: ServerSpec) -> None:
        """HTTP, and processes whose entry allows it: the server never stops to serve, and the last one drains."""
        cycle = machine(made)
        number = run_to_ready(cycle)
        ordered = cycle.handle(lc.RestartOrdered("restart ordered"), 10.0)
        seen = [(cycle.state, cycle.reason)]
        for event in (lc.Launched(2), lc.Opened(2), lc.Negotiated(2)):
            assert [] == cycle.handle(event, 10.0)
            seen.append((cycle.state, cycle.reason))
        switched = cycle.handle(lc.Restored(2), 11.0)

        assert [lc.Open(2, "order")] == commands_of(ordered, lc.Open, lc.Retire)
        assert [(State.READY, "restart ordered; the next session is being opened")] * 4 == seen
        assert [lc.Serve(2), lc.Retire(number, 30.0)] == commands_of(switched, lc.Serve, lc.Retire)
        assert (State.READY, "") == (cycle.state, cycle.reason)

    def test_a_process_is_ended_before_the_next_one_starts(self) -> None:
        """Without `overlap` there are never two of them."""
        cycle = machine()
        number = run_to_ready(cycle)
        commands = cycle.handle(lc.RestartOrdered("restart ordered"), 10.0)

        assert [lc.Retire(number, 30.0)] == commands_of(commands, lc.Open, lc.Retire)
        assert State.DRAINING is cycle.state

    def test_one_that_does_not_come_up_changes_nothing_but_the_reason(self) -> None:
        """The last one serves on, the reason says so, and the next try follows by the delay curve."""
        cycle = machine(http())
        run_to_ready(cycle)
        cycle.handle(lc.SpecChanged(http(), restart=True), 10.0)
        failed = cycle.handle(lc.Ended(2, "connect_failed", "refused"), 10.0)
        shown = (cycle.state, cycle.reason)
        cycle.handle(lc.Closed(2), 10.0)
        due = cycle.deadline
        again = cycle.handle(lc.TimePassed(), 11.0)
        cycle.handle(lc.Restored(3), 12.0)

        trouble = "its entry was changed, but the next session did not come up (refused); the former one serves on"
        assert [lc.Retire(2, 0.0)] == commands_of(failed, lc.Retire, lc.Serve)
        assert (State.DEGRADED, trouble) == shown
        assert (11.0, [3]) == (due, opens(again))
        assert (State.READY, "") == (cycle.state, cycle.reason)

    @pytest.mark.parametrize(("cause", "seconds"), [("auth", 300.0), ("tls", 300.0), ("protocol", 1.0)])
    def test_what_an_edit_has_to_mend_is_tried_slowly_beside_the_one_that_serves(self, cause: str, seconds: float) -> None:
        """As it would be if nothing served."""
        cycle = machine(http())
        run_to_ready(cycle)
        cycle.handle(lc.SpecChanged(http(), restart=True), 10.0)
        cycle.handle(lc.Ended(2, cause, "refused"), 10.0)

        assert 10.0 + seconds == cycle.deadline

    def test_one_that_hangs_is_given_up_in_its_time(self) -> None:
        """A handshake that is not answered costs nothing but a try."""
        cycle = machine(http(start_timeout=10.0))
        run_to_ready(cycle)
        cycle.handle(lc.RestartOrdered("ordered"), 10.0)
        cycle.handle(lc.Launched(2), 10.0)
        commands = cycle.handle(lc.TimePassed(), 20.0)

        assert [lc.TimedOut(2), lc.Retire(2, 0.0)] == commands_of(commands, lc.TimedOut, lc.Retire)
        assert "not ready within 10 s" in cycle.reason

    @pytest.mark.parametrize(
        ("steps", "state"),
        [([], State.STARTING), ([lc.Opened(2)], State.NEGOTIATING), ([lc.Opened(2), lc.Negotiated(2)], State.RESTORING)],
    )
    def test_when_the_one_that_serves_ends_the_next_is_the_server(self, steps: list[lc.Input], state: State) -> None:
        """As far as it has come, and no third one is opened."""
        cycle = machine(http())
        number = run_to_ready(cycle)
        cycle.handle(lc.RestartOrdered("ordered"), 10.0)
        for event in (lc.Launched(2), *steps):
            cycle.handle(event, 10.0)
        commands = cycle.handle(lc.Ended(number, "session_lost", "404"), 11.0)
        reached = cycle.state
        more = [cycle.handle(event, 12.0) for event in (lc.Opened(2), lc.Negotiated(2), lc.Restored(2))]

        assert (state, []) == (reached, opens(commands))
        assert (State.READY, []) == (cycle.state, [number for one in more for number in opens(one)])

    def test_an_order_to_stop_ends_both(self) -> None:
        """What is wanted counts, whatever is under way."""
        cycle = machine(http())
        number = run_to_ready(cycle)
        cycle.handle(lc.RestartOrdered("ordered"), 10.0)
        commands = cycle.handle(lc.WantedSet(Wanted.STOPPED, "ordered"), 10.0)
        for gone in (2, number):
            cycle.handle(lc.Closed(gone), 11.0)

        assert [lc.Retire(2, 0.0), lc.Retire(number, 30.0)] == commands_of(commands, lc.Retire)
        assert State.STOPPED is cycle.state

    def test_a_second_edit_withdraws_the_first(self) -> None:
        """Only what is wanted now comes up, and one at a time."""
        cycle = machine(overlapping())
        run_to_ready(cycle)
        cycle.handle(lc.SpecChanged(overlapping(max_message=5000), restart=True), 10.0)
        commands = cycle.handle(lc.SpecChanged(overlapping(max_message=6000), restart=True), 10.0)
        later = cycle.handle(lc.Closed(2), 10.5)

        assert ([lc.Retire(2, 0.0)], [3]) == (commands_of(commands, lc.Retire, lc.Open), opens(later))

    @pytest.mark.parametrize("begin", [http, overlapping])
    def test_an_edit_that_is_taken_back_before_it_took_over_leaves_the_session_alone(
        self, begin: Callable[..., ServerSpec]
    ) -> None:
        """What serves is what is wanted again: the other one goes, be it between two tries, and no third one comes."""
        cycle = machine(begin())
        run_to_ready(cycle)
        cycle.handle(lc.SpecChanged(begin(max_message=5000), restart=True), 10.0)
        cycle.handle(lc.Ended(2, "connect_failed", "refused"), 11.0)
        between = (cycle.coming, cycle.coming_reason, cycle.state)
        cycle.handle(lc.Closed(2), 11.0)
        commands = cycle.handle(lc.SpecChanged(begin(queue=3), restart=True), 11.5)
        late = cycle.handle(lc.TimePassed(), 1000.0)

        assert (State.BACKOFF, "refused", State.DEGRADED) == between
        assert ([], [], False) == (opens(commands), opens(late), cycle.is_replacing)
        assert (State.READY, State.READY, "") == (cycle.state, cycle.coming, cycle.reason)

    def test_what_has_taken_over_is_what_the_next_edit_is_compared_with(self) -> None:
        """The former version is another one by then, and needs a session of its own."""
        cycle = machine(http())
        run_to_ready(cycle)
        cycle.handle(lc.SpecChanged(http(max_message=5000), restart=True), 10.0)
        for event in (lc.Launched(2), lc.Opened(2), lc.Negotiated(2), lc.Restored(2)):
            cycle.handle(event, 11.0)
        cycle.handle(lc.SpecChanged(http(max_message=6000), restart=True), 12.0)

        assert ([], 4) == (
            opens(cycle.handle(lc.SpecChanged(http(max_message=5000), restart=True), 13.0)),
            cycle.generation + 1,
        )
        assert State.READY is cycle.coming
        assert [4] == opens([*cycle.handle(lc.SpecChanged(http(), restart=True), 14.0), *cycle.handle(lc.Closed(3), 14.0)])


class TestMemoryCeiling:
    def over(self, cycle: Lifecycle, now: float, used: int = 2_000_000_000) -> list[lc.Command]:
        return cycle.handle(lc.MemorySampled(cycle.generation, used), now)

    def ceiling(self, **changes: object) -> ServerSpec:
        return spec(restart=RestartPolicy(max_memory=1 << 30), **changes)

    def test_what_uses_too_much_is_replaced_in_good_order(self) -> None:
        """Calls in flight have their drain, and the reason says why."""
        cycle = machine(self.ceiling())
        number = run_to_ready(cycle)
        before = self.over(cycle, 15.0, 1 << 30)
        commands = self.over(cycle, 30.0)
        late = cycle.handle(lc.Closed(number), 31.0)

        assert ([], [lc.Retire(number, 30.0)]) == (before, commands_of(commands, lc.Retire))
        assert "it uses 1907 MiB, over the 1024 MiB of restart.max_memory" == cycle.reason
        assert [lc.Open(2, "memory")] == commands_of(late, lc.Open)

    def test_it_is_said_while_it_has_to_wait(self) -> None:
        """Over its ceiling again within `stable_after` it says so, and from when on it is replaced; within it, nothing."""
        cycle = machine(self.ceiling())
        number = run_to_ready(cycle)
        self.over(cycle, 30.0)
        cycle.handle(lc.Closed(number), 31.0)
        bring_up(cycle, 32.0)
        before = cycle.recycling
        self.over(cycle, 45.0)
        waiting = cycle.recycling
        self.over(cycle, 60.0, 1 << 30)

        due = 30.0 + cycle.spec.restart.stable_after
        assert ("", None) == before == cycle.recycling
        assert ("it uses 1907 MiB, over the 1024 MiB of restart.max_memory", due) == waiting

    def test_it_is_done_once_in_stable_after(self) -> None:
        """A server that is over its ceiling from the start is no reason for a loop."""
        cycle = machine(self.ceiling(overlap=True))
        run_to_ready(cycle)
        recycled = []
        for quarter in range(12):
            now = 15.0 * quarter
            for number in opens(self.over(cycle, now)):
                recycled.append(now)
                cycle.handle(lc.Restored(number), now)
                cycle.handle(lc.Closed(number - 1), now)

        assert [0.0, 60.0, 120.0] == recycled

    def test_without_a_ceiling_nothing_is_weighed(self) -> None:
        """The default is none."""
        cycle = machine()
        run_to_ready(cycle)

        assert [] == self.over(cycle, 15.0, 1 << 60)


STEPS = [lc.Launched, lc.Opened, lc.Negotiated, lc.Restored]
"""What a generation tells on its way up, in order."""


class Walk(RuleBasedStateMachine):
    """Any order of inputs, as an actor could give them."""

    @initialize(
        made=st.sampled_from([spec, http, partial(spec, overlap=True)]),
        intensity=st.sampled_from([None, Intensity(ends=2, within=60.0)]),
    )
    def begin(self, made: Callable[..., ServerSpec], intensity: Intensity | None) -> None:
        self.cycle = machine(made(restart=RestartPolicy(intensity=intensity, max_memory=1000)), 0.5)
        self.now = 0.0
        self.alive: set[int] = set()
        self.steps: dict[int, int] = {}
        self.most = 0

    def give(self, event: lc.Input) -> None:
        for command in self.cycle.handle(event, self.now):
            if isinstance(command, lc.Open):
                self.alive.add(command.generation)
                self.most = max(self.most, len(self.alive))

    @rule(wanted=st.sampled_from(list(Wanted)))
    def order(self, wanted: Wanted) -> None:
        self.give(lc.WantedSet(wanted, "ordered"))

    @rule()
    def restart(self) -> None:
        self.give(lc.RestartOrdered("ordered"))

    @rule()
    def edit(self) -> None:
        self.give(lc.SpecChanged(self.cycle.spec, restart=True))

    @rule(used=st.sampled_from([10, 10_000]))
    def sample(self, used: int) -> None:
        if self.cycle._current is not None:
            self.give(lc.MemorySampled(self.cycle._current, used))

    @rule()
    def wake(self) -> None:
        self.give(lc.Woken())

    @rule(seconds=st.floats(0.0, 400.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.give(lc.TimePassed())

    @precondition(lambda self: self.alive)
    @rule(
        data=st.data(),
        make=st.sampled_from(STEPS),
    )
    def tell(self, data: st.DataObject, make: type) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        step = STEPS.index(make)
        if step >= self.steps.get(number, 0):  # no generation goes back
            self.steps[number] = step
            self.give(make(number))

    @precondition(lambda self: self.alive)
    @rule(
        data=st.data(),
        cause=st.sampled_from(["process_exited", "connect_failed", "session_lost", "auth", "era_probe", "no_such_program"]),
        served=st.booleans(),
    )
    def end(self, data: st.DataObject, cause: str, served: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        if cause != "era_probe" or self.steps.get(number, 0) < STEPS.index(lc.Negotiated):  # it is asked before it serves
            self.give(lc.Ended(number, cause, "ended", served=served))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.alive)))
        beside = self.cycle._replacement
        if number == self.cycle._current or (beside is not None and number == beside.generation):
            self.give(lc.Ended(number, "closed", "the wire was closed"))
        self.alive.discard(number)
        self.give(lc.Closed(number))

    @invariant()
    def no_state_waits_for_nothing(self) -> None:
        """Every state has a deadline, a known next try, a generation that will report, or an operator to wait for."""
        if not hasattr(self, "cycle"):
            return
        cycle = self.cycle
        waits_for_somebody = cycle.state in AT_REST or bool(self.alive) or cycle.generation == 0
        assert waits_for_somebody or cycle.deadline is not None, cycle.state

    @invariant()
    def rest_means_rest(self) -> None:
        """At rest nothing runs, and nothing runs that is not wanted."""
        if hasattr(self, "cycle") and self.cycle.state in AT_REST and self.cycle.generation:
            assert not self.alive

    @invariant()
    def two_processes_only_where_that_is_allowed(self) -> None:
        """A stdio server never has two processes, and with `overlap` never three that are not on their way out."""
        if hasattr(self, "cycle") and self.cycle.spec.transport == "stdio":
            assert len(self.cycle._held.open) <= (2 if self.cycle.spec.overlap else 1)

    @invariant()
    def who_serves_is_known(self) -> None:
        """While calls pass there is a generation they go to, and another one beside it only then."""
        if hasattr(self, "cycle"):
            serves = self.cycle.state in ADMITTING
            assert not serves or self.cycle._current is not None
            assert serves or self.cycle._replacement is None


Walk.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestWalk = Walk.TestCase


class TestOtherCredentials:
    @pytest.mark.parametrize("cause", ["auth", "auth_unavailable", "connect_failed"])
    def test_they_are_tried_at_once_where_no_session_stands(self, cause: str) -> None:
        """Whatever a server that is away waits for, an edit of how it is reached may be it."""
        cycle = machine(http())
        run_to_ready(cycle)
        end(cycle, 1.0, cause)
        cycle.handle(lc.SpecChanged(http(queue=1), restart=False), 2.0)
        waiting = cycle.state
        other = http(target=HttpTarget(url="http://127.0.0.1:1/mcp", headers=(("Authorization", "x"),)))

        assert opens(cycle.handle(lc.SpecChanged(other, restart=False), 3.0)) == [2]
        assert waiting in (State.AUTH_REQUIRED, State.BACKOFF)

    def test_they_are_tried_at_once_beside_the_session_that_serves(self) -> None:
        """An edit that did not come up for want of them is not put off; one that is being tried asks for them anyway."""
        cycle = machine(http())
        run_to_ready(cycle)
        cycle.handle(lc.SpecChanged(http(), restart=True), 1.0)
        first = http(target=HttpTarget(url="http://127.0.0.1:1/mcp", headers=(("Authorization", "x"),)))
        under_way = cycle.handle(lc.SpecChanged(first, restart=False), 2.0)
        cycle.handle(lc.Ended(2, "auth", "401"), 3.0)
        cycle.handle(lc.Closed(2), 3.0)
        cycle.handle(lc.SpecChanged(replace(first, queue=1), restart=False), 4.0)
        waiting = (cycle.state, cycle.next_attempt)
        second = http(target=HttpTarget(url="http://127.0.0.1:1/mcp", headers=(("Authorization", "y"),)))

        assert (under_way, waiting) == ([], (State.DEGRADED, 303.0))
        assert opens(cycle.handle(lc.SpecChanged(second, restart=False), 5.0)) == [3]

    def test_a_session_that_stands_is_left_alone(self) -> None:
        """It asks for them with its next request; and a server that is to rest is not started for them."""
        cycle = machine(http())
        run_to_ready(cycle)
        other = http(target=HttpTarget(url="http://127.0.0.1:1/mcp", headers=(("Authorization", "x"),)))

        assert cycle.handle(lc.SpecChanged(other, restart=False), 1.0) == []
        end(cycle, 2.0, "auth")
        assert cycle.handle(lc.SpecChanged(http(enabled=False), restart=False), 3.0) == []

    def test_a_refusal_in_mid_session_lets_answers_come(self) -> None:
        """Requests that were let through before have answers on their way: they have the time of a drain."""
        cycle = machine(http(drain=7.0))
        run_to_ready(cycle)
        commands = cycle.handle(lc.Ended(1, "auth", "401"), 1.0)

        assert lc.Retire(1, 7.0) in commands
        assert cycle.state is State.AUTH_REQUIRED

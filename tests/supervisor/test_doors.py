"""The small rules of the door: who gets in, what is sent twice, and what a failed probe says of the era."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.admission import Admission
from mcpvisor.supervisor.backoff import delay_before
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.negotiation import is_legacy_evidence
from mcpvisor.supervisor.replay import READ_ONLY, may_replay
from mcpvisor.supervisor.spec import RestartPolicy, ServerSpec, StdioLaunch

SPEC = ServerSpec(name="files", target=StdioLaunch(command="files"))
TRUSTING = replace(SPEC, trust_hints=True)
REPLAYING = replace(SPEC, replay_on_session_loss=True)
READS: dict[str, Any] = {"annotations": {"readOnlyHint": True}}
TWICE: dict[str, Any] = {"annotations": {"idempotentHint": True}}


class TestReplay:
    @pytest.mark.parametrize("method", [*sorted(READ_ONLY), "tools/call", "vendor/anything"])
    def test_what_was_not_sent_may_always_be_sent(self, method: str) -> None:
        """Whatever it is: the server has never seen it."""
        assert may_replay(RequestFailed(Outcome.NOT_SENT, "connect_failed", "x"), method, None, SPEC)

    @pytest.mark.parametrize("cause", ["auth", "busy", "queue_full", "tls"])
    def test_what_will_not_be_sent_a_moment_later_is_told_at_once(self, cause: str) -> None:
        """Credentials, limits and certificates do not mend themselves while a caller waits."""
        for outcome in (Outcome.NOT_SENT, Outcome.MAYBE_EXECUTED):
            assert not may_replay(RequestFailed(outcome, cause, "x"), "tools/list", None, SPEC)

    @pytest.mark.parametrize("method", sorted(READ_ONLY))
    def test_reads_may_be_sent_again(self, method: str) -> None:
        """Doing them twice is the same as doing them once."""
        assert may_replay(RequestFailed(Outcome.MAYBE_EXECUTED, "process_exited", "x"), method, None, SPEC)

    @pytest.mark.parametrize(
        ("spec", "tool", "cause", "expected"),
        [
            (SPEC, None, "session_lost", False),
            (SPEC, READS, "session_lost", False),
            (TRUSTING, None, "process_exited", False),
            (TRUSTING, READS, "process_exited", True),
            (TRUSTING, TWICE, "process_exited", True),
            (TRUSTING, {"annotations": {"readOnlyHint": "true"}}, "process_exited", False),
            (TRUSTING, {"annotations": "yes"}, "process_exited", False),
            (REPLAYING, None, "session_lost", True),
            (REPLAYING, None, "process_exited", False),
            (TRUSTING, READS, "answer_refused", False),
        ],
    )
    def test_a_call_that_may_have_run_is_only_repeated_by_permission(
        self, spec: ServerSpec, tool: dict[str, Any] | None, cause: str, expected: bool
    ) -> None:
        """The operator's, and where hints are trusted the tool's."""
        assert may_replay(RequestFailed(Outcome.MAYBE_EXECUTED, cause, "x"), "tools/call", tool, spec) is expected

    @pytest.mark.parametrize("outcome", [Outcome.PEER_ERROR, Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.REJECTED])
    def test_every_other_outcome_is_final(self, outcome: Outcome) -> None:
        """An answer is an answer."""
        assert not may_replay(RequestFailed(outcome, "x", "x"), "tools/list", READS, TRUSTING)


class TestEraEvidence:
    @pytest.mark.parametrize(
        ("outcome", "cause", "code", "data", "stdio", "http"),
        [
            (Outcome.PEER_ERROR, "error_answer", -32601, None, True, True),
            (Outcome.PEER_ERROR, "error_answer", -32602, None, True, True),
            (Outcome.PEER_ERROR, "error_answer", -32000, None, True, False),
            (Outcome.PEER_ERROR, "http_refused", -32000, {"http_status": 405}, True, True),
            (Outcome.PEER_ERROR, "http_refused", -32000, {"http_status": 418}, True, False),
            (Outcome.NOT_SENT, "not_streamable_http", -32000, None, True, True),
            (Outcome.NOT_SENT, "auth", -32000, None, False, False),
            (Outcome.NOT_SENT, "busy", -32000, None, False, False),
            (Outcome.NOT_SENT, "connect_failed", -32000, None, False, False),
            (Outcome.MAYBE_EXECUTED, "server_error", -32000, None, False, False),
            (Outcome.TIMEOUT, "deadline", -32001, None, False, False),
        ],
    )
    def test_only_an_answer_of_the_protocol_shows_an_older_server(
        self, outcome: Outcome, cause: str, code: int, data: Any, stdio: bool, http: bool
    ) -> None:
        """On HTTP an outage, a limit or a refused credential says nothing of the era; on stdio every error answer does."""
        failure = RequestFailed(outcome, cause, "x", code=code, data=data)

        assert is_legacy_evidence(failure, stdio=True) is stdio
        assert is_legacy_evidence(failure, stdio=False) is http


class TestDelays:
    @given(attempt=st.integers(0, 10_000), jitter=st.floats(0, 1, exclude_max=True), delay=st.floats(0.001, 100))
    def test_delays_are_bounded_and_never_next_to_nothing(self, attempt: int, jitter: float, delay: float) -> None:
        """Between half a step and a whole one, and never over max_delay."""
        policy = RestartPolicy(delay=delay, max_delay=60.0)
        waited = delay_before(attempt, policy, lambda: jitter)

        assert waited == 0.0 if attempt == 0 else min(delay, 60.0) / 2 <= waited <= 60.0


@pytest.mark.anyio
class TestAdmission:
    @pytest.fixture(params=["virtual"])
    def anyio_backend(self) -> Any:
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    async def test_places_are_given_in_the_order_of_arrival(self) -> None:
        """Nobody overtakes."""
        admission, order = Admission(concurrency=1, queue=10), []

        async def enter(number: int) -> None:
            async with admission.place():
                order.append(number)
                await anyio.sleep(1)

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(enter, number)
                await anyio.wait_all_tasks_blocked()

        assert order == [0, 1, 2, 3, 4]
        assert (admission.running, admission.queued) == (0, 0)

    async def test_a_caller_who_leaves_takes_no_place_along(self) -> None:
        """Whether it waited or was just let in."""
        admission = Admission(concurrency=1, queue=10)

        async def enter() -> None:
            async with admission.place():
                await anyio.sleep(1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            await anyio.wait_all_tasks_blocked()
            for give_up_after in (0.5, 1.0):
                with anyio.move_on_after(give_up_after):
                    await enter()

        assert (admission.running, admission.queued) == (0, 0)

    async def test_a_higher_limit_lets_those_in_who_wait(self) -> None:
        """An edit of `concurrency` helps at once."""
        admission = Admission(concurrency=1, queue=10)

        async def enter() -> None:
            async with admission.place():
                await anyio.sleep(10)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(enter)
            await anyio.wait_all_tasks_blocked()
            before = (admission.running, admission.queued)
            admission.limit(3, 10)
            after = (admission.running, admission.queued)

        assert (before, after) == ((1, 2), (3, 0))

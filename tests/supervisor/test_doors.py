"""The small rules of the door: who gets in, how long is waited, and what a failed probe says of the era."""

from __future__ import annotations

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
from mcpvisor.supervisor.spec import RestartPolicy


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
    def test_delays_are_any_part_of_their_step(self, attempt: int, jitter: float, delay: float) -> None:
        """The jitter is full: as much of the step as it says, which doubles and is never over max_delay."""
        policy = RestartPolicy(delay=delay, max_delay=60.0)
        waited = delay_before(attempt, policy, lambda: jitter)

        step = 0.0 if attempt == 0 else min(60.0, delay * 2.0 ** min(attempt - 1, 30))
        assert waited == pytest.approx(step * jitter)
        assert 0.0 <= waited <= 60.0


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

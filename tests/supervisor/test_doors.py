"""The small rules of the door: who gets in, how long is waited, and what a failed probe says of the era."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import trio.testing
from anyio.abc import TaskGroup
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.supervisor.admission import Admission
from mcpvisor.supervisor.backoff import delay_before
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.negotiation import is_legacy_evidence
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import RestartPolicy

SOMEBODY = Principal("somebody", "1")


class Crowd:
    """Callers of one server, named `identity/session`, each of whose calls takes a second."""

    def __init__(self, admission: Admission, tasks: TaskGroup) -> None:
        self.admission = admission
        self.tasks = tasks
        self.running: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.order: list[str] = []

    def call(self, caller: str, times: int) -> None:
        """So many calls at one time."""
        for _ in range(times):
            self.tasks.start_soon(self._call, caller)

    def call_again_and_again(self, caller: str, times: int) -> None:
        """So many calls, one after another."""

        async def calls() -> None:
            for _ in range(times):
                await self._call(caller)

        self.tasks.start_soon(calls)

    async def _call(self, caller: str) -> None:
        name, _, session = caller.partition("/")
        try:
            async with self.admission.place(Principal(name, session or None)):
                self.order.append(caller)
                self.running[caller] += 1
                await anyio.sleep(1)
                self.running[caller] -= 1
        except RequestFailed as failure:
            self.refused[caller] += (failure.outcome, failure.cause) == (Outcome.REJECTED, "queue_full")


@asynccontextmanager
async def crowded(admission: Admission) -> AsyncIterator[Crowd]:
    """Those who call, and who are sent away at the end."""
    async with anyio.create_task_group() as tasks:
        yield Crowd(admission, tasks)
        tasks.cancel_scope.cancel()


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
            async with admission.place(SOMEBODY):
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
            async with admission.place(SOMEBODY):
                await anyio.sleep(1)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            await anyio.wait_all_tasks_blocked()
            for give_up_after in (0.5, 1.0):
                with anyio.move_on_after(give_up_after):
                    await enter()

        assert (admission.running, admission.queued) == (0, 0)

    async def test_a_session_leaves_a_quarter_of_the_places_to_others_and_an_identity_an_eighth(self) -> None:
        """Whoever calls as much as it can does not keep others out: of 16 places one session has 12, one identity 14."""
        async with crowded(Admission(concurrency=16, queue=64)) as crowd:
            crowd.call("a/1", 20)
            await anyio.wait_all_tasks_blocked()
            first = dict(crowd.running)
            crowd.call("a/2", 20)
            await anyio.wait_all_tasks_blocked()
            second = dict(crowd.running)
            crowd.call("b/1", 1)
            await anyio.wait_all_tasks_blocked()
            crowd.call("c", 2)
            await anyio.wait_all_tasks_blocked()

            assert first == {"a/1": 12}
            assert second == {"a/1": 12, "a/2": 2}
            assert dict(crowd.running) == {"a/1": 12, "a/2": 2, "b/1": 1, "c": 1}

    async def test_a_free_place_goes_to_whoever_has_fewest(self) -> None:
        """An identity that waits with many calls gets no more turns than one that waits with one."""
        async with crowded(Admission(concurrency=1, queue=64)) as crowd:
            crowd.call("a/1", 1)
            await anyio.wait_all_tasks_blocked()
            crowd.call("a/1", 3)
            crowd.call("a/2", 1)
            crowd.call("b/1", 1)
            await anyio.sleep(10)

        assert crowd.order == ["a/1", "b/1", "a/2", "a/1", "a/1", "a/1"]

    async def test_whoever_comes_again_and_again_does_not_overtake_whoever_waits(self) -> None:
        """Two that call one after another without an end: the one with a backlog has every third turn."""
        async with crowded(Admission(concurrency=1, queue=64)) as crowd:
            crowd.call("a/1", 10)
            await anyio.wait_all_tasks_blocked()
            crowd.call_again_and_again("b/1", 9)
            await anyio.wait_all_tasks_blocked()
            crowd.call_again_and_again("c/1", 9)
            await anyio.sleep(12.5)
            orders = "".join(order[0] for order in crowd.order)

        assert orders == "abcabcabcabca"

    async def test_where_the_queue_is_full_whoever_has_most_in_it_gives_way(self) -> None:
        """The newest call of the greatest is refused, and it was never sent; whoever has most itself is refused at once."""
        async with crowded(Admission(concurrency=1, queue=4)) as crowd:
            crowd.call("a/1", 5)
            await anyio.wait_all_tasks_blocked()
            crowd.call("a/1", 1)
            await anyio.wait_all_tasks_blocked()
            own = dict(crowd.refused)
            crowd.call("b/1", 2)
            await anyio.wait_all_tasks_blocked()
            other = dict(crowd.refused)
            crowd.call("b/2", 1)
            crowd.call("a/2", 1)
            await anyio.wait_all_tasks_blocked()

            assert own == {"a/1": 1}
            assert other == {"a/1": 3}, "two each: who has as much as the other does not give way"
            assert dict(crowd.refused) == {"a/1": 4, "b/1": 1}, "a session that has more gives way to another of its identity"
            assert crowd.admission.queued == 4

    async def test_a_displaced_caller_who_leaves_takes_no_place_along(self) -> None:
        """Refused and cancelled in the same moment."""
        async with crowded(Admission(concurrency=1, queue=2)) as crowd:
            crowd.call("a/1", 3)
            await anyio.wait_all_tasks_blocked()
            crowd.call("b/1", 1)
            crowd.tasks.cancel_scope.cancel()

        assert (crowd.admission.running, crowd.admission.queued) == (0, 0)

    async def test_a_higher_limit_lets_those_in_who_wait(self) -> None:
        """An edit of `concurrency` helps at once."""
        admission = Admission(concurrency=1, queue=10)

        async def enter() -> None:
            async with admission.place(SOMEBODY):
                await anyio.sleep(10)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(enter)
            await anyio.wait_all_tasks_blocked()
            before = (admission.running, admission.queued)
            admission.limit(3, 10)
            after = (admission.running, admission.queued)

        assert (before, after) == ((1, 2), (3, 0))

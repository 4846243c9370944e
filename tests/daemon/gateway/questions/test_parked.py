"""Calls that wait for their client, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.daemon.gateway.questions.parked import NotReached, ParkableCall, ParkedCalls
from mcpvisor.daemon.questions.contract import CanBeAsked
from mcpvisor.supervisor.errors import Outcome, RequestFailed

JsonObject = dict[str, Any]
ALL = CanBeAsked(form=True, url=True, sampling=True, roots=True)
SECONDS = 60.0


class Heard:
    """Stands for who hears what comes before the result."""


class Lines:
    """Stands for a call to a server: who listens just now."""

    hearing: Any = None


def run(scenario: Callable[[ParkedCalls], Awaitable[None]], *, places: int = 4, share: int = 2) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            await scenario(ParkedCalls(tasks, places=places, places_per_principal=share, seconds=SECONDS))
            tasks.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def call_that_asks(parked: ParkedCalls, *questions: str, ended: list[str] | None = None) -> ParkableCall:
    """A call whose server asks each question in turn, and results in the answers."""
    call = ParkableCall(Lines(), ALL)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - no more is needed of it

    async def request() -> JsonObject:
        try:
            return {"answers": [await call.ask("elicitation/create", {"message": text}) for text in questions]}
        except anyio.get_cancelled_exc_class():
            if ended is not None:
                ended.append("withdrawn")
            raise

    parked.begin(call, request)
    return call


def messages(call: ParkableCall) -> list[str]:
    return [one["params"]["message"] for one in call.questions.values()]


async def attend(call: ParkableCall) -> JsonObject | None:
    return await call.attend(Heard())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above


def answers_to(call: ParkableCall, answer: JsonObject) -> JsonObject:
    return dict.fromkeys(call.questions, answer)


YES = {"action": "accept", "content": {}}


def test_a_call_that_asks_nothing() -> None:
    """A call without questions has its result, and was never parked."""

    async def scenario(parked: ParkedCalls) -> None:
        assert await attend(call_that_asks(parked)) == {"answers": []}
        assert len(parked) == 0

    run(scenario)


def test_a_call_that_fails() -> None:
    """What the call raises is raised where it is attended to."""

    async def scenario(parked: ParkedCalls) -> None:
        call = ParkableCall(Lines(), ALL)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above

        async def request() -> JsonObject:
            raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "no")

        parked.begin(call, request)
        with pytest.raises(RequestFailed, match="no"):
            await attend(call)

    run(scenario)


def test_rounds() -> None:
    """A call goes on with each answer, under another handle each time, until it has its result."""

    async def scenario(parked: ParkedCalls) -> None:
        call = call_that_asks(parked, "one", "two")
        handles: list[str] = []
        for text in ("one", "two"):
            assert await attend(call) is None
            assert messages(call) == [text]
            handle = parked.park(call, "a")
            assert handle is not None
            handles.append(handle)
            assert parked.take(handle) is call
            call.answered(answers_to(call, YES), ALL)

        assert await attend(call) == {"answers": [YES, YES]}
        assert handles[0] != handles[1]
        assert [parked.take(handle) for handle in handles] == [None, None]

    run(scenario)


def test_what_is_not_answered_stays_open() -> None:
    """An answer to another question is dropped, and what got none is asked again."""

    async def scenario(parked: ParkedCalls) -> None:
        call = call_that_asks(parked, "one")
        assert await attend(call) is None
        call.answered({"other": YES, next(iter(call.questions)): "nonsense"}, ALL)
        assert await attend(call) is None
        assert messages(call) == ["one"]
        call.answered(answers_to(call, YES), ALL)
        assert await attend(call) == {"answers": [YES]}

    run(scenario)


def test_a_handle_is_good_once() -> None:
    """Whoever comes second with a handle, or with one that never was, gets nothing."""

    async def scenario(parked: ParkedCalls) -> None:
        call = call_that_asks(parked, "one")
        await attend(call)
        handle = parked.park(call, "a")
        assert handle is not None

        assert parked.take("never was") is None
        assert parked.take(handle) is call
        assert parked.take(handle) is None

    run(scenario)


def test_nobody_comes() -> None:
    """After its time a parked call is withdrawn from its server, and its handle is that of nothing."""

    async def scenario(parked: ParkedCalls) -> None:
        ended: list[str] = []
        call = call_that_asks(parked, "one", ended=ended)
        await attend(call)
        handle = parked.park(call, "a")
        assert handle is not None
        await anyio.sleep(SECONDS - 1)
        assert ended == []
        await anyio.sleep(2)

        assert ended == ["withdrawn"]
        assert parked.take(handle) is None
        assert len(parked) == 0

    run(scenario)


def test_the_time_runs_while_it_is_parked_alone() -> None:
    """A call that was taken up has no end from here, and a full time again when it is parked anew."""

    async def scenario(parked: ParkedCalls) -> None:
        ended: list[str] = []
        call = call_that_asks(parked, "one", "two", ended=ended)
        await attend(call)
        for _ in range(3):
            handle = parked.park(call, "a")
            assert handle is not None
            await anyio.sleep(SECONDS - 1)
            assert parked.take(handle) is call
            await anyio.sleep(2 * SECONDS)

        assert ended == []

    run(scenario)


def test_a_result_waits_for_its_client() -> None:
    """A call that ends while it is parked keeps its result for whoever comes in time."""

    async def scenario(parked: ParkedCalls) -> None:
        call = ParkableCall(Lines(), ALL)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above

        async def request() -> JsonObject:
            with anyio.move_on_after(5):
                await call.ask("elicitation/create", {"message": "quick"})
            return {"late": True}

        parked.begin(call, request)
        await attend(call)
        handle = parked.park(call, "a")
        assert handle is not None
        await anyio.sleep(10)
        assert call.questions == {}
        taken = parked.take(handle)
        assert taken is call
        taken.answered({"question-1": YES}, ALL)
        assert await attend(taken) == {"late": True}

    run(scenario)


def test_places() -> None:
    """All calls together have so many places and a principal has its share; what ends makes room."""

    async def scenario(parked: ParkedCalls) -> None:
        async def park(principal: str) -> str | None:
            call = call_that_asks(parked, "one")
            await attend(call)
            handle = parked.park(call, principal)
            if handle is None:
                call.scope.cancel()
            return handle

        of_a = [await park("a") for _ in range(3)]
        of_others = [await park(name) for name in ("b", "c", "d")]
        assert [handle is not None for handle in of_a] == [True, True, False]
        assert [handle is not None for handle in of_others] == [True, True, False]
        assert of_a[0] is not None
        parked.take(of_a[0])
        assert await park("d") is not None
        await anyio.sleep(SECONDS + 1)
        assert await park("a") is not None
        assert len(parked) == 1

    run(scenario)


def test_turned_away() -> None:
    """Where there is no place for a call its questions are put to somebody else, and it goes on."""

    async def scenario(parked: ParkedCalls) -> None:
        call = ParkableCall(Lines(), ALL)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above

        async def request() -> JsonObject:
            try:
                await call.ask("elicitation/create", {})
            except NotReached as why:
                return {"why": str(why)}
            return {}

        parked.begin(call, request)
        assert await attend(call) is None
        call.turn_away()
        assert await attend(call) == {"why": "too many calls wait for their clients already"}

    run(scenario)


def test_a_client_that_leaves() -> None:
    """Whoever attends to a call and leaves withdraws it."""

    async def scenario(parked: ParkedCalls) -> None:
        ended: list[str] = []
        call = ParkableCall(Lines(), ALL)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above

        async def request() -> JsonObject:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("withdrawn")
            return {}

        parked.begin(call, request)
        with anyio.move_on_after(1):
            await attend(call)
        with anyio.fail_after(1):
            while not ended:
                await anyio.sleep(0.1)

    run(scenario)


def test_closing() -> None:
    """When the gateway closes every parked call is withdrawn, and none is parked any more."""

    async def scenario(parked: ParkedCalls) -> None:
        ended: list[str] = []
        first, second = (call_that_asks(parked, "one", ended=ended) for _ in range(2))
        await attend(first)
        await attend(second)
        handle = parked.park(first, "a")
        assert handle is not None
        parked.close()
        await anyio.sleep(0.1)

        assert ended == ["withdrawn"]
        assert parked.take(handle) is None
        assert parked.park(second, "a") is None

    run(scenario)

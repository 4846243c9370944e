"""What servers ask: whose question it is, who answers it, and what it does to the call it belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor import events
from mcpvisor.supervisor.asking import BURST, MAX_OPEN, decline
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.observer import NoObserver
from mcpvisor.supervisor.open_calls import CallClock, OpenCall, Origin, origin_among
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import ELICITATION, ROOTS, SAMPLING, Belongs, Question, QuestionSink
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.exchange import PeerRefusal, peer_error
from tests.supervisor.memory_wire import MemoryServer

pytestmark = pytest.mark.anyio

ANN = Principal("token:ann", "s1")
BOB = Principal("token:bob", "s2")
LONE = Principal("token:ann")
SPEC = ServerSpec(name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))
ASK = {"message": "Which one?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
YES = {"action": "accept", "content": {"a": "x"}}
NO = {"action": "decline"}


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class Seen:
    """A sink that keeps what it was asked, and answers with `answer` after `seconds`."""

    def __init__(self, answer: dict[str, Any] | Exception = YES, *, seconds: float = 0.0) -> None:
        self.questions: list[Question] = []
        self.cancelled = 0
        self.asked = anyio.Event()
        self._answer = answer
        self._seconds = seconds

    async def __call__(self, question: Question) -> dict[str, Any]:
        self.questions.append(question)
        self.asked.set()
        try:
            await anyio.sleep(self._seconds)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@asynccontextmanager
async def asked_by(
    server: MemoryServer, spec: ServerSpec = SPEC, sink: QuestionSink = decline, observer: Any = None
) -> AsyncIterator[Supervisor]:
    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(7200):
        async with Supervisor(opener=opener, guarded=False, on_question=sink, observer=observer) as supervisor:
            await supervisor.apply([spec])
            await supervisor.wait_until("files", lambda status: status.state is State.READY)
            yield supervisor


def told(supervisor: Supervisor, kind: type[events.Event]) -> list[Any]:
    return [event for event in supervisor.history("files") if isinstance(event, kind)]


def asking(server: MemoryServer, method: str = ELICITATION, *, within: bool = False) -> Callable[[Any], Awaitable[Any]]:
    """A handler that asks before it answers, and gives back what it was answered."""

    async def handle(_: dict[str, Any]) -> dict[str, Any]:
        answer = await server.ask(method, ASK, within=within)
        return {"content": [], "heard": answer.get("result", answer.get("error"))}

    return handle


async def call(supervisor: Supervisor, principal: Principal = ANN, tool: str = "echo", **options: Any) -> Any:
    door = supervisor.connection("files")
    return await door.request("tools/call", {"name": tool}, principal=principal, **options)


def open_call(principal: Principal = ANN, method: str = "tools/call", tool: str | None = "echo") -> OpenCall:
    return OpenCall(method, principal, tool=tool, sink=None, clock=CallClock(60.0, 60.0))


class TestWhose:
    async def test_nobody_calls(self) -> None:
        """A question that comes while no call is open is nobody's, and so is one while only lists are read."""
        assert origin_among([]) == origin_among([open_call(method="tools/list")]) == Origin(Belongs.NOBODY)

    @pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read", "vendor/thing"])
    async def test_one_call(self, method: str) -> None:
        """The one call in answer to which a server may ask is meant, whatever else is open."""
        one = open_call(method=method)

        assert origin_among([one, open_call(BOB, "completion/complete")]) == Origin(Belongs.CALL, one, (one,))

    async def test_several_calls_of_one_client(self) -> None:
        """They have the same client; which of its tools is meant nobody knows."""
        first, second = open_call(tool="a"), open_call(tool="b")
        origin = origin_among([first, second])

        assert (origin, origin.tool) == (Origin(Belongs.CALL, second, (first, second)), None)

    @pytest.mark.parametrize("other", [BOB, LONE, Principal("token:ann", "s3"), Principal("token:bob", "s1")])
    async def test_calls_of_several_clients(self, other: Principal) -> None:
        """Another identity, and another session of the same one, is another client: it is not guessed which."""
        calls = [open_call(), open_call(other)]

        assert origin_among(calls) == Origin(Belongs.AMBIGUOUS, None, tuple(calls))

    async def test_calls_without_sessions(self) -> None:
        """In the era without sessions two calls of one identity may be of two clients."""
        calls = [open_call(LONE), open_call(LONE)]

        assert origin_among(calls).belongs is Belongs.AMBIGUOUS

    async def test_a_call_that_was_given_up(self) -> None:
        """A server may still be at what was withdrawn: that counts as another client's call, and is never asked itself."""
        one, gone = open_call(), open_call(BOB)

        assert origin_among([one], [gone]).belongs is Belongs.AMBIGUOUS
        assert origin_among([one], [open_call()]) == Origin(Belongs.CALL, one, (one,))
        assert origin_among([], [gone]).belongs is Belongs.NOBODY


class TestAnswers:
    @pytest.mark.parametrize("within", [True, False])
    async def test_the_caller_is_asked(self, within: bool) -> None:
        """A question that belongs to a call goes to the sink of that call, and to nobody else."""
        server, mine, others = MemoryServer(), Seen(), Seen(NO)
        server.handlers["tools/call"] = asking(server, within=within)
        async with asked_by(server, sink=others) as supervisor:
            result = await call(supervisor, on_question=mine)

        assert result["heard"] == YES
        assert others.questions == []
        assert mine.questions == [
            Question(server="files", method=ELICITATION, params=ASK, belongs=Belongs.CALL, principal=ANN, tool="echo")
        ]

    async def test_a_call_without_a_sink(self) -> None:
        """The supervisor's own sink is asked, and told for whom."""
        server, default = MemoryServer(), Seen()
        server.handlers["tools/call"] = asking(server)
        async with asked_by(server, sink=default) as supervisor:
            await call(supervisor)

        assert [(one.belongs, one.principal, one.tool) for one in default.questions] == [(Belongs.CALL, ANN, "echo")]

    async def test_two_clients_at_once_on_a_wire_that_knows(self) -> None:
        """Each gets the question of its own call."""
        server, ann, bob = MemoryServer(), Seen(YES, seconds=1), Seen(NO, seconds=1)
        server.handlers["tools/call"] = asking(server, within=True)
        heard: dict[str, Any] = {}
        async with asked_by(server) as supervisor, anyio.create_task_group() as tasks:

            async def ask(principal: Principal, sink: Seen) -> None:
                heard[principal.name] = (await call(supervisor, principal, on_question=sink))["heard"]

            tasks.start_soon(ask, ANN, ann)
            tasks.start_soon(ask, BOB, bob)

        assert heard == {"token:ann": YES, "token:bob": NO}
        assert [one.principal for one in (*ann.questions, *bob.questions)] == [ANN, BOB]

    async def test_two_clients_at_once_on_a_wire_that_does_not(self) -> None:
        """Neither is asked; the supervisor's sink hears that it is ambiguous, and by default declines."""
        server, ann, bob = MemoryServer(), Seen(), Seen()
        server.silent = {"tools/call"}
        async with asked_by(server) as supervisor, anyio.create_task_group() as tasks:
            for principal, sink in ((ANN, ann), (BOB, bob)):
                tasks.start_soon(lambda p=principal, s=sink: call(supervisor, p, on_question=s))
            await anyio.wait_all_tasks_blocked()
            answer = await server.ask(ELICITATION, ASK)
            tasks.cancel_scope.cancel()
            belongs = [event.belongs for event in told(supervisor, events.QuestionAsked)]

        assert (answer["result"], ann.questions, bob.questions, belongs) == (NO, [], [], ["ambiguous"])

    async def test_what_was_withdrawn_is_remembered_for_a_while(self) -> None:
        """A server that goes on with a withdrawn call must not ask the next client about it."""
        server, bob = MemoryServer(), Seen()
        server.silent = {"tools/call"}
        async with asked_by(server) as supervisor, anyio.create_task_group() as tasks:
            with anyio.move_on_after(1):
                await call(supervisor)
            tasks.start_soon(lambda: call(supervisor, BOB, on_question=bob))
            await anyio.wait_all_tasks_blocked()
            soon = await server.ask(ELICITATION, ASK)
            await anyio.sleep(11)
            later = await server.ask(ELICITATION, ASK)
            tasks.cancel_scope.cancel()

        assert (soon["result"], later["result"], len(bob.questions)) == (NO, YES, 1)

    async def test_a_question_of_nobody(self) -> None:
        """What is asked right after the handshake has an answerer already."""
        server, default = MemoryServer(), Seen()
        async with asked_by(server, sink=default):
            answer = await server.ask(ELICITATION, ASK)

        assert (answer["result"], [one.belongs for one in default.questions]) == (YES, [Belongs.NOBODY])

    @pytest.mark.parametrize("answer", [ValueError("no"), {"action": "maybe"}, {}, {"action": "accept", "content": object()}])
    async def test_a_sink_that_fails(self, answer: Any) -> None:
        """A sink that breaks, or answers nonsense, is a decline; the call and the session go on."""
        server = MemoryServer()
        server.handlers["tools/call"] = asking(server)
        async with asked_by(server) as supervisor:
            result = await call(supervisor, on_question=Seen(answer))
            outcomes = [event.outcome for event in told(supervisor, events.QuestionAnswered)]
            state = supervisor.status("files").state

        assert (result["heard"], outcomes, state) == (NO, ["failed"], State.READY)

    async def test_a_refusal_is_passed_on(self) -> None:
        """A sink may answer with an error of the protocol."""
        server = MemoryServer()
        server.handlers["tools/call"] = asking(server)
        async with asked_by(server) as supervisor:
            result = await call(supervisor, on_question=Seen(PeerRefusal(-1, "user rejected")))

        assert result["heard"] == {"code": -1, "message": "user rejected"}


class TestOffered:
    @pytest.mark.parametrize(
        ("allow", "expected"),
        [
            ((), {"elicitation": {"form": {}, "url": {}}}),
            (("sampling",), {"elicitation": {"form": {}, "url": {}}, "sampling": {}}),
            (("roots",), {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}),
        ],
    )
    async def test_what_is_declared(self, allow: tuple[str, ...], expected: Any) -> None:
        """Both kinds of elicitation always; sampling and roots only where the entry allows them."""
        server = MemoryServer()
        async with asked_by(server, replace(SPEC, allow=allow)):
            pass

        assert server.initialized_with["capabilities"] == expected

    @pytest.mark.parametrize("method", [SAMPLING, ROOTS, "vendor/question"])
    async def test_what_is_not_offered(self, method: str) -> None:
        """Is refused as a method that there is not, and nobody is asked."""
        server, mine = MemoryServer(), Seen({})
        server.handlers["tools/call"] = asking(server, method)
        async with asked_by(server) as supervisor:
            result = await call(supervisor, on_question=mine)

        assert (result["heard"]["code"], mine.questions) == (-32601, [])

    async def test_what_is_offered(self) -> None:
        """With `allow` the caller is asked; a sink that fails at it is an internal error."""
        server = MemoryServer()
        server.handlers["tools/call"] = asking(server, SAMPLING)
        async with asked_by(server, replace(SPEC, allow=("sampling",))) as supervisor:
            answered = await call(supervisor, on_question=Seen({"role": "assistant", "model": "m"}))
            failed = await call(supervisor, on_question=Seen(ValueError("no")))

        assert answered["heard"] == {"role": "assistant", "model": "m"}
        assert failed["heard"]["code"] == -32603

    async def test_nobody_to_ask(self) -> None:
        """Without an answerer there are no roots, no model, and a no to every elicitation."""
        server = MemoryServer()
        async with asked_by(server, replace(SPEC, allow=("sampling", "roots"))):
            answers = [await server.ask(method, ASK) for method in (ELICITATION, ROOTS, SAMPLING)]

        assert [one.get("result", one.get("error", {}).get("code")) for one in answers] == [NO, {"roots": []}, -32601]

    @pytest.mark.parametrize(("allow", "expected"), [((), 0), (("roots",), 1)])
    async def test_other_roots(self, allow: tuple[str, ...], expected: int) -> None:
        """That a client works in other folders is told to a server that may ask for them, and to no other."""
        server = MemoryServer()
        async with asked_by(server, replace(SPEC, allow=allow)) as supervisor:
            await supervisor.connection("files").roots_changed(principal=ANN)

        assert server.log.count("notifications/roots/list_changed") == expected


class TestNewerEra:
    """A server of 2026-07-28 asks by its result, which is a result like any other here."""

    @staticmethod
    def modern(server: MemoryServer) -> MemoryServer:
        async def discover(_: dict[str, Any]) -> dict[str, Any]:
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "memory", "version": "1"},
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            }

        server.handlers["server/discover"] = discover
        return server

    async def test_capabilities_are_those_of_the_caller(self) -> None:
        """Each request declares what its caller can be asked, as far as the entry allows it; our own declare nothing."""
        server = self.modern(MemoryServer())
        seen: list[Any] = []

        async def keep(params: dict[str, Any]) -> dict[str, Any]:
            seen.append(params["_meta"]["io.modelcontextprotocol/clientCapabilities"])
            return {"content": [], "tools": [], "resultType": "complete"}

        server.handlers["tools/call"] = server.handlers["tools/list"] = keep
        can = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
        async with asked_by(server, replace(SPEC, allow=("roots",))) as supervisor:
            await call(supervisor, client_capabilities=can)

        assert seen == [{}, {"elicitation": {"form": {}}, "roots": {}}]

    async def test_a_round_is_a_result(self) -> None:
        """What it asks for reaches the caller untouched, and the call counts as answered."""
        asks = {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": ELICITATION, "params": ASK}},
            "requestState": "s",
        }
        server = self.modern(MemoryServer())

        async def ask(_: dict[str, Any]) -> dict[str, Any]:
            return asks

        server.handlers["tools/call"] = ask
        ended: list[tuple[str, str]] = []

        class Counting(NoObserver):
            def call_ended(
                self, server: str, transport: str, method: str, outcome: str, error_type: str, seconds: float
            ) -> None:
                ended.append((outcome, error_type))

        async with asked_by(server, observer=Counting()) as supervisor:
            result = await call(supervisor)

        assert (result, ended) == (asks, [("ok", "")])

    @pytest.mark.parametrize(("trust", "sent"), [(False, 1), (True, 2)])
    async def test_a_round_is_of_the_class_of_its_tool(self, trust: bool, sent: int) -> None:
        """One that was lost is sent again where any call of that tool would be, with the same answers."""
        server = self.modern(MemoryServer())
        server.hints = {"readOnlyHint": True}
        rounds: list[Any] = []

        async def lose(params: dict[str, Any]) -> dict[str, Any]:
            rounds.append((params["inputResponses"], params["requestState"]))
            if len(rounds) == 1:
                server.end()
                return await anyio.sleep_forever()
            return {"content": [], "resultType": "complete"}

        server.handlers["tools/call"] = lose
        params = {"name": "echo", "inputResponses": {"q": YES}, "requestState": "s"}
        async with asked_by(server, replace(SPEC, trust_hints=trust)) as supervisor:
            with contextlib.suppress(RequestFailed):
                await supervisor.connection("files").request("tools/call", params, principal=ANN)

        assert rounds == [({"q": YES}, "s")] * sent

    async def test_an_error_that_asks(self) -> None:
        """The error by which revision 2025-11-25 asks for a URL to be opened reaches the caller with its data."""
        data = {"elicitations": [{"mode": "url", "elicitationId": "e", "url": "https://example.com", "message": "Sign in"}]}
        server = MemoryServer()

        async def ask(_: dict[str, Any]) -> Any:
            raise peer_error({"code": -32042, "message": "URL elicitation required", "data": data})

        server.handlers["tools/call"] = ask
        async with asked_by(server) as supervisor:
            with pytest.raises(RequestFailed) as caught:
                await call(supervisor)

        assert (caught.value.outcome, caught.value.code, caught.value.data) == (Outcome.PEER_ERROR, -32042, data)


class TestEnds:
    async def test_the_server_withdraws(self) -> None:
        """A question that the server takes back is cancelled and not answered."""
        server, mine = MemoryServer(), Seen(seconds=60)

        async def handle(_: dict[str, Any]) -> dict[str, Any]:
            server.say({"id": 7, "method": ELICITATION, "params": ASK})
            await anyio.sleep(1)
            server.say({"method": "notifications/cancelled", "params": {"requestId": 7}})
            await anyio.sleep(1)
            return {"content": []}

        server.handlers["tools/call"] = handle
        async with asked_by(server) as supervisor:
            await call(supervisor, on_question=mine)
            outcomes = [event.outcome for event in told(supervisor, events.QuestionAnswered)]

        assert (mine.cancelled, server.heard, outcomes) == (1, [], ["withdrawn"])

    async def test_the_call_ends(self) -> None:
        """A question that is left open by a call that has ended is cancelled, and answered with a decline."""
        server, mine = MemoryServer(), Seen(seconds=60)

        async def handle(_: dict[str, Any]) -> dict[str, Any]:
            server.say({"id": 7, "method": ELICITATION, "params": ASK})
            await mine.asked.wait()
            return {"content": []}

        server.handlers["tools/call"] = handle
        async with asked_by(server) as supervisor:
            await call(supervisor, on_question=mine)
            await anyio.wait_all_tasks_blocked()
            outcomes = [event.outcome for event in told(supervisor, events.QuestionAnswered)]

        assert (mine.cancelled, outcomes) == (1, ["call_ended"])
        assert server.heard == [{"jsonrpc": "2.0", "id": 7, "result": NO}]

    async def test_the_session_ends(self) -> None:
        """The question goes with it, and what was open is not called answered."""
        server, mine = MemoryServer(), Seen(seconds=60)
        server.handlers["tools/call"] = asking(server)
        async with asked_by(server) as supervisor:
            async with anyio.create_task_group() as tasks:

                async def end() -> None:
                    await mine.asked.wait()
                    server.end()

                tasks.start_soon(end)
                with pytest.raises(RequestFailed) as caught:
                    await call(supervisor, on_question=mine)
            outcomes = [event.outcome for event in told(supervisor, events.QuestionAnswered)]

        assert (caught.value.outcome, mine.cancelled, outcomes) == (Outcome.MAYBE_EXECUTED, 1, ["withdrawn"])


class TestTime:
    @pytest.mark.parametrize("options", [{}, {"deadline": 20.0}])
    async def test_the_clock_stops(self, options: Any) -> None:
        """Neither limit of the call, nor one that its caller brought, runs while a person thinks."""
        server, mine = MemoryServer(), Seen(seconds=3600)
        spec = replace(SPEC, call_timeout=30.0, call_max=40.0)
        server.handlers["tools/call"] = asking(server)
        async with asked_by(server, spec) as supervisor:
            result = await call(supervisor, on_question=mine, **options)

        assert result["heard"] == YES

    async def test_the_clock_goes_on(self) -> None:
        """What was left of the time when the question came is left when it is answered."""
        server, mine = MemoryServer(), Seen(seconds=3600)

        async def handle(_: dict[str, Any]) -> dict[str, Any]:
            await anyio.sleep(20)
            await server.ask(ELICITATION, ASK)
            return await anyio.sleep_forever()

        server.handlers["tools/call"] = handle
        async with asked_by(server, replace(SPEC, call_timeout=30.0)) as supervisor:
            before = anyio.current_time()
            with pytest.raises(RequestFailed) as caught:
                await call(supervisor, on_question=mine)
            seconds = anyio.current_time() - before

        assert (caught.value.outcome, caught.value.cause, seconds) == (Outcome.TIMEOUT, "silence", pytest.approx(3630.0))

    async def test_the_time_of_a_call(self) -> None:
        """Both ends move by the time that questions were open, however they overlap; a sign of life counts meanwhile."""
        clock, began = CallClock(hard=100.0, idle=30.0), anyio.current_time()
        await anyio.sleep(20)
        with clock.stopped():
            await anyio.sleep(50)
            with clock.stopped():
                clock.heard()
                await anyio.sleep(50)
            assert clock.scope.deadline == float("inf")
        after = clock.scope.deadline
        await anyio.sleep(25)
        clock.heard()

        assert (after - began, clock.scope.deadline - began) == (pytest.approx(150.0), pytest.approx(175.0))


class TestSilence:
    async def test_a_server_that_waits_for_an_answer_is_not_probed(self) -> None:
        """It may well be able to read nothing else before that; as soon as it has its answer it is probed like any other."""
        server, mine = MemoryServer(), Seen(seconds=600)
        server.handlers["tools/call"] = asking(server)
        async with asked_by(server) as supervisor:
            server.log.clear()
            await call(supervisor, on_question=mine)
            during = server.log.count("ping")
            await anyio.sleep(SPEC.probe.interval + 1)
            missed = told(supervisor, events.ProbeMissed)

        assert (during, server.log.count("ping"), missed) == (0, 1, [])

    async def test_a_call_that_hears_nothing_after_its_answer(self) -> None:
        """Is silent from then on, and has its session probed five seconds later."""
        server, mine = MemoryServer(), Seen(seconds=600)

        async def handle(_: dict[str, Any]) -> dict[str, Any]:
            await server.ask(ELICITATION, ASK)
            server.log.clear()
            await anyio.sleep(6)
            return {"content": []}

        server.handlers["tools/call"] = handle
        async with asked_by(server) as supervisor:
            await call(supervisor, on_question=mine)

        assert server.log.count("ping") == 1


LOG = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}


class TestLogs:
    """What a server logs where the wire does not say for which call it does."""

    @staticmethod
    async def logged(*principals: Principal) -> tuple[list[int], list[tuple[bool, bool]]]:
        """How many messages each of the calls had, and what is told of the message to everybody else."""
        server, notified = MemoryServer(), list[tuple[bool, bool]]()
        server.silent = {"tools/call"}
        had: list[list[Any]] = [[] for _ in principals]
        async with asked_by(server) as supervisor, anyio.create_task_group() as tasks:

            def take(event: events.Event) -> None:
                if isinstance(event, events.ServerNotified):
                    notified.append((event.to_caller, event.private))

            supervisor.bus.attach(take)
            for principal, sink in zip(principals, had, strict=True):
                tasks.start_soon(lambda p=principal, s=sink: call(supervisor, p, on_log=s.append))
                await anyio.wait_all_tasks_blocked()
            server.say(LOG)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        return [len(messages) for messages in had], notified

    async def test_one_call(self) -> None:
        """It is for the one client whose call is open, and nobody else's."""
        assert await self.logged(ANN) == ([1], [(True, False)])

    async def test_calls_of_one_client(self) -> None:
        """It has the message once."""
        assert await self.logged(ANN, ANN) == ([0, 1], [(True, False)])

    async def test_calls_of_several_clients(self) -> None:
        """It is for the operator alone."""
        assert await self.logged(ANN, BOB) == ([0, 0], [(False, True)])

    async def test_beside_another_request(self) -> None:
        """A server may log in answer to whatever it is asked, so that of two clients it may be either's, and is neither's."""
        server, had = MemoryServer(), list[Any]()
        server.silent = {"tools/call", "completion/complete"}
        async with asked_by(server) as supervisor, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(supervisor, ANN, on_log=had.append))
            await anyio.wait_all_tasks_blocked()
            door = supervisor.connection("files")
            tasks.start_soon(lambda: door.request("completion/complete", {}, principal=BOB, on_log=had.append))
            await anyio.wait_all_tasks_blocked()
            server.say(LOG)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

        assert had == []

    async def test_no_call(self) -> None:
        """It belongs to nobody in particular."""
        assert await self.logged() == ([], [(False, False)])


class TestReplay:
    async def test_what_was_answered_is_not_sent_again(self) -> None:
        """A read would be, but its server has asked and acted on the answer."""
        server, mine = MemoryServer(), Seen()

        async def handle(_: dict[str, Any]) -> dict[str, Any]:
            await server.ask(ELICITATION, ASK)
            server.end()
            return await anyio.sleep_forever()

        server.handlers["resources/read"] = handle
        async with asked_by(server) as supervisor:
            door = supervisor.connection("files")
            with pytest.raises(RequestFailed) as caught:
                await door.request("resources/read", {"uri": "x:y"}, principal=ANN, on_question=mine)

        assert (caught.value.outcome, len(mine.questions), server.log.count("resources/read")) == (Outcome.MAYBE_EXECUTED, 1, 1)


class TestLimits:
    async def test_too_many_at_once(self) -> None:
        """What is over the number of open questions is refused with an error, and told of once."""
        server, default = MemoryServer(), Seen(seconds=60)
        async with asked_by(server, sink=default) as supervisor, anyio.create_task_group() as tasks:
            for number in range(MAX_OPEN + 3):
                server.say({"id": number, "method": ELICITATION, "params": ASK})
            await anyio.wait_all_tasks_blocked()
            refused = [message["error"]["code"] for message in server.heard]
            reasons = [event.reason for event in told(supervisor, events.MessageRefused)]
            tasks.cancel_scope.cancel()

        assert (len(default.questions), refused, reasons) == (MAX_OPEN, [-32603] * 3, ["rate"])

    async def test_too_many_in_a_row(self) -> None:
        """A server that asks without end is held to its rate."""
        server, default = MemoryServer(), Seen()
        async with asked_by(server, sink=default):
            answers = [await server.ask(ELICITATION, ASK) for _ in range(BURST + 2)]
            await anyio.sleep(1)
            later = await server.ask(ELICITATION, ASK)

        assert ["error" in one for one in answers] == [False] * BURST + [True] * 2
        assert "result" in later

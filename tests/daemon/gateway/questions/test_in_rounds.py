"""Clients of 2026-07-28 are answered with what they have to answer first, and come again with a state that is theirs alone."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.daemon.gateway.puppet import Call, Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.questions.asked import (
    ACCEPT,
    ALL,
    CAPABILITIES,
    FORM,
    PAGE,
    ROOTS,
    SAMPLE,
    SAMPLED,
    ask_modern,
    of_newer_server,
    server_asks,
    wants,
)
from tests.daemon.gateway.wire import Wire, call, events
from tests.waiting import until

from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.handlers.contract import HandlerAnswer, HandlerQuestion
from mcpvisor.daemon.questions.desk import Desk, DeskLimits, Route
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.questions import ELICITATION, SAMPLING
from mcpvisor.supervisor.questions import ROOTS as ROOTS_METHOD
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch

pytestmark = pytest.mark.anyio

OFFER = Offer(
    tools=(tool("ask"), tool("other")),
    prompts=({"name": "greet"},),
    resources=({"uri": "a://one", "name": "one"}, {"uri": "a://two", "name": "two"}),
)
WITHOUT_ID = {key: value for key, value in PAGE.items() if key != "elicitationId"}


def server(*, era: str = "legacy", name: str = "a", allow: tuple[str, ...] = ("sampling", "roots")) -> PuppetConnection:
    door = PuppetConnection(name, OFFER, era=era)
    door.spec = ServerSpec(name=name, target=StdioLaunch(command="true"), allow=allow)
    return door


class Ann:
    """A handler that gives its name."""

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        return HandlerAnswer(action="accept", content=ACCEPT["content"] if question.mode == "form" else None)


KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "form": (ELICITATION, FORM, ACCEPT),
    "url": (ELICITATION, PAGE, {"action": "accept"}),
    "sampling": (SAMPLING, SAMPLE, SAMPLED),
    "roots": (ROOTS_METHOD, {}, ROOTS),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))


def only(questions: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The one question, and its key."""
    [(key, question)] = questions.items()
    return key, question


def answered(interim: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The params with which a client comes again, with one answer for all."""
    result = interim["result"]
    assert result["resultType"] == "input_required"
    return {
        "inputResponses": dict.fromkeys(result.get("inputRequests", {}), given),
        "requestState": result["requestState"],
    }


class TestOfAnOlderServer:
    """The call is parked."""

    @every_kind
    async def test_a_question(self, tmp_path: Path, kind: str) -> None:
        """The question is the answer to the first request, and the second one, with the answer, has the result."""
        method, params, given = KINDS[kind]
        door = server()
        door.answer = server_asks((method, params))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL, **answered(first, given))
        _, question = only(first["result"]["inputRequests"])

        assert question["method"] == method
        assert "elicitationId" not in question["params"]
        assert second["result"]["answers"] == [given]
        assert second["result"]["resultType"] == "complete"
        assert len(door.calls) == 1

    async def test_rounds(self, tmp_path: Path) -> None:
        """Each further question is another round, with a state of its own; a state that was used is good for nothing."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM), (ROOTS_METHOD, {}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))
            again = await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))
            third = await ask_modern(client, "a__ask", ALL, **answered(second, ROOTS))
            once_more = await ask_modern(client, "a__ask", ALL, **answered(second, ROOTS))

        assert third["result"]["answers"] == [ACCEPT, ROOTS]
        assert again == once_more
        assert again["error"]["data"]["mcpvisor"]["cause"] == "unknown_state"
        assert len(door.calls) == 1

    async def test_an_answer_that_is_missing(self, tmp_path: Path) -> None:
        """What the client does not answer it is asked again; the call goes on once it has."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            state = first["result"]["requestState"]
            second = await ask_modern(client, "a__ask", ALL, requestState=state, inputResponses={"wrong": ACCEPT})
            third = await ask_modern(client, "a__ask", ALL, **answered(second, ACCEPT))

        assert second["result"]["inputRequests"] == first["result"]["inputRequests"]
        assert third["result"]["answers"] == [ACCEPT]

    async def test_prompts_and_resources(self, tmp_path: Path) -> None:
        """A server may ask before it gives a prompt or a resource, too; what is cached is the result alone."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        meta = {CAPABILITIES: ALL}
        results: list[Any] = []
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            for method, params in [("prompts/get", {"name": "a__greet"}), ("resources/read", {"uri": "a://one"})]:
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
                first = (await client.modern(message)).json()
                message["params"].update(answered(first, ACCEPT))
                results.append((first["result"], (await client.modern(message)).json()["result"]))

        assert [second["answers"] for _, second in results] == [[ACCEPT], [ACCEPT]]
        assert ["cacheScope" in first or "cacheScope" in second for first, second in results] == [False, True]
        assert "cacheScope" not in results[1][0]

    async def test_progress_goes_to_the_request_of_the_round(self, tmp_path: Path) -> None:
        """What the server says goes to the request that is open then, under that one's token; between rounds to nobody."""
        door = server()
        asking = server_asks((ELICITATION, FORM))

        async def talks(made: Call) -> dict[str, Any]:
            assert made.on_progress is not None
            made.on_progress({"progress": 1})
            result = await asking(made)
            made.on_progress({"progress": 2})
            return result

        door.answer = talks
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            message = call("a__ask", _meta={CAPABILITIES: ALL, "progressToken": "one"})
            first = await client.modern(message)
            interim = events(first.text)[-1]
            message = call("a__ask", _meta={CAPABILITIES: ALL, "progressToken": "two"}, **answered(interim, ACCEPT))
            second = await client.modern(message)

        assert [one["params"] for one in events(first.text)[:-1]] == [{"progress": 1, "progressToken": "one"}]
        assert [one["params"] for one in events(second.text)[:-1]] == [{"progress": 2, "progressToken": "two"}]

    async def test_a_client_that_leaves(self, tmp_path: Path) -> None:
        """A client that closes its request while the server works withdraws the call, in a later round as in the first."""
        door = server()
        asking = server_asks((ELICITATION, FORM))

        async def works(made: Call) -> dict[str, Any]:
            await asking(made)
            going_on.set()
            await anyio.sleep_forever()
            raise AssertionError

        going_on = anyio.Event()
        door.answer = works
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(ask_modern, client, "a__ask", ALL, **answered(first, ACCEPT)))
                with anyio.fail_after(20):
                    await going_on.wait()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(20):
                await door.cancelled.wait()

    async def test_nobody_comes(self, tmp_path: Path) -> None:
        """After its time the call is withdrawn from its server, and the state is that of nothing."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        limits = GatewayLimits(grace_seconds=1, parked_seconds=0.2)
        async with gateway(PuppetSupervisor(door), tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            with anyio.fail_after(20):
                await door.cancelled.wait()
            late = await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))

        assert late["error"]["data"]["mcpvisor"]["cause"] == "unknown_state"

    async def test_no_place_to_park(self, tmp_path: Path) -> None:
        """Where a client has as many calls parked as it may have, the next one goes on as if nobody could be asked."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        limits = GatewayLimits(grace_seconds=1, parked_calls_per_principal=1)
        async with gateway(PuppetSupervisor(door), tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL)
            third = await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))

        assert second["result"]["answers"] == [{"action": "decline"}]
        assert third["result"]["answers"] == [ACCEPT]

    async def test_the_gateway_closes(self, tmp_path: Path) -> None:
        """What is parked when the gateway closes is withdrawn at once; in the next run its state is that of nothing."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            await served.drain()
            with anyio.fail_after(20):
                await door.cancelled.wait()
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            late = await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))

        assert late["error"]["data"]["mcpvisor"]["cause"] == "unknown_state"

    async def test_a_client_that_cannot_be_asked(self, tmp_path: Path) -> None:
        """A client that declares nothing is asked nothing, and its call is parked nowhere."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM), (SAMPLING, SAMPLE), (ROOTS_METHOD, {}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            only_one = await ask_modern(client, "a__ask", {})

        assert only_one["result"]["answers"] == [{"action": "decline"}, {"error": -32601}, {"error": -32601}]

    async def test_what_is_declared_counts_by_the_request(self, tmp_path: Path) -> None:
        """A client is asked what the request of this very round has declared."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM), (ROOTS_METHOD, {}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", {"elicitation": {}})
            second = await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))

        assert only(second["result"]["inputRequests"])[1]["method"] == ROOTS_METHOD

    async def test_an_answer_that_does_not_fit(self, tmp_path: Path) -> None:
        """What the form did not ask for does not reach the server: it gets a decline."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL, **answered(first, {"action": "accept", "content": {"name": 7}}))

        assert second["result"]["answers"] == [{"action": "decline"}]

    async def test_a_request_that_answers_nothing(self, tmp_path: Path) -> None:
        """Answers without a state are no business of a server that knows neither."""
        door = server()
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            await ask_modern(client, "a__ask", ALL, inputResponses={"q": ACCEPT})

        assert door.calls[0].params == {"name": "ask", "arguments": {}}

    async def test_a_fault_of_ours(self, tmp_path: Path) -> None:
        """What breaks in a call of its own task is an error of that call, and no end of anything else."""
        door = server()

        async def breaks(_: Call) -> dict[str, Any]:
            raise ZeroDivisionError("secret")

        door.answer = breaks
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            failed = await ask_modern(client, "a__ask", ALL)
            door.answer = server_asks()
            after = await ask_modern(client, "a__ask", ALL)

        assert failed["error"]["code"] == -32603
        assert "secret" not in failed["error"]["message"]
        assert after["result"]["answers"] == []


class TestOfANewerServer:
    """Questions and answers are passed on; only the state is sealed."""

    @every_kind
    async def test_a_question(self, tmp_path: Path, kind: str) -> None:
        """The client has the question under the server's own key, and the server its answer, with its own state."""
        method, params, given = KINDS[kind]
        params = {key: value for key, value in params.items() if key != "elicitationId"}
        door = server(era="modern")
        door.answer = of_newer_server({**wants({"q": {"method": method, "params": params}}, "theirs"), "vendor": 1})
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL, **answered(first, given))
        key, question = only(first["result"]["inputRequests"])

        assert (key, question["method"], first["result"]["vendor"]) == ("q", method, 1)
        assert "theirs" not in first["result"]["requestState"]
        assert second["result"]["sent"]["inputResponses"] == {"q": given}
        assert second["result"]["sent"]["requestState"] == "theirs"

    async def test_the_state_outlives_the_daemon(self, tmp_path: Path) -> None:
        """A client may come with its answers to the daemon's next run."""
        door = server(era="modern")
        door.answer = of_newer_server(wants({"q": {"method": ROOTS_METHOD}}, "theirs"))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            second = await ask_modern(client, "a__ask", ALL, **answered(first, ROOTS))

        assert second["result"]["sent"]["requestState"] == "theirs"

    async def test_a_server_without_a_state(self, tmp_path: Path) -> None:
        """A server that keeps no state gets none back, and the answers of a client that brings none by themselves."""
        door = server(era="modern")
        door.answer = of_newer_server(wants({"q": {"method": ROOTS_METHOD}}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            with_state = await ask_modern(client, "a__ask", ALL, **answered(first, ROOTS))
            without = await ask_modern(client, "a__ask", ALL, inputResponses={"q": ROOTS})
        sent = {"name": "ask", "arguments": {}, "inputResponses": {"q": ROOTS}}

        assert [one["result"]["sent"] for one in (with_state, without)] == [sent, sent]

    async def test_a_server_that_only_wants_to_be_asked_again(self, tmp_path: Path) -> None:
        """A state without a question is passed on: when to come again is the client's to decide."""
        door = server(era="modern")
        door.answer = of_newer_server(wants(None, "theirs"))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL, requestState=first["result"]["requestState"])

        assert "inputRequests" not in first["result"]
        assert second["result"]["sent"]["requestState"] == "theirs"

    async def test_only_what_was_asked_and_fits(self, tmp_path: Path) -> None:
        """Of the answers the server gets those to its questions, a decline where one does not fit, and no others."""
        door = server(era="modern")
        asked = {name: {"method": ELICITATION, "params": FORM} for name in ("good", "bad", "missing")}
        door.answer = of_newer_server(wants(asked))
        given = {"good": ACCEPT, "bad": {"action": "accept", "content": {"name": 7}}, "unasked": ACCEPT}
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            state = first["result"]["requestState"]
            second = await ask_modern(client, "a__ask", ALL, requestState=state, inputResponses=given)

        assert second["result"]["sent"]["inputResponses"] == {"good": ACCEPT, "bad": {"action": "decline"}}

    async def test_what_is_told_of_it(self, tmp_path: Path) -> None:
        """What is handed on to the client and comes back is told of under one id, by names and without values."""
        door = server(era="modern")
        door.answer = of_newer_server(wants({"q": {"method": ELICITATION, "params": FORM}}))
        supervisor = PuppetSupervisor(door)
        told: list[Any] = []
        supervisor.bus.attach(told.append)
        async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))
        put, settled = told

        assert (put.whom, put.mode, put.tool, put.principal, put.properties) == (
            "client",
            "form",
            "ask",
            "anonymous",
            ("name",),
        )
        assert (settled.by, settled.action, settled.properties, settled.id) == ("client", "accept", ("name",), put.id)
        assert "Ann" not in repr(told)
        assert 0 <= settled.seconds < 5

    async def test_what_the_client_cannot_be_asked(self, tmp_path: Path) -> None:
        """What the client has not declared is answered by somebody else, and goes to the server together with its answers."""
        door = server(era="modern")
        asked = {"roots": {"method": ROOTS_METHOD}, "form": {"method": ELICITATION, "params": FORM}}
        door.answer = of_newer_server(wants(asked))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", {"roots": {}})
            second = await ask_modern(client, "a__ask", {"roots": {}}, **answered(first, ROOTS))

        assert list(first["result"]["inputRequests"]) == ["roots"]
        assert second["result"]["sent"]["inputResponses"] == {"roots": ROOTS, "form": {"action": "decline"}}

    async def test_a_handler_answers_instead(self, tmp_path: Path) -> None:
        """Where a route names a handler, servers of either era may ask, and it answers what the client cannot be asked."""
        results: list[Any] = []
        for era, says in [
            ("legacy", server_asks((ELICITATION, FORM))),
            ("modern", of_newer_server(wants({"q": {"method": ELICITATION, "params": FORM}}))),
        ]:
            door = server(era=era)
            door.answer = says
            supervisor = PuppetSupervisor(door)
            desk = Desk(DeskLimits(), tell=supervisor.bus.emit, handler_for=lambda _: Route("ann", Ann()), allowed=lambda _: ())
            async with gateway(supervisor, tmp_path, desk=desk) as served, Wire(served.addresses[0]) as client:
                results.append((await ask_modern(client, "a__ask", {}))["result"])
            assert door.calls[0].client_capabilities == {"elicitation": {"form": {}, "url": {}}}

        assert results[0]["answers"] == [ACCEPT]
        assert results[1]["sent"]["inputResponses"] == {"q": ACCEPT}

    async def test_a_page_that_nobody_may_be_sent_to(self, tmp_path: Path) -> None:
        """A question that is fit for nobody is declined, and the client never sees it."""
        door = server(era="modern")
        params = {"mode": "url", "message": "Sign in", "url": "javascript:alert(1)"}
        door.answer = of_newer_server(wants({"q": {"method": ELICITATION, "params": params}}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            only_one = await ask_modern(client, "a__ask", ALL)

        assert only_one["result"]["sent"]["inputResponses"] == {"q": {"action": "decline"}}

    async def test_rounds_without_end(self, tmp_path: Path) -> None:
        """A server that wants the same again and again, of a client that cannot be asked, is given up after ten rounds."""
        door = server(era="modern")
        door.answer = of_newer_server(*[wants({"q": {"method": ELICITATION, "params": FORM}}) for _ in range(50)])
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            failed = await ask_modern(client, "a__ask", {})

        assert failed["error"]["data"]["mcpvisor"]["cause"] == "too_many_rounds"
        assert len(door.calls) == 11

    async def test_what_was_not_offered(self, tmp_path: Path) -> None:
        """Sampling and roots that the entry does not allow fail the call, whatever the client has declared."""
        door = server(era="modern", allow=("roots",))
        door.answer = of_newer_server(wants({"q": {"method": SAMPLING, "params": SAMPLE}}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            failed = await ask_modern(client, "a__ask", ALL)

        assert failed["error"]["data"]["mcpvisor"]["cause"] == "question_refused"

    async def test_capabilities(self, tmp_path: Path) -> None:
        """What the client declares goes with each request, as it is there; what cannot hold does not."""
        door = server(era="modern")
        door.answer = of_newer_server(wants({"q": {"method": ROOTS_METHOD}}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", {"roots": {}, "extensions": {"x": {}}})
            await ask_modern(client, "a__ask", {"sampling": {"tools": {}}}, **answered(first, ROOTS))

        assert [one.client_capabilities for one in door.calls] == [{"roots": {}}, {"sampling": {"tools": {}}}]

    async def test_a_server_that_was_replaced_by_an_older_one(self, tmp_path: Path) -> None:
        """A server that has become one of the handshake era is asked anew: it knows neither states nor answers."""
        door = server(era="modern")
        door.answer = of_newer_server(wants({"q": {"method": ROOTS_METHOD}}, "theirs"))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            door.era = "legacy"
            second = await ask_modern(client, "a__ask", ALL, **answered(first, ROOTS))

        assert second["result"]["sent"] == {"name": "ask", "arguments": {}}


class TestPages:
    """The error of revision 2025-11-25 that names pages, for clients that know no such error."""

    @staticmethod
    def refusing(*, until_visited: int = 1) -> Any:
        """A server that wants two pages visited before each of its first calls."""
        calls = 0

        async def answer(_: Call) -> dict[str, Any]:
            nonlocal calls
            calls += 1
            if calls <= until_visited:
                pages = [PAGE, {**PAGE, "url": "https://example.org/terms", "elicitationId": "page-8"}]
                raise RequestFailed(
                    Outcome.PEER_ERROR, "error_answer", "sign in first", code=-32042, data={"elicitations": pages}
                )
            return {"content": [], "calls": calls}

        return answer

    async def test_are_questions(self, tmp_path: Path) -> None:
        """The client is asked to visit them, without the ids it does not know, and then the server is asked anew."""
        door = server()
        door.answer = self.refusing()
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            second = await ask_modern(client, "a__ask", ALL, **answered(first, {"action": "accept"}))
        questions = list(first["result"]["inputRequests"].values())

        assert [one["method"] for one in questions] == [ELICITATION] * 2
        assert [one["params"]["url"] for one in questions] == [PAGE["url"], "https://example.org/terms"]
        assert [one["params"].keys() for one in questions] == [{"mode", "message", "url"}] * 2
        assert second["result"]["calls"] == 2
        assert [one.params for one in door.calls] == [{"name": "ask", "arguments": {}}] * 2

    async def test_that_are_not_visited(self, tmp_path: Path) -> None:
        """A page that the client declines is the end of the request, and the server is not asked again."""
        door = server()
        door.answer = self.refusing()
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            declined = await ask_modern(client, "a__ask", ALL, **answered(first, {"action": "decline"}))

        assert declined["error"]["data"]["mcpvisor"]["cause"] == "declined"
        assert len(door.calls) == 1

    async def test_for_a_client_that_cannot_be_asked(self, tmp_path: Path) -> None:
        """A client that has not declared it is told which capability it lacks, in the way of its era."""
        door = server()
        door.answer = self.refusing()
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            response = await client.modern(call("a__ask", _meta={CAPABILITIES: {"elicitation": {"form": {}}}}))
        error = response.json()["error"]

        assert (response.status_code, error["code"]) == (400, -32021)
        assert error["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}

    async def test_that_somebody_else_visits(self, tmp_path: Path) -> None:
        """Where the client cannot be asked and a handler has been there, the server is asked anew at once."""
        door = server()
        door.answer = self.refusing()
        supervisor = PuppetSupervisor(door)
        desk = Desk(DeskLimits(), tell=supervisor.bus.emit, handler_for=lambda _: Route("ann", Ann()), allowed=lambda _: ())
        async with gateway(supervisor, tmp_path, desk=desk) as served, Wire(served.addresses[0]) as client:
            only_one = await ask_modern(client, "a__ask", {})

        assert only_one["result"]["calls"] == 2

    async def test_that_nobody_may_be_sent_to(self, tmp_path: Path) -> None:
        """Where no page is fit the client has the server's error, without them."""
        door = server()

        async def answer(_: Call) -> dict[str, Any]:
            pages = [{**PAGE, "url": "javascript:alert(1)"}]
            raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "sign in first", code=-32042, data={"elicitations": pages})

        door.answer = answer
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            error = (await ask_modern(client, "a__ask", ALL))["error"]

        assert (error["message"], error["data"]["elicitations"]) == ("sign in first", [])


class TestWhoseAStateIs:
    @pytest.mark.parametrize("era", ["legacy", "modern"])
    async def test_of_another_client(self, tmp_path: Path, era: str) -> None:
        """Another client gets with it, to the last byte, what it gets with one that never was; its owner can go on."""
        door = server(era=era)
        door.answer = (
            server_asks((ELICITATION, FORM))
            if era == "legacy"
            else of_newer_server(wants({"q": {"method": ELICITATION, "params": FORM}}, "theirs"))
        )
        listen = ("127.0.0.1:0", f"unix:{tmp_path / 'gw.sock'}")
        async with gateway(PuppetSupervisor(door), tmp_path, auth="auto", listen=listen) as served:  # noqa: SIM117 # two read better
            async with Wire(served.addresses[1]) as owner, Wire(served.addresses[0], served.token) as other:
                first = await ask_modern(owner, "a__ask", ALL)
                state = first["result"]["requestState"]
                presented = [state, "never-was", state[:-1], state + "-TAMPERED", ""]
                answers = [
                    await other.modern(
                        call("a__ask", requestState=one, inputResponses={}, _meta={CAPABILITIES: ALL}), name="a__ask"
                    )
                    for one in presented
                ]
                last = await ask_modern(owner, "a__ask", ALL, **answered(first, ACCEPT))

        told = [(one.status_code, one.content, one.headers["content-type"]) for one in answers]
        assert told == [told[0]] * len(presented)
        assert answers[0].json()["error"]["code"] == -32602
        assert "error" not in last

    @pytest.mark.parametrize("era", ["legacy", "modern"])
    async def test_for_another_request(self, tmp_path: Path, era: str) -> None:
        """It is good for the very request it was given for: other arguments, tools, servers and endpoints do not know it."""
        one, two = server(era=era), server(era=era, name="b")
        one.answer = (
            server_asks((ELICITATION, FORM))
            if era == "legacy"
            else of_newer_server(wants({"q": {"method": ELICITATION, "params": FORM}}, "theirs"))
        )
        async with gateway(PuppetSupervisor(one, two), tmp_path) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            again = answered(first, ACCEPT)
            refused = [
                await ask_modern(client, "a__ask", ALL, **{**again, "arguments": {"x": 1}}),
                await ask_modern(client, "a__other", ALL, **again),
                await ask_modern(client, "b__ask", ALL, **again),
                await ask_modern(client, "ask", ALL, path="/mcp/a", **again),
            ]
            last = await ask_modern(client, "a__ask", ALL, meta={"traceparent": "00-1-2-01"}, **again)

        assert [failed["error"]["data"]["mcpvisor"]["cause"] for failed in refused] == ["unknown_state"] * 4
        assert "error" not in last
        assert two.calls == []

    async def test_two_clients_at_once(self, tmp_path: Path) -> None:
        """Calls that are parked beside each other go on each with its own client's answers."""
        door = server()
        door.answer = server_asks((ELICITATION, FORM))
        named = [{"action": "accept", "content": {"name": name}} for name in ("one", "two")]
        async with gateway(PuppetSupervisor(door), tmp_path) as served:  # noqa: SIM117 # two lines read better
            async with Wire(served.addresses[0]) as one, Wire(served.addresses[0]) as two:
                firsts = [await ask_modern(client, "a__ask", ALL) for client in (one, two)]
                of_two = await ask_modern(two, "a__ask", ALL, **answered(firsts[1], named[1]))
                of_one = await ask_modern(one, "a__ask", ALL, **answered(firsts[0], named[0]))

        assert of_one["result"]["answers"] == [named[0]]
        assert of_two["result"]["answers"] == [named[1]]

    async def test_a_state_that_is_too_old(self, tmp_path: Path) -> None:
        """After its time a state is that of nothing."""
        door = server(era="modern")
        door.answer = of_newer_server(wants({"q": {"method": ROOTS_METHOD}}, "theirs"))
        limits = GatewayLimits(grace_seconds=1, state_seconds=-1.0)
        async with gateway(PuppetSupervisor(door), tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
            first = await ask_modern(client, "a__ask", ALL)
            late = await ask_modern(client, "a__ask", ALL, **answered(first, ROOTS))

        assert late["error"]["data"]["mcpvisor"]["cause"] == "unknown_state"


async def test_what_is_counted(tmp_path: Path) -> None:
    """A request that is answered with a question is one that was answered."""
    door, counted = server(), Counted()
    door.answer = server_asks((ELICITATION, FORM))
    async with gateway(PuppetSupervisor(door), tmp_path, observer=counted) as served, Wire(served.addresses[0]) as client:
        first = await ask_modern(client, "a__ask", ALL)
        await ask_modern(client, "a__ask", ALL, **answered(first, ACCEPT))
        await until(lambda: len(counted.ended) == 2)

    assert counted.ended == [("tools/call", "ok")] * 2


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_of_a_message_is_kept(tmp_path: Path, fails: bool) -> None:
    """A call that has run in a task of its own is given back with its answer, without a collector of cycles."""
    door = server()

    async def answer(_: Call) -> dict[str, Any]:
        if fails:
            raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "no")
        return {"content": []}

    door.answer = answer
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await ask_modern(client, "a__ask", ALL)
        gc.collect()
        gc.disable()
        try:
            await ask_modern(client, "a__ask", ALL, arguments={"mark": ["of these rounds"]})
            door.calls.clear()
            await until(lambda: _marked() == 0)
        finally:
            gc.enable()


def _marked() -> int:
    """How many arguments of the test above are still in memory."""
    return sum(type(one) is dict and one.get("mark") == ["of these rounds"] for one in gc.get_objects())

"""Clients of the handshake era are asked by requests, on the stream of the very request that has caused the question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.daemon.gateway.puppet import PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.questions.asked import (
    ACCEPT,
    ALL,
    FORM,
    PAGE,
    ROOTS,
    SAMPLE,
    SAMPLED,
    answer,
    listening,
    of_newer_server,
    open_session,
    server_asks,
    stream,
    wants,
)
from tests.daemon.gateway.wire import Wire, call

from mcpvisor.daemon.gateway.keeper import MemoryKeeper
from mcpvisor.daemon.gateway.questions.rounds import MAX_ROUNDS
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.questions import ELICITATION, SAMPLING
from mcpvisor.supervisor.questions import ROOTS as ROOTS_METHOD
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch

pytestmark = pytest.mark.anyio

OFFER = Offer(tools=(tool("ask"),))
UNDER_NAME = "a asks: "


def server(*, era: str = "legacy", allow: tuple[str, ...] = ("sampling", "roots")) -> PuppetConnection:
    door = PuppetConnection("a", OFFER, era=era)
    door.spec = ServerSpec(name="a", target=StdioLaunch(command="true"), allow=allow)
    return door


KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "form": (ELICITATION, FORM, ACCEPT),
    "url": (ELICITATION, PAGE, {"action": "accept"}),
    "sampling": (SAMPLING, SAMPLE, SAMPLED),
    "roots": (ROOTS_METHOD, {}, ROOTS),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))


@every_kind
async def test_of_an_older_server(tmp_path: Path, kind: str):
    """The question comes as a request on the stream of the call, and the answer to it reaches the server."""
    method, params, given = KINDS[kind]
    door = server()
    door.answer = server_asks((method, params))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said:
            question = await said.next()
            status = await answer(client, question, given)
            last = await said.next()

    assert said.kind == "text/event-stream"
    assert question["method"] == method
    assert status == 202
    assert last["result"]["answers"] == [given]


@every_kind
async def test_of_a_newer_server(tmp_path: Path, kind: str):
    """What a server of 2026-07-28 wants first comes as a request; it is asked again with the answer and its own state."""
    method, params, given = KINDS[kind]
    door = server(era="modern")
    door.answer = of_newer_server(wants({"q": {"method": method, "params": params}}, "theirs"))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said:
            question = await said.next()
            await answer(client, question, given)
            last = await said.next()
    sent = {"name": "ask", "arguments": {}, "inputResponses": {"q": given}, "requestState": "theirs"}

    assert question["method"] == method
    assert last["result"] == {"content": [], "sent": sent}
    assert [one.params for one in door.calls] == [{"name": "ask", "arguments": {}}, sent]


async def test_the_question_is_under_its_servers_name(tmp_path: Path):
    """A client sees which server asks, whatever that writes, and in either era's way of asking."""
    texts: list[str] = []
    for era, says in [
        ("legacy", server_asks((ELICITATION, FORM))),
        ("modern", of_newer_server(wants({"q": {"method": ELICITATION, "params": FORM}}))),
    ]:
        door = server(era=era)
        door.answer = says
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            await open_session(client, ALL)
            async with stream(client, call("a__ask")) as said:
                question = await said.next()
                await answer(client, question, ACCEPT)
                await said.next()
        texts.append(question["params"]["message"])

    assert texts[0] == texts[1]
    assert "Which name?" in texts[0]
    assert texts[0] != "Which name?"
    assert texts[0].index("a") < texts[0].index("Which")


async def test_several_at_once(tmp_path: Path):
    """All that a server of 2026-07-28 asks in one round is asked at one time, and goes back together."""
    door = server(era="modern")
    asked = {"one": {"method": ELICITATION, "params": FORM}, "two": {"method": ROOTS_METHOD}}
    door.answer = of_newer_server(wants(asked))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said:
            questions = {one["method"]: one for one in (await said.next(), await said.next())}
            await answer(client, questions[ROOTS_METHOD], ROOTS)
            await answer(client, questions[ELICITATION], ACCEPT)
            last = await said.next()

    assert last["result"]["sent"]["inputResponses"] == {"one": ACCEPT, "two": ROOTS}
    assert "requestState" not in last["result"]["sent"]


async def test_a_server_that_only_wants_to_be_asked_again(tmp_path: Path):
    """A state without a question is brought back, after a moment, and the client need not know."""
    door = server(era="modern")
    door.answer = of_newer_server(wants(None, "one"), wants(None, "two"))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        last = (await client.post(call("a__ask"))).json()

    assert last["result"]["sent"] == {"name": "ask", "arguments": {}, "requestState": "two"}


async def test_rounds_without_end(tmp_path: Path):
    """After ten rounds a server that wants still more is given up, and the client is told why."""
    door = server(era="modern")
    door.answer = of_newer_server(*[wants({"q": {"method": ROOTS_METHOD}}) for _ in range(50)])
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said:
            for _ in range(MAX_ROUNDS):
                await answer(client, await said.next(), ROOTS)
            last = await said.next()

    assert last["error"]["data"]["mcpvisor"]["cause"] == "too_many_rounds"
    assert len(door.calls) == 1 + MAX_ROUNDS


@pytest.mark.parametrize(
    "said",
    [
        wants(None),
        wants({"q": {"method": "tools/call", "params": {}}}),
        wants({"q": "nonsense"}),
        wants({str(n): {"method": ROOTS_METHOD} for n in range(17)}),
        {**wants({"q": {"method": ROOTS_METHOD}}), "requestState": 7},
        {"resultType": "task"},
    ],
    ids=["nothing", "method", "shape", "many", "state", "type"],
)
async def test_a_server_that_makes_no_sense(tmp_path: Path, said: dict[str, Any]):
    """What is neither a result nor a question fails the call, and reaches nobody."""
    door = server(era="modern")
    door.answer = of_newer_server(said)
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        last = (await client.post(call("a__ask"))).json()

    assert last["error"]["data"]["mcpvisor"]["outcome"] == Outcome.PEER_ERROR.value
    assert len(door.calls) == 1


async def test_what_was_not_offered(tmp_path: Path):
    """Sampling and roots that the entry does not allow are refused, of whatever era the server is."""
    older, newer = server(allow=()), server(era="modern", allow=())
    older.answer = server_asks((SAMPLING, SAMPLE), (ROOTS_METHOD, {}))
    newer.answer = of_newer_server(wants({"q": {"method": ROOTS_METHOD}}))
    async with gateway(PuppetSupervisor(older), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        of_older = (await client.post(call("a__ask"))).json()
    async with gateway(PuppetSupervisor(newer), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        of_newer = (await client.post(call("a__ask"))).json()

    assert of_older["result"]["answers"] == [{"error": -32601}, {"error": -32601}]
    assert of_newer["error"]["data"]["mcpvisor"]["cause"] == "question_refused"


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"sampling": {}, "roots": {}}])
async def test_a_client_that_cannot_be_asked(tmp_path: Path, capabilities: dict[str, Any]):
    """A client is asked nothing that it has not declared; where nobody else answers, that is a decline."""
    older, newer = server(), server(era="modern")
    older.answer = server_asks((ELICITATION, FORM))
    newer.answer = of_newer_server(wants({"q": {"method": ELICITATION, "params": FORM}}))
    answers: list[Any] = []
    for door in (older, newer):
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            await open_session(client, capabilities)
            answers.append((await client.post(call("a__ask"))).json()["result"])

    assert answers[0]["answers"] == [{"action": "decline"}]
    assert answers[1]["sent"]["inputResponses"] == {"q": {"action": "decline"}}


async def test_an_answer_that_does_not_fit(tmp_path: Path):
    """What the form did not ask for does not reach the server: it gets a decline."""
    door = server()
    door.answer = server_asks((ELICITATION, FORM))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said:
            await answer(client, await said.next(), {"action": "accept", "content": {"name": 7}})
            last = await said.next()

    assert last["result"]["answers"] == [{"action": "decline"}]


async def test_capabilities_reach_a_newer_server(tmp_path: Path):
    """What the client has declared goes with each request, as far as its answers can reach the server."""
    door = server(era="modern")
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, {**ALL, "experimental": {"x": {}}})
        await client.post(call("a__ask"))

    assert door.calls[0].client_capabilities == {**ALL, "roots": {}}


async def test_two_clients_at_once(tmp_path: Path):
    """Each client gets the question of its own call alone, and its answer goes nowhere else, though the ids are the same."""
    door = server()
    door.answer = server_asks((ELICITATION, FORM))
    async with gateway(PuppetSupervisor(door), tmp_path) as served:  # noqa: SIM117 # two lines read better
        async with Wire(served.addresses[0]) as one, Wire(served.addresses[0]) as two:
            await open_session(one, ALL)
            await open_session(two, ALL)
            async with stream(one, call("a__ask")) as first, stream(two, call("a__ask")) as second:
                questions = await first.next(), await second.next()
                named = [{"action": "accept", "content": {"name": name}} for name in ("one", "two")]
                # The answer of the wrong client under the right id is an answer to its own question, or to none.
                await answer(two, questions[1], named[1])
                stray = await answer(two, questions[0], named[1])
                unknown = await answer(two, {"id": "never was"}, named[1])
                of_two = await second.next()
                await answer(one, questions[0], named[0])
                of_one = await first.next()

    assert questions[0]["id"] == questions[1]["id"]
    assert of_one["result"]["answers"] == [named[0]]
    assert of_two["result"]["answers"] == [named[1]]
    assert stray == unknown == 202


async def test_the_call_is_withdrawn(tmp_path: Path):
    """A client that cancels its call is told that its question is over, too."""
    door = server()
    door.answer = server_asks((ELICITATION, FORM))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask", 5)) as said:
            question = await said.next()
            await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
            cancelled = await said.next()
            with anyio.fail_after(20):
                await door.cancelled.wait()

    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == question["id"]


async def test_the_server_takes_its_question_back(tmp_path: Path):
    """A client is told when its answer is wanted no more, and its call goes on."""
    door = server()
    asking = server_asks((ELICITATION, FORM))

    async def gives_up(made: Any) -> dict[str, Any]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asking, made)
            await taken.wait()
            tasks.cancel_scope.cancel()
        return {"content": []}

    taken = anyio.Event()
    door.answer = gives_up
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said:
            question = await said.next()
            taken.set()
            cancelled = await said.next()
            last = await said.next()

    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", question["id"])
    assert last["result"] == {"content": []}


async def test_a_client_that_reads_only_its_other_stream(tmp_path: Path):
    """A client that has closed the stream of its call, but reads its GET stream, is asked there."""
    door = server()
    asking = server_asks((ELICITATION, FORM))
    gone, answered = anyio.Event(), anyio.Event()

    async def late(made: Any) -> dict[str, Any]:
        await gone.wait()
        result = await asking(made)
        answers.extend(result["answers"])
        answered.set()
        return result

    answers: list[Any] = []
    door.answer = late
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with Wire(served.addresses[0]) as leaving, listening(client) as said:
            leaving.session = client.session
            with anyio.move_on_after(5):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(leaving.post, call("a__ask"))
                    await door.called.wait()
                    tasks.cancel_scope.cancel()
            await leaving.http.aclose()
            await client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})  # by now the gateway has seen it go
            gone.set()
            question = await said.next()
            await answer(client, question, ACCEPT)
            with anyio.fail_after(20):
                await answered.wait()

    assert answers == [ACCEPT]


async def test_a_client_that_reads_nothing(tmp_path: Path):
    """A client that has closed its call and reads no other stream is not asked: the server has a decline at once."""
    door = server()
    asking = server_asks((ELICITATION, FORM))
    gone, answered = anyio.Event(), anyio.Event()
    answers: list[Any] = []

    async def late(made: Any) -> dict[str, Any]:
        await gone.wait()
        answers.extend((await asking(made))["answers"])
        answered.set()
        return {"content": []}

    door.answer = late
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with Wire(served.addresses[0]) as leaving:
            leaving.session = client.session
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leaving.post, call("a__ask"))
                await door.called.wait()
                tasks.cancel_scope.cancel()
        await client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})
        gone.set()
        with anyio.fail_after(20):
            await answered.wait()

    assert answers == [{"action": "decline"}]


async def test_what_a_client_can_outlives_the_daemon(tmp_path: Path):
    """A session that goes on in the daemon's next run is asked what its client declared in the one before."""
    keeper, door = MemoryKeeper(), server()
    async with gateway(PuppetSupervisor(server()), tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        await open_session(client, {"elicitation": {}})
        session = client.session
    door.answer = server_asks((ELICITATION, FORM), (SAMPLING, SAMPLE))
    async with gateway(PuppetSupervisor(door), tmp_path, keeper=keeper) as served, Wire(served.addresses[0]) as client:
        client.session = session
        async with stream(client, call("a__ask")) as said:
            await answer(client, await said.next(), ACCEPT)
            last = await said.next()

    assert last["result"]["answers"] == [ACCEPT, {"error": -32601}]


async def test_answers_are_taken_while_the_gateway_drains(tmp_path: Path):
    """A stop waits for calls in flight, and what such a call has asked can still be answered; new requests are refused."""
    door = server()
    door.answer = server_asks((ELICITATION, FORM))
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask")) as said, anyio.create_task_group() as tasks:
            question = await said.next()
            tasks.start_soon(served.drain)
            refused = await client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})
            status = await answer(client, question, ACCEPT)
            last = await said.next()

    assert refused.status_code == 503
    assert status == 202
    assert last["result"]["answers"] == [ACCEPT]


class TestPages:
    """URL elicitation."""

    ERROR = RequestFailed(
        Outcome.PEER_ERROR,
        "error_answer",
        "sign in first",
        code=-32042,
        data={"elicitations": [PAGE, {**PAGE, "url": "javascript:alert(1)"}], "vendor": 1},
    )

    async def test_the_error_as_it_is(self, tmp_path: Path) -> None:
        """The error that names pages crosses with its data: pages that anybody may be sent to, each under its server's name."""
        door = server()

        async def refuses(_: Any) -> dict[str, Any]:
            raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "sign in first", code=-32042, data=dict(self.ERROR.data))

        door.answer = refuses
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            await open_session(client, ALL)
            error = (await client.post(call("a__ask"))).json()["error"]

        assert (error["code"], error["message"]) == (-32042, "sign in first")
        assert (error["data"]["elicitations"], error["data"]["vendor"]) == ([{**PAGE, "message": "[a] Sign in"}], 1)

    async def test_many_pages(self, tmp_path: Path) -> None:
        """However many things an error names, and whatever they are: none passes that was not looked at."""
        door = server()
        bad = {**PAGE, "url": "javascript:alert(1)"}
        spoof = {**PAGE, "message": "[github] Sign\u202e in", "vendor": 1}

        async def refuses(_: Any) -> dict[str, Any]:
            pages = [spoof, *[PAGE] * 15, bad, PAGE, "javascript:alert(2)"]
            raise RequestFailed(Outcome.PEER_ERROR, "error_answer", "sign in first", code=-32042, data={"elicitations": pages})

        door.answer = refuses
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            await open_session(client, ALL)
            error = (await client.post(call("a__ask"))).json()["error"]

        expected = [{**PAGE, "message": "[a] (github) Sign in"}, *[{**PAGE, "message": "[a] Sign in"}] * 15]
        assert error["data"]["elicitations"] == expected

    @pytest.mark.parametrize("by_error", [True, False], ids=["error", "request"])
    async def test_completion(self, tmp_path: Path, by_error: bool) -> None:
        """That a page was visited is told to the one client that was asked to, and to it once."""
        door, other = server(), PuppetConnection("b", OFFER)
        asking = server_asks((ELICITATION, PAGE))

        async def asks(made: Any) -> dict[str, Any]:
            if by_error:
                raise RequestFailed(
                    Outcome.PEER_ERROR, "error_answer", "sign in first", code=-32042, data={"elicitations": [PAGE]}
                )
            return await asking(made)

        door.answer = asks
        supervisor = PuppetSupervisor(door, other)
        async with gateway(supervisor, tmp_path) as served:  # noqa: SIM117 # two lines read better
            async with Wire(served.addresses[0]) as one, Wire(served.addresses[0]) as two:
                await open_session(one, ALL)
                await open_session(two, ALL)
                async with listening(one) as of_one, listening(two) as of_two:
                    async with stream(one, call("a__ask")) as said:
                        if not by_error:
                            await answer(one, await said.next(), {"action": "accept"})
                        await said.next()
                    method = "notifications/elicitation/complete"
                    supervisor.notify("b", method, {"elicitationId": "page-7"})  # not its own page
                    supervisor.notify("a", method, {"elicitationId": "page-8"})
                    supervisor.notify("a", method, {"elicitationId": ["page-7"]})
                    supervisor.notify("a", method, {"elicitationId": "page-7"})
                    supervisor.notify("a", method, {"elicitationId": "page-7"})
                    told = await of_one.next()
                    supervisor.change("a", "tools", tool("other"))  # whatever else was told would come before this
                    after = await of_one.next(), await of_two.next()

        assert told == {"jsonrpc": "2.0", "method": method, "params": {"elicitationId": "page-7"}}
        assert [one["method"] for one in after] == ["notifications/tools/list_changed"] * 2

    async def test_completion_within_the_call(self, tmp_path: Path) -> None:
        """While the call that has asked is open, its own stream tells that the page was visited."""
        door = server()
        asking = server_asks((ELICITATION, PAGE))
        supervisor = PuppetSupervisor(door)
        told = anyio.Event()

        async def waits(made: Any) -> dict[str, Any]:
            result = await asking(made)
            await told.wait()
            return result

        door.answer = waits
        async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
            await open_session(client, ALL)
            async with stream(client, call("a__ask")) as said:
                await answer(client, await said.next(), {"action": "accept"})
                supervisor.notify("a", "notifications/elicitation/complete", {"elicitationId": "page-7"})
                notice = await said.next()
                told.set()
                last = await said.next()

        assert notice["params"] == {"elicitationId": "page-7"}
        assert last["result"]["answers"] == [{"action": "accept"}]

    async def test_a_page_of_a_newer_server(self, tmp_path: Path) -> None:
        """Clients of this era need an id for each page; a server of 2026-07-28 gives none, so that one is made."""
        door = server(era="modern")
        params = {key: value for key, value in PAGE.items() if key != "elicitationId"}
        door.answer = of_newer_server(wants({"q": {"method": ELICITATION, "params": params}}))
        async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
            await open_session(client, ALL)
            async with stream(client, call("a__ask")) as said:
                question = await said.next()
                await answer(client, question, {"action": "accept"})
                await said.next()

        assert question["params"]["url"] == PAGE["url"]
        assert len(question["params"]["elicitationId"]) == 32


async def test_progress_and_logs_beside_a_question(tmp_path: Path):
    """What a server says within its answer goes on while it asks, on the same stream and under the client's own token."""
    door = server()
    asking = server_asks((ELICITATION, FORM))

    async def talks(made: Any) -> dict[str, Any]:
        made.on_progress({"progress": 1})
        result = await asking(made)
        made.on_progress({"progress": 2})
        made.on_log({"level": "info", "data": "done"})
        return result

    door.answer = talks
    async with gateway(PuppetSupervisor(door), tmp_path) as served, Wire(served.addresses[0]) as client:
        await open_session(client, ALL)
        async with stream(client, call("a__ask", _meta={"progressToken": "mine"})) as said:
            first = [await said.next(), await said.next()]
            question = next(one for one in first if "id" in one)
            await answer(client, question, ACCEPT)
            rest = [await said.next() for _ in range(3)]

    progress = [one["params"] for one in [*first, *rest] if one.get("method") == "notifications/progress"]
    assert progress == [{"progress": 1, "progressToken": "mine"}, {"progress": 2, "progressToken": "mine"}]
    assert rest[1]["params"] == {"level": "info", "data": "done", "logger": "a"}
    assert rest[2]["result"]["answers"] == [ACCEPT]

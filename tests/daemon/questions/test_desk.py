"""The way of a question through the desk: whatever befalls whoever is asked, the server gets its answer and it is told once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing
from tests.daemon.questions.asking import ACCEPTED, DECLINED, NAME_FORM, Client, question

from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerQuestion
from mcpvisor.daemon.questions.contract import CanBeAsked
from mcpvisor.daemon.questions.desk import Desk, DeskLimits, DoesNotFit, NotOpen, Route
from mcpvisor.supervisor.events import ServerEvent
from mcpvisor.supervisor.host_events import QuestionPut, QuestionSettled
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import ROOTS, SAMPLING, Belongs
from mcpvisor.supervisor.transports.exchange import PeerRefusal

JsonObject = dict[str, Any]
Handled = Callable[[HandlerQuestion], Any]

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time passes by itself when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class Handler:
    """A handler that does as it is told, and knows what it was asked."""

    def __init__(self, do: Handled) -> None:
        self._do = do
        self.asked: list[HandlerQuestion] = []

    async def answer(self, asked: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`."""
        self.asked.append(asked)
        answer: HandlerAnswer = await self._do(asked)
        return answer


class Scene:
    """A desk with one route, and all that was told of it."""

    def __init__(self, route: Route | None = None, limits: DeskLimits | None = None, allowed: tuple[str, ...] = ()) -> None:
        self.told: list[ServerEvent] = []
        self.desk = Desk(limits or DeskLimits(), tell=self.told.append, handler_for=lambda _: route, allowed=lambda _: allowed)

    def settled(self) -> list[tuple[str, str, str]]:
        """By whom, how and why each question was settled."""
        return [(one.by, one.action, one.why) for one in self.told if isinstance(one, QuestionSettled)]


def says(value: Any) -> Callable[..., Any]:
    async def answer(*_: Any) -> Any:
        return value

    return answer


def raises(error: Exception) -> Callable[..., Any]:
    async def answer(*_: Any) -> Any:
        raise error

    return answer


async def sleeps(*_: Any) -> Any:
    await anyio.sleep_forever()


async def test_a_client_answers_and_its_answer_reaches_the_server() -> None:
    """The client of the call is asked under the server's name; the properties are told, their values never."""
    scene, client = Scene(), Client(says(ACCEPTED))
    result = await scene.desk.ask(question(), client)
    put, settled = scene.told

    assert ACCEPTED == result
    assert [("elicitation/create", "[git] Who?")] == [(method, params["message"]) for method, params in client.asked]
    assert isinstance(put, QuestionPut)
    assert isinstance(settled, QuestionSettled)
    assert ("client", "uid:1", ("name",), "commit", "form") == (put.whom, put.principal, put.properties, put.tool, put.mode)
    assert ("accept", ("name",), put.id) == (settled.action, settled.properties, settled.id)
    assert "octocat" not in repr(scene.told)
    assert [] == list(scene.desk.open())


@pytest.mark.parametrize(
    ("answer", "result", "why"),
    [
        (says({"action": "cancel"}), {"action": "cancel"}, ""),
        (says({"action": "accept", "content": {}}), DECLINED, "the answer does not fit the form: name: is missing"),
        (says(None), DECLINED, "the answer is no object"),
        (raises(PeerRefusal(-32602, "no \u202esuch mode")), DECLINED, "the client answered with an error: no such mode"),
        (raises(OSError("gone")), DECLINED, "the client failed: gone"),
        (raises(ExceptionGroup("many", [ValueError("x")])), DECLINED, "the client failed: many (1 sub-exception)"),
        (sleeps, DECLINED, "no answer of the client within 300 s"),
    ],
)
async def test_whatever_befalls_a_client_is_a_decline(answer: Any, result: JsonObject, why: str) -> None:
    """A cancel stays one; an error, a crash, silence and what does not fit are a decline, and nobody else is asked then."""
    handler = Handler(says(HandlerAnswer(action="accept", content={"name": "x"})))
    scene = Scene(Route("rules", handler))

    assert result == await scene.desk.ask(question(), Client(answer))
    assert [("client", result["action"], why)] == scene.settled()
    assert [] == handler.asked


@pytest.mark.parametrize(
    ("do", "action", "why"),
    [
        (says(HandlerAnswer(action="accept", content={"name": "x"})), "accept", ""),
        (says(HandlerAnswer(action="cancel")), "cancel", ""),
        (says(HandlerAnswer(action="accept")), "decline", "the answer does not fit the form: name: is missing"),
        (raises(DeliveryFailed("exit code 3")), "decline", "the handler rules failed: exit code 3"),
        (raises(RuntimeError()), "decline", "the handler rules failed: RuntimeError"),
        (says(None), "decline", "the handler rules failed: asdict() should be called on dataclass instances"),
        (sleeps, "decline", "no answer of the handler rules within 7 s"),
    ],
)
async def test_whatever_befalls_a_handler_is_a_decline(do: Any, action: str, why: str) -> None:
    """A handler has its own deadline, and gets the question under the server's name with a form that is clean."""
    handler = Handler(do)
    scene = Scene(Route("rules", handler, 7.0))
    result = await scene.desk.ask(question(belongs=Belongs.AMBIGUOUS, principal=None), Client(says(ACCEPTED)))

    assert [("handler rules", action, why)] == scene.settled()
    assert action == result["action"]
    assert [("git", "form", "[git] Who?", "commit")] == [(q.server, q.mode, q.message, q.tool) for q in handler.asked]


async def test_what_a_handler_is_given() -> None:
    """Server, mode, text, form or address whole, tool and trace of each question, and nothing else that the server said."""
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    said = {"_meta": {**trace, "vendor": 1, "progressToken": 2}, "more": "x"}
    page = {"mode": "url", "message": "Sign in", "url": "https://a.example/x?y=z", "elicitationId": "e1"}
    handler = Handler(says(HandlerAnswer(action="decline")))
    scene = Scene(Route("rules", handler, 7.0))
    for params in (NAME_FORM, page):
        await scene.desk.ask(question({**params, **said}, belongs=Belongs.AMBIGUOUS, principal=None), None)
    form, url = handler.asked

    assert ("git", "commit", trace) == (form.server, form.tool, form.meta) == (url.server, url.tool, url.meta)
    assert ("form", "[git] Who?", NAME_FORM["requestedSchema"], None) == (form.mode, form.message, form.schema, form.url)
    assert ("url", "[git] Sign in", None, page["url"]) == (url.mode, url.message, url.schema, url.url)
    assert form.id
    assert form.id != url.id


async def test_where_nobody_is_there_it_is_declined_at_once() -> None:
    """No client that can be asked and no route: one event, with the reason."""
    scene = Scene()

    assert DECLINED == await scene.desk.ask(question(), Client(says(ACCEPTED), CanBeAsked()))
    assert [
        ("nobody", "decline", "the client has not declared elicitation in the mode form, and no route names a handler")
    ] == scene.settled()
    assert 1 == len(scene.told)


async def test_what_cannot_be_asked_reaches_nobody() -> None:
    """A question that is not fit is declined before the client or a handler sees it."""
    scene, client = Scene(), Client(says(ACCEPTED))

    assert DECLINED == await scene.desk.ask(question({"mode": "url", "message": "x", "url": "javascript:alert(1)"}), client)
    assert ([], 1) == (client.asked, len(scene.told))


@pytest.mark.parametrize(
    ("allowed", "client", "code", "action"),
    [
        ((), Client(says({"role": "assistant"})), -32601, "refused"),
        (("sampling",), None, -32601, "refused"),
        (("sampling",), Client(says({}), CanBeAsked(form=True)), -32601, "refused"),
        (("sampling",), Client(raises(PeerRefusal(-1, "User rejected sampling request"))), -1, "refused"),
        (("sampling",), Client(raises(OSError("gone"))), -32603, "failed"),
        (("sampling",), Client(says("x")), -32603, "failed"),
        (("sampling",), Client(sleeps), -32603, "failed"),
    ],
)
async def test_a_program_that_is_not_there_or_fails_is_an_error(
    allowed: tuple[str, ...], client: Client | None, code: int, action: str
) -> None:
    """Not allowed or not there: no such method. Failed: an internal error. What the client itself answered is passed on."""
    scene = Scene(Route("operator", None), allowed=allowed)

    with pytest.raises(PeerRefusal) as refused:
        await scene.desk.ask(question({}, method=SAMPLING), client)

    assert (code, [action]) == (refused.value.code, [one for _, one, _ in scene.settled()])


async def test_a_program_answers_for_itself() -> None:
    """The result of the client is the server's, whatever fields it has."""
    scene = Scene(allowed=("roots",))

    assert {"roots": [{"uri": "file:///x"}], "new": 1} == await scene.desk.ask(
        question({}, method=ROOTS), Client(says({"roots": [{"uri": "file:///x"}], "new": 1}))
    )
    assert [("client", "answered", "")] == scene.settled()


async def test_a_question_that_is_withdrawn_is_told_and_forgotten() -> None:
    """When the server or the end of the call withdraws it, the client is asked no longer, and nothing stays open."""
    scene, client = Scene(), Client(sleeps)
    with anyio.move_on_after(3):
        await scene.desk.ask(question(), client)

    assert [("client", "withdrawn", "")] == scene.settled()
    assert [] == list(scene.desk.open())


async def test_no_server_and_no_client_can_fill_the_desk() -> None:
    """One question more than may be open is declined at once; another server of another client is not concerned."""
    scene, client = Scene(limits=DeskLimits(per_server=2, per_client=1, deadline=9.0)), Client(sleeps)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.desk.ask, question(principal="uid:1"), client)
        tasks.start_soon(scene.desk.ask, question(principal="uid:2"), client)
        await anyio.wait_all_tasks_blocked()
        assert DECLINED == await scene.desk.ask(question(principal="uid:3"), client)
        assert DECLINED == await scene.desk.ask(question(server="files", principal="uid:1"), client)
        assert ACCEPTED == await scene.desk.ask(question(server="files", principal="uid:3"), Client(says(ACCEPTED)))
        tasks.cancel_scope.cancel()

    assert [
        ("nobody", "decline", "more than 2 questions of this server would be open"),
        ("nobody", "decline", "more than 1 question to this client would be open"),
        ("client", "accept", ""),
    ] == scene.settled()[:3]


async def test_no_identity_can_fill_what_a_server_may_ask() -> None:
    """Half of the questions of a server is for one identity, as however many clients it comes: others can still be asked."""
    scene, client = Scene(limits=DeskLimits(per_server=4, per_client=4, deadline=9.0)), Client(sleeps)
    sessions = [replace(question(), principal=Principal("uid:1", f"s{number}")) for number in range(3)]
    async with anyio.create_task_group() as tasks:
        for one in sessions[:2]:
            tasks.start_soon(scene.desk.ask, one, client)
        await anyio.wait_all_tasks_blocked()
        assert DECLINED == await scene.desk.ask(sessions[2], client)
        assert ACCEPTED == await scene.desk.ask(replace(sessions[2], server="files"), Client(says(ACCEPTED)))
        assert ACCEPTED == await scene.desk.ask(question(principal="uid:2"), Client(says(ACCEPTED)))
        tasks.cancel_scope.cancel()

    assert scene.settled()[0] == ("nobody", "decline", "more than 2 questions of this server to one identity would be open")


class TestOperator:
    async def test_an_operator_answers(self) -> None:
        """It is held until somebody answers; what does not fit is refused and leaves it open; nobody answers twice."""
        scene = Scene(Route("operator", None))
        results: list[JsonObject] = []

        async def ask() -> None:
            results.append(await scene.desk.ask(question()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            [one] = scene.desk.open()
            assert ("operator", 300.0, 1) == (one.whom, round(one.deadline - one.since, 3), scene.desk.waiting_for_operator)
            with pytest.raises(DoesNotFit, match="name: must be a text"):
                scene.desk.answer(one.id, HandlerAnswer(action="accept", content={"name": 1}))
            assert one is scene.desk.answer(one.id, HandlerAnswer(action="accept", content={"name": "x"}))
            with pytest.raises(NotOpen, match="was answered just now"):
                scene.desk.answer(one.id, HandlerAnswer(action="decline"))

        assert [{"action": "accept", "content": {"name": "x"}}] == results
        assert [("operator", "accept", "")] == scene.settled()
        with pytest.raises(NotOpen, match="no open question has the id"):
            scene.desk.answer(one.id, HandlerAnswer(action="decline"))

    async def test_what_waits_for_somebody_else_is_not_the_operators(self) -> None:
        """A question that a client thinks about is listed, and nobody can answer in its place."""
        scene = Scene()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.desk.ask, question(), Client(sleeps))
            await anyio.wait_all_tasks_blocked()
            [one] = scene.desk.open()
            with pytest.raises(NotOpen, match="waits for the client, who alone can answer it"):
                scene.desk.answer(one.id, HandlerAnswer(action="decline"))
            assert 0 == scene.desk.waiting_for_operator
            tasks.cancel_scope.cancel()

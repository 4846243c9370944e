"""What servers ask over each of the real wires: within an answer, beside it, and where nothing says for whom."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import Belongs, Question
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor
from tests.supervisor.transports.http_rig import SERVERS, puppet
from tests.waiting import until

pytestmark = pytest.mark.anyio

ANN = Principal("token:ann", "s1")
BOB = Principal("token:bob", "s2")
KINDS = ["stdio", "http", "sse"]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@asynccontextmanager
async def spec_of(kind: str, **changes: Any) -> AsyncIterator[ServerSpec]:
    """The entry of the server that asks, over a transport."""
    graces = StopGraces(stdin=1.0, term=1.0)
    if kind == "stdio":
        launch = StdioLaunch(command=sys.executable, args=(str(SERVERS / "asking.py"),))
        yield ServerSpec(name="asking", target=launch, stop=graces, **changes)
        return
    transport = HttpTransport.SSE if kind == "sse" else HttpTransport.STREAMABLE_HTTP
    with puppet("asking.py", kind) as served:
        yield ServerSpec(name="asking", target=HttpTarget(url=served.url, transport=transport), stop=graces, **changes)


@asynccontextmanager
async def supervised(spec: ServerSpec, **options: Any) -> AsyncIterator[Supervisor]:
    with anyio.fail_after(30):
        async with Supervisor(guarded=False, **options) as supervisor:
            await supervisor.apply([spec])
            await supervisor.wait_until("asking", lambda status: status.state is State.READY)
            yield supervisor


class Person:
    """Somebody who is asked, and answers once `ready` is set."""

    def __init__(self, word: str) -> None:
        self.questions: list[Question] = []
        self.asked = anyio.Event()
        self.ready = anyio.Event()
        self._word = word

    async def __call__(self, question: Question) -> dict[str, Any]:
        self.questions.append(question)
        self.asked.set()
        await self.ready.wait()
        return {"action": "accept", "content": {"answer": self._word}}


async def use(supervisor: Supervisor, who: Principal, tool: str, sink: Any = None, **arguments: Any) -> Any:
    params = {"name": tool, "arguments": arguments}
    result = await supervisor.connection("asking").request("tools/call", params, principal=who, on_question=sink)
    return json.loads(result["content"][0]["text"])


@pytest.mark.parametrize("aside", [False, True], ids=["within", "aside"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_caller_is_asked(kind: str, aside: bool) -> None:
    """Whatever way the question takes, the one client that calls is asked, and the call goes on with its answer."""
    ann = Person("red")
    ann.ready.set()
    async with spec_of(kind) as spec, supervised(spec) as supervisor:
        heard = await use(supervisor, ANN, "ask", ann, aside=aside)

    assert heard == {"action": "accept", "content": {"answer": "red"}}
    assert [(one.belongs, one.principal, one.tool) for one in ann.questions] == [(Belongs.CALL, ANN, "ask")]


@pytest.mark.parametrize(("kind", "aside", "is_known"), [("http", False, True), ("http", True, False), ("stdio", False, False)])
async def test_two_clients_ask_at_once(kind: str, aside: bool, is_known: bool) -> None:
    """Where the wire knows each is asked for its own call; where it does not, nobody is, and both are told no."""
    ann, bob = Person("red"), Person("blue")
    heard: dict[str, Any] = {}
    async with spec_of(kind) as spec, supervised(spec) as supervisor, anyio.create_task_group() as tasks:

        async def ask(who: Principal, sink: Person) -> None:
            heard[who.name] = await use(supervisor, who, "ask", sink, aside=aside)

        tasks.start_soon(use, supervisor, ANN, "wait")
        tasks.start_soon(use, supervisor, BOB, "wait")
        await until(lambda: supervisor.connection("asking").admission.running == 2)
        tasks.start_soon(ask, ANN, ann)
        tasks.start_soon(ask, BOB, bob)
        if is_known:
            for person in (ann, bob):
                await person.asked.wait()
                person.ready.set()
        await until(lambda: len(heard) == 2)
        tasks.cancel_scope.cancel()

    no = {"action": "decline"}
    yes = {
        name: {"action": "accept", "content": {"answer": word}} for name, word in (("token:ann", "red"), ("token:bob", "blue"))
    }
    assert heard == (yes if is_known else {"token:ann": no, "token:bob": no})
    assert [one.principal for one in (*ann.questions, *bob.questions)] == ([ANN, BOB] if is_known else [])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_person_takes_longer_than_the_call_may(kind: str) -> None:
    """The time of the call does not run while the question is open."""
    ann = Person("red")
    async with (
        spec_of(kind, call_timeout=0.5, call_max=0.6) as spec,
        supervised(spec) as supervisor,
        anyio.create_task_group() as tasks,
    ):

        async def think() -> None:
            await ann.asked.wait()
            await anyio.sleep(1.0)
            ann.ready.set()

        tasks.start_soon(think)
        heard = await use(supervisor, ANN, "ask", ann)

    assert heard["action"] == "accept"

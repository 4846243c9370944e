"""Questions of real servers of either era, through the gateway, to two clients of either era at once."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from tests.supervisor.transports.http_rig import puppet as http_puppet

from mcpvisor.daemon.gateway.doors import ServerDoors
from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewayLimits, GatewaySettings
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

OLDER, NEWER = "legacy", "2026-07-28"
KINDS = ("form", "url", "sampling", "roots")


@dataclass
class Person:
    """A client that answers with its name, and keeps what it was asked."""

    name: str
    asked: list[str] = field(default_factory=list)
    together: Callable[[], Any] | None = None
    """Awaited before each answer."""

    async def _met(self) -> None:
        if self.together is not None:
            await self.together()

    async def elicit(self, _: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        await self._met()
        is_form = isinstance(params, ElicitRequestFormParams)
        return ElicitResult(action="accept", content={"name": self.name} if is_form else None)

    async def sample(self, _: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        self.asked.append(str(params.system_prompt))
        await self._met()
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text=self.name), model="m")

    async def roots(self, _: Any) -> ListRootsResult:
        self.asked.append("roots")
        await self._met()
        return ListRootsResult(roots=[Root(uri=f"file:///{self.name}")])  # type: ignore[arg-type]

    def client(self, address: str, era: str) -> Client:
        return Client(
            f"{address}/mcp",
            mode=era,
            elicitation_callback=self.elicit,
            sampling_callback=self.sample,
            list_roots_callback=self.roots,
        )


ANSWERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "form": lambda name: {"action": "accept", "content": {"name": name}},
    "url": lambda _: {"action": "accept"},
    "sampling": lambda name: {"role": "assistant", "content": {"type": "text", "text": name}, "model": "m"},
    "roots": lambda name: {"roots": [{"uri": f"file:///{name}"}]},
}


class Meeting:
    """Lets two go on once both have come."""

    def __init__(self) -> None:
        self._here = 0
        self._both = anyio.Event()

    async def __call__(self) -> None:
        self._here += 1
        if self._here == 2:
            self._both.set()
        with anyio.fail_after(20):
            await self._both.wait()


@pytest.fixture
def puppets() -> Any:
    """HTTP puppets, ended with the test."""
    with ExitStack() as stack:
        yield stack


def spec_of(wire: str, era: str, servers: Path, puppets: ExitStack) -> ServerSpec:
    """An asking server."""
    target: StdioLaunch | HttpTarget
    if wire == "stdio":
        target = StdioLaunch(command=sys.executable, args=(str(servers / "questioning.py"), "stdio", era))
    else:
        target = HttpTarget(url=puppets.enter_context(http_puppet("questioning.py", "http", era, "0")).url)
    return ServerSpec(name="a", target=target, allow=("sampling", "roots"), stop=StopGraces(stdin=0.2, term=0.2))


@asynccontextmanager
async def serving(spec: ServerSpec, state_dir: Path) -> AsyncIterator[str]:
    """The address of a gateway in front of the real supervisor of a server, which is ready."""
    settings = GatewaySettings(listen=("127.0.0.1:0",), auth="open", state_dir=state_dir, limits=GatewayLimits(grace_seconds=1))
    async with Supervisor() as supervisor:
        doors: ServerDoors = supervisor
        await supervisor.apply([spec])
        with anyio.fail_after(20):
            await supervisor.wait_until(spec.name, lambda status: status.state is State.READY)
        async with Gateway(doors, settings, instance=supervisor.instance, health=lambda *_: (200, "ok")) as gateway:
            yield gateway.addresses[0]


@asynccontextmanager
async def two(address: str, eras: tuple[str, str]) -> AsyncIterator[list[tuple[Person, Client]]]:
    """Two clients, connected."""
    people = [Person("ann"), Person("bob")]
    async with AsyncExitStack() as stack:
        yield [(one, await stack.enter_async_context(one.client(address, era))) for one, era in zip(people, eras, strict=True)]


async def ask(client: Client, name: str, kind: str) -> dict[str, Any]:
    with anyio.fail_after(30):
        result = await client.call_tool("a__ask", {"who": name, "kind": kind})
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


@pytest.mark.parametrize("eras", [(OLDER, OLDER), (NEWER, NEWER), (OLDER, NEWER)], ids=["older", "newer", "mixed"])
@pytest.mark.parametrize(
    ("wire", "server_era"), [("http", "legacy"), ("http", "modern"), ("stdio", "modern")], ids=lambda word: word
)
async def test_two_clients_at_once(
    servers: Path,
    tmp_path: Path,
    puppets: ExitStack,
    wire: str,
    server_era: str,
    eras: tuple[str, str],
):
    """Each of two clients is asked what its own call has caused, and nothing else, though both are asked at one time."""
    results: dict[tuple[str, str], dict[str, Any]] = {}
    asked: dict[str, list[str]] = {}
    spec = spec_of(wire, server_era, servers, puppets)
    async with serving(spec, tmp_path) as address, two(address, eras) as clients:
        for kind in KINDS:
            meeting = Meeting()
            async with anyio.create_task_group() as tasks:

                async def one(person: Person, client: Client, kind: str = kind) -> None:
                    results[person.name, kind] = await ask(client, person.name, kind)

                for person, client in clients:
                    person.together = meeting
                    tasks.start_soon(one, person, client)
        asked = {person.name: person.asked for person, _ in clients}

    expected = {
        (name, kind): {"who": name, "kind": kind, "answer": ANSWERS[kind](name)} for name in ("ann", "bob") for kind in KINDS
    }
    assert results == expected
    for name, texts in asked.items():
        other = {"ann": "bob", "bob": "ann"}[name]
        assert len(texts) == len(KINDS)
        assert [other in text for text in texts] == [False] * len(KINDS)
        assert [name in text for text in texts] == [True, True, True, False]


@pytest.mark.parametrize("era", [OLDER, NEWER], ids=["older", "newer"])
async def test_over_a_wire_that_all_calls_share(servers: Path, tmp_path: Path, puppets: ExitStack, era: str):
    """A question of an older server over stdio, which names no call, reaches the one client that has a call open."""
    person = Person("ann")
    spec = spec_of("stdio", "legacy", servers, puppets)
    async with serving(spec, tmp_path) as address, person.client(address, era) as client:
        results = [await ask(client, "ann", kind) for kind in KINDS]

    assert results == [{"who": "ann", "kind": kind, "answer": ANSWERS[kind]("ann")} for kind in KINDS]
    assert len(person.asked) == len(KINDS)


@pytest.mark.parametrize("era", [OLDER, NEWER], ids=["older", "newer"])
async def test_a_page_to_visit_first(servers: Path, tmp_path: Path, puppets: ExitStack, era: str):
    """The error that names a page is an error to older clients, who come again by themselves, and a question to newer ones."""
    person = Person("ann")
    spec = spec_of("http", "legacy", servers, puppets)
    code = None
    async with serving(spec, tmp_path) as address, person.client(address, era) as client:
        try:
            result = await client.call_tool("a__page", {"who": "ann"})
        except MCPError as error:
            code = error.code
            result = await client.call_tool("a__page", {"who": "ann"})

    assert json.loads(result.content[0].text)["answer"] == "visited"  # type: ignore[union-attr]
    assert code == (-32042 if era == OLDER else None)
    assert len(person.asked) == (0 if era == OLDER else 1)

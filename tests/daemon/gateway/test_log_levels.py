"""Log levels and log messages on their whole way: clients of both eras, the gateway, the supervisor, a server on the SDK."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.supervisor.transports.http_rig import puppet
from tests.waiting import until

from mcpvisor.daemon.gateway.gateway import Gateway
from mcpvisor.daemon.gateway.settings import GatewaySettings
from mcpvisor.supervisor.events import ServerNotified
from mcpvisor.supervisor.spec import Era, HttpTarget, ServerSpec, Sharing, StdioLaunch
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order, Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

LEGACY, MODERN = "legacy", "2026-07-28"


@pytest.fixture
def http_url() -> Iterator[str]:
    with puppet("sdk_logging.py", "http") as served:
        yield served.url


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, servers: Path) -> StdioLaunch | HttpTarget:
    if request.param == "http":
        return HttpTarget(url=request.getfixturevalue("http_url"))
    return StdioLaunch(command=sys.executable, args=(str(servers / "sdk_logging.py"),))


class Heard:
    """A client and what it was sent of the servers' log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str | None, Any]] = []
        self.client: Client

    async def take(self, params: Any) -> None:
        self.lines.append((params.level, params.logger, params.data))

    @property
    def texts(self) -> list[Any]:
        return [data for _, _, data in self.lines]

    async def work(self, text: str) -> None:
        await self.client.call_tool("puppet__work", {"text": text})

    async def state(self) -> dict[str, Any]:
        return json.loads((await self.client.call_tool("puppet__state", {})).content[0].text)


class Way:
    """A supervised server behind a gateway."""

    def __init__(self, gateway: Gateway, supervisor: Supervisor) -> None:
        self.gateway = gateway
        self.supervisor = supervisor

    @asynccontextmanager
    async def client(self, era: str, level: Any = None) -> AsyncIterator[Heard]:
        heard = Heard()
        asks = {"log_level": level} if era == MODERN else {}
        url = f"{self.gateway.addresses[0]}/mcp"
        async with Client(url, mode=era, logging_callback=heard.take, **asks) as heard.client:
            if era == LEGACY and level is not None:
                await heard.client.set_logging_level(level)
            yield heard


@asynccontextmanager
async def way(
    target: StdioLaunch | HttpTarget, era: Era, tmp_path: Path, sharing: Sharing = Sharing.SHARED
) -> AsyncIterator[Way]:
    settings = GatewaySettings(listen=("127.0.0.1:0",), auth="open", state_dir=tmp_path, first_list_wait=20)
    async with Supervisor() as supervisor:
        await supervisor.apply([ServerSpec(name="puppet", target=target, era=era, sharing=sharing)])
        with anyio.fail_after(20):
            await supervisor.wait_until("puppet", lambda status: status.state is State.READY)
        async with Gateway(supervisor, settings, instance=supervisor.instance, health=lambda *_: (200, "ok")) as gateway:
            yield Way(gateway, supervisor)


async def asked(client: Heard, condition: Callable[[list[str]], bool]) -> list[str]:
    """The levels that the server was asked for, once they are as they should be."""
    with anyio.fail_after(20):
        while not condition(levels := (await client.state())["asked"]):
            await anyio.sleep(0.02)
    return levels


async def test_a_level_reaches_a_server_of_the_older_era(target: Any, tmp_path: Path):
    """Nobody's level: nothing is sent. The most verbose of all sessions is asked for, and less again when that one ends."""
    async with way(target, Era.LEGACY, tmp_path) as to, to.client(LEGACY) as silent:
        before = (await silent.state())["asked"]
        async with to.client(LEGACY, "warning") as quiet:
            # who never asked gets `info`, and must not lose it to the wish for less
            first = await asked(silent, lambda levels: len(levels) == 1)
            async with to.client(LEGACY, "debug") as loud:
                second = await asked(silent, lambda levels: len(levels) == 2)
                await loud.work("one")
                await until(lambda: len(loud.texts) == 3)
            third = await asked(silent, lambda levels: len(levels) == 3)

    assert ([], ["info"], ["info", "debug"], ["info", "debug", "info"]) == (before, first, second, third)
    assert [("debug", "puppet", "one debug"), ("info", "puppet", "one info"), ("error", "puppet", "one error")] == sorted(
        loud.lines, key=lambda line: ["debug", "info", "error"].index(line[0])
    )
    assert {"one debug", "one info"}.isdisjoint(quiet.texts)


async def test_a_new_session_is_brought_to_the_level(servers: Path, tmp_path: Path):
    """A server that was started anew has the level that clients want before it is ready."""
    launch = StdioLaunch(command=sys.executable, args=(str(servers / "sdk_logging.py"),))
    async with way(launch, Era.LEGACY, tmp_path) as to, to.client(LEGACY, "debug") as client:
        await asked(client, lambda levels: levels == ["debug"])
        await to.supervisor.order("puppet", Order.RESTART, who="test")
        with anyio.fail_after(20):
            await to.supervisor.wait_until("puppet", lambda s: s.generation == 2 and s.state is State.READY)
        after = (await client.state())["asked"]

    assert ["debug"] == after


async def test_a_server_of_the_newer_era_is_asked_with_each_request(target: Any, tmp_path: Path):
    """Each call carries the level of the client that makes it, whatever its era; without a level nothing is logged."""
    async with (
        way(target, Era.MODERN, tmp_path) as to,
        to.client(LEGACY, "debug") as session,
        to.client(LEGACY) as unasked,
        to.client(MODERN, "info") as modern,
        to.client(MODERN) as silent,
    ):
        await session.work("a")
        await unasked.work("b")
        await modern.work("c")
        await silent.work("d")
        await until(lambda: len(session.texts) >= 3 and len(modern.texts) >= 2)
        state = await silent.state()

    assert {"asked": [], "per_request": ["debug", None, "info", None]} == state
    assert ["a debug", "a error", "a info"] == sorted(text for text in session.texts if text.startswith("a"))
    assert ["c error", "c info"] == sorted(modern.texts)
    assert [] == silent.lines
    assert not [text for text in unasked.texts if text.startswith("b")]


@pytest.mark.parametrize("server_era", [Era.LEGACY, Era.MODERN])
@pytest.mark.parametrize("caller", [LEGACY, MODERN])
async def test_what_a_call_logs_is_its_callers(http_url: str, tmp_path: Path, server_era: Era, caller: str):
    """Over HTTP a message within the answer to a call reaches the one client that made it."""
    async with (
        way(HttpTarget(url=http_url), server_era, tmp_path) as to,
        to.client(LEGACY, "debug") as session,
        to.client(caller, "debug") as client,
    ):
        await asked(session, lambda levels: server_era is Era.MODERN or levels == ["debug"])
        await client.work("mine")
        await until(lambda: len(client.texts) == 3)
        await session.work("other")
        await until(lambda: len(session.texts) == 3)

    assert {"mine debug", "mine info", "mine error"} == set(client.texts)
    assert {"other debug", "other info", "other error"} == set(session.texts)


async def test_a_client_that_asked_for_no_log_gets_none(http_url: str, tmp_path: Path):
    """A client of 2026-07-28 without a level is spared what its call makes a server of the older era log, and so are others."""
    async with (
        way(HttpTarget(url=http_url), Era.LEGACY, tmp_path) as to,
        to.client(LEGACY, "debug") as session,
        to.client(MODERN) as silent,
    ):
        await asked(session, lambda levels: levels == ["debug"])
        await silent.work("unheard")
        await session.work("heard")
        await until(lambda: len(session.texts) == 3)

    assert [] == silent.lines
    assert {"heard debug", "heard info", "heard error"} == set(session.texts)


async def test_what_belongs_to_no_call_is_for_the_operator(target: Any, tmp_path: Path):
    """A message that comes while no client calls may speak of any client's affairs, and reaches none of them."""
    async with (
        way(target, Era.LEGACY, tmp_path) as to,
        to.client(LEGACY) as one,
        to.client(LEGACY, "debug") as other,
    ):
        with to.supervisor.bus.subscribe() as told:
            await one.client.call_tool("puppet__later", {"text": "of nobody"})
            with anyio.fail_after(20):
                async for event in told:
                    if isinstance(event, ServerNotified) and event.params.get("data") == "of nobody":
                        break
        await other.work("mine")  # on the same wires, behind it
        await until(lambda: "mine error" in other.texts)

    assert (False, None) == (event.to_caller, event.client)
    assert ([], {"mine debug", "mine info", "mine error"}) == (one.lines, set(other.texts))


async def test_what_its_own_server_logs_reaches_a_client(servers: Path, tmp_path: Path):
    """Where a server runs for each client, all that it logs goes to that client, whether it calls or not, and to no other."""
    launch = StdioLaunch(command=sys.executable, args=(str(servers / "sdk_logging.py"),))
    async with (
        way(launch, Era.LEGACY, tmp_path, Sharing.PER_CLIENT) as to,
        to.client(LEGACY) as one,
        to.client(LEGACY, "debug") as other,
        to.client(LEGACY, "critical") as third,
    ):
        for client, text in ((third, "of third"), (one, "of one"), (other, "of other")):
            await client.client.call_tool("puppet__later", {"text": text})
        await until(lambda: bool(one.texts and other.texts))

    assert [["of one"], ["of other"], []] == [client.texts for client in (one, other, third)]


async def test_what_the_wire_cannot_place_is_for_the_one_who_calls(servers: Path, tmp_path: Path):
    """On stdio a message reaches the one client whose call is open, and no other."""
    launch = StdioLaunch(command=sys.executable, args=(str(servers / "sdk_logging.py"),))
    async with way(launch, Era.LEGACY, tmp_path) as to, to.client(LEGACY) as one, to.client(LEGACY) as other:
        await one.client.call_tool("puppet__aside", {"text": "mine"})
        await until(lambda: bool(one.texts))
        await other.client.call_tool("puppet__aside", {"text": "other"})
        await until(lambda: bool(other.texts))

    assert (["mine"], ["other"]) == (one.texts, other.texts)


async def test_what_a_call_logs_beside_its_answer_reaches_no_other_client(http_url: str, tmp_path: Path):
    """A message on the server's own stream may overtake the answer to its call, or come behind it: it is nobody else's."""
    async with (
        way(HttpTarget(url=http_url), Era.LEGACY, tmp_path) as to,
        to.client(LEGACY) as one,
        to.client(LEGACY) as other,
    ):
        await one.client.call_tool("puppet__aside", {"text": "mine"})
        await one.work("done")
        await until(lambda: "done error" in one.texts)

    assert [] == other.texts

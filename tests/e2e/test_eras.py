"""Every era of a client before every era and transport of a server: of two clients at once each gets its own, and no more."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from tests.e2e.running import RunningDaemon, entry, puppet, serving
from tests.supervisor.transports.http_rig import puppet as http_puppet

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).parents[1] / "servers"
DOWN = {"older": "legacy", "newer": "2026-07-28"}
BLIND = "legacy_stdio"
"""Where nobody can tell within which call a server asks."""
OWN = "legacy_stdio_own"
"""The same with an instance for each client, of which it is known."""
UP = [*(f"{era}_{transport}" for era in ("legacy", "modern") for transport in ("stdio", "http")), OWN]
WHO = ("anna", "ben")
SECONDS = 20


class Served(RunningDaemon):
    """One daemon with a server for each era and transport, and which of these have had a call withdrawn."""

    def __init__(self, folder: Path, servers: str) -> None:
        super().__init__(folder, servers)
        self.withdrawn: set[str] = set()

    def renew(self, name: str) -> None:
        """Have other processes of a server over stdio of which a call was withdrawn.

        That call may still ask and log, which nobody could tell from what the next test's calls do.
        """
        if name in self.withdrawn and not name.endswith("http"):
            pid = self.server(name)["pid"]
            self.order(name, "restart")
            self.until(lambda: self.server(name)["pid"] not in (None, pid), "its next process")
            self.until_ready()
        self.withdrawn.discard(name)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The daemon of all tests here."""
    folder = tmp_path_factory.mktemp("e")
    with http_puppet("sdk_eras.py", str(folder / "http.log"), "http") as web:
        entries = [
            entry(name, url=web.url, era=name.split("_")[0])
            if name.endswith("http")
            else puppet(
                name,
                SERVERS / "sdk_eras.py",
                str(folder / f"{name}.log"),
                era=name.split("_")[0],
                sharing="per-client" if name == OWN else "shared",
            )
            for name in UP
        ]
        daemon = Served(folder, "".join(entries))
        with serving(daemon):
            daemon.until_ready()
            yield daemon


@dataclass
class Person:
    """One client of the gateway, what it was asked and told, and the name by which it answers."""

    who: str
    asked: list[str] = field(default_factory=list)
    progress: list[str | None] = field(default_factory=list)
    logged: list[Any] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)
    client: Client = field(init=False)

    async def answer(self, _: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": self.who})

    async def log(self, params: Any) -> None:
        self.logged.append(params.data)
        self._stir()

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.append(str(message.params.uri))
            self._stir()

    async def step(self, _: float, __: float | None, message: str | None) -> None:
        self.progress.append(message)
        self._stir()

    def _stir(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once it is so, after whatever has come."""
        with anyio.fail_after(SECONDS):
            while not is_so():
                await self.changed.wait()

    async def call(self, tool: str, **more: Any) -> str:
        """The text that a tool gives this person."""
        with anyio.fail_after(SECONDS):
            result = await self.client.call_tool(tool, {"who": self.who}, **more)
        return result.content[0].text


@dataclass
class Case:
    """Two clients of one era, and a server of one era and transport."""

    up: str
    anna: Person
    ben: Person
    log: Path
    daemon: Served

    @property
    def both(self) -> tuple[Person, Person]:
        return self.anna, self.ben

    async def together(self, do: Callable[[Person], Any]) -> dict[str, Any]:
        """What comes of it when both do something at one time, by name."""
        results: dict[str, Any] = {}

        async def one(person: Person) -> None:
            results[person.who] = await do(person)

        async with anyio.create_task_group() as tasks:
            for person in self.both:
                tasks.start_soon(one, person)
        return results

    async def touch(self, uri: str) -> None:
        """Have a resource change in the process that is watched, which is never the one of a client alone."""
        with anyio.fail_after(SECONDS):
            if self.up == OWN:
                await anyio.to_thread.run_sync(partial(self.daemon.call, self.up, "touch", uri=uri))
            else:
                await self.ben.client.call_tool("touch", {"uri": uri})

    @asynccontextmanager
    async def waiting(self, person: Person) -> AsyncIterator[None]:
        """Keep a call of one of them open."""
        self.daemon.withdrawn.add(self.up)
        began, cancelled = len(self.noted("began")), len(self.noted("cancelled"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(person.client.call_tool, "wait", {"who": person.who})
            await self.until_noted("began", began + 1)
            yield
            tasks.cancel_scope.cancel()
        await self.until_noted("cancelled", cancelled + 1)

    async def until_noted(self, event: str, count: int) -> None:
        """Return once the server has noted that so often; for what is in a file there is no event to wait for."""
        with anyio.fail_after(SECONDS):
            while len(self.noted(event)) < count:
                await anyio.sleep(0.01)

    def noted(self, event: str) -> list[str]:
        """For whom the server has noted something, in order."""
        text = self.log.read_text() if self.log.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        return [line["who"] for line in lines if line["event"] == event]


@asynccontextmanager
async def opened(url: str, mode: str, who: str) -> AsyncIterator[Person]:
    person = Person(who)
    options: dict[str, Any] = {} if mode == "legacy" else {"log_level": "info"}
    person.client = Client(
        url,
        mode=mode,
        cache=None,
        elicitation_callback=person.answer,
        logging_callback=person.log,
        message_handler=person.hear,
        **options,
    )
    is_left = False
    try:
        async with person.client:
            if mode == "legacy":
                await person.client.set_logging_level("info")
            await person.client.list_tools()
            yield person
            is_left = True
    except* (anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The SDK's client does so when the last word on a withdrawn call comes while it is being closed.
        if not is_left:
            raise


@pytest.fixture(params=[(down, up) for down in DOWN for up in UP], ids=lambda one: f"{one[0]}-{one[1]}")
async def case(request: pytest.FixtureRequest, served: Served, anyio_backend: str) -> AsyncIterator[Case]:
    """All eight, and those with an instance for each client."""
    down, up = request.param
    served.renew(up)
    url = f"{served.gateway}/{up}"
    async with AsyncExitStack() as stack:
        anna, ben = [await stack.enter_async_context(opened(url, DOWN[down], who)) for who in WHO]
        assert (down == "newer") == (anna.client.protocol_version in MODERN_PROTOCOL_VERSIONS)
        yield Case(up, anna, ben, served.folder / ("http.log" if up.endswith("http") else f"{up}.log"), served)


async def test_each_is_asked_its_own_questions(case):
    """A question reaches the client whose call has caused it; where that cannot be known it is declined, and reaches nobody."""
    alone = [await person.call("ask") for person in case.both]
    asked = [list(person.asked) for person in case.both]
    async with case.waiting(case.ben):
        beside = await case.anna.call("ask")
    asked_beside = [person.asked[1:] for person in case.both]

    assert ["anna: accept anna", "ben: accept ben"] == alone
    assert [[f"[{case.up}] Your name, {who}?"] for who in WHO] == asked
    if case.up == BLIND:
        assert ("anna: decline None", [[], []]) == (beside, asked_beside)
    else:
        assert ("anna: accept anna", [[f"[{case.up}] Your name, anna?"], []]) == (beside, asked_beside)


async def test_each_hears_of_its_own_progress(case):
    """Progress goes to the client whose call it is, whole and in order, with both calls under way."""
    results = await case.together(lambda person: person.call("work", progress_callback=person.step))
    for person in case.both:
        await person.until(lambda person=person: len(person.progress) >= 3)

    assert {"anna": "anna", "ben": "ben"} == results
    assert [["anna"] * 3, ["ben"] * 3] == [person.progress for person in case.both]


async def test_each_reads_its_own_log(case):
    """What a server logs within a call goes to the client of that call; what may be another's goes to neither."""
    await case.anna.call("work")
    await case.anna.until(lambda: len(case.anna.logged) >= 3)
    alone = [list(person.logged) for person in case.both]
    await case.together(lambda person: person.call("work"))
    if case.up.endswith("http") or case.up == OWN:
        for person in case.both:
            await person.until(lambda person=person: f"{person.who} 3" in person.logged[-1:])

    assert [[f"anna {step}" for step in (1, 2, 3)], []] == alone
    assert [[], []] == [[line for line in person.logged if not line.startswith(person.who)] for person in case.both]


async def test_each_withdraws_its_own_call(case):
    """A call that is withdrawn ends at its server; the other client's goes on until it is withdrawn as well."""
    case.daemon.withdrawn.add(case.up)
    scopes = {person.who: anyio.CancelScope() for person in case.both}
    before = len(case.noted("began")), len(case.noted("cancelled"))

    async def wait(person: Person) -> None:
        with scopes[person.who]:
            await person.client.call_tool("wait", {"who": person.who})

    async with anyio.create_task_group() as tasks:
        for person in case.both:
            tasks.start_soon(wait, person)
        await case.until_noted("began", before[0] + 2)
        scopes["anna"].cancel()
        await case.until_noted("cancelled", before[1] + 1)
        first = case.noted("cancelled")[before[1] :]
        scopes["ben"].cancel()
        await case.until_noted("cancelled", before[1] + 2)

    assert ["anna"] == first
    assert ["anna", "ben"] == case.noted("cancelled")[before[1] :]


async def test_each_is_told_of_what_it_watches(case):
    """Of two resources that change each client is told of the one that it watches."""
    is_newer = case.anna.client.protocol_version in MODERN_PROTOCOL_VERSIONS
    uris = {person.who: f"memo://{person.who}" for person in case.both}
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:

        async def read(person: Person, events: Any) -> None:
            async for event in events:
                person.updated.append(str(event.uri))
                person._stir()

        for person in case.both:
            if is_newer:
                listening = person.client.listen(resource_subscriptions=[uris[person.who]])
                tasks.start_soon(partial(read, person, await stack.enter_async_context(listening)))
            else:
                await person.client.subscribe_resource(uris[person.who])
        for uri in uris.values():
            await case.touch(uri)
        for person in case.both:
            await person.until(lambda person=person: uris[person.who] in person.updated)
        tasks.cancel_scope.cancel()

    assert [{"memo://anna"}, {"memo://ben"}] == [set(person.updated) for person in case.both]

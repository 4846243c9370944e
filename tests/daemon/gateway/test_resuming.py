"""Event streams that break are taken up again, by the client whose they are and nobody else, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.daemon.gateway.puppet import Call, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, call
from tests.waiting import until

from mcpvisor.daemon.gateway import event_memory, event_stream
from mcpvisor.daemon.gateway.event_memory import EventMemory, Shelf
from mcpvisor.daemon.gateway.event_stream import Line, follow
from mcpvisor.daemon.gateway.frames import PING
from mcpvisor.supervisor.offer import Offer

pytestmark = pytest.mark.anyio

EARLY = {"accept": "text/event-stream, application/json", "mcp-protocol-version": "2025-11-25"}


class Slow:
    """A server that answers when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.go = anyio.Event()

    async def __call__(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        await self.go.wait()
        return {"content": [{"type": "text", "text": "done"}]}


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def supervisor(slow: Slow) -> PuppetSupervisor:
    door = PuppetConnection("a", Offer(tools=(tool("echo"),)))
    door.answer = slow
    return PuppetSupervisor(door)


@asynccontextmanager
async def client_of(supervisor: PuppetSupervisor, tmp_path: Path) -> AsyncIterator[tuple[Any, Wire]]:
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        with anyio.fail_after(20):
            await client.open()
            yield served, client


class Events:
    """What comes on one event stream, event by event."""

    def __init__(self, answer: httpx2.Response) -> None:
        self._chunks = answer.aiter_text()
        self._text = ""

    async def next(self) -> dict[str, str]:
        """The fields of the next event. Raises StopAsyncIteration at the end of the stream."""
        while True:
            while "\r\n\r\n" not in self._text:
                self._text += await anext(self._chunks)
            one, _, self._text = self._text.partition("\r\n\r\n")
            if not one.startswith(":"):
                return dict(line.split(": ", 1) for line in one.split("\r\n"))

    async def rest(self) -> list[dict[str, str]]:
        """All that still comes."""
        found: list[dict[str, str]] = []
        try:
            while True:
                found.append(await self.next())
        except StopAsyncIteration:
            return found


def asking(client: Wire, request_id: Any = 2, **headers: str) -> Any:
    """The stream of a call."""
    body = call("a__echo", request_id, _meta={"progressToken": "t"})
    return client.http.stream("POST", "/mcp", json=body, headers={"mcp-session-id": client.session or "", **EARLY, **headers})


def resuming(client: Wire, event_id: str) -> Any:
    """The stream that goes on after an event."""
    headers = {"mcp-session-id": client.session or "", "last-event-id": event_id, **EARLY}
    return client.http.stream("GET", "/mcp", headers=headers)


def progress(slow: Slow, done: int) -> None:
    on_progress = slow.calls[0].on_progress
    assert on_progress is not None
    on_progress({"progress": done, "progressToken": 0})


async def test_a_stream_that_is_cut_in_the_middle(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """The call goes on, and what came after the last event that was received comes on the next stream, each once."""
    async with client_of(supervisor, tmp_path) as (_, client):
        async with asking(client) as answer:
            events = Events(answer)
            first = await events.next()
            await until(lambda: bool(slow.calls))
            progress(slow, 1)
            second = await events.next()
        progress(slow, 2)
        async with resuming(client, second["id"]) as answer:
            events = Events(answer)
            begin, third = await events.next(), await events.next()
            slow.go.set()
            rest = await events.rest()
        async with resuming(client, first["id"]) as answer:
            again = await Events(answer).rest()

    assert ("", "1000") == (first["data"], first["retry"])
    assert [second["id"], ""] == [begin["id"], begin["data"]]
    assert '"progress":2' in third["data"]
    assert 1 == len(rest)
    assert '"text":"done"' in rest[0]["data"]
    assert [second, third, *rest] == again[1:]
    assert not supervisor.connection("a").cancelled.is_set()


async def test_a_stream_in_use_is_taken_over(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """Each message goes to one stream alone: that which was opened last."""
    async with client_of(supervisor, tmp_path) as (_, client), asking(client) as answer:
        first = await Events(answer).next()
        await until(lambda: bool(slow.calls))
        async with resuming(client, first["id"]) as second, anyio.create_task_group() as tasks:
            earlier: list[dict[str, str]] = []

            async def read() -> None:
                earlier.extend(await Events(second).rest())

            tasks.start_soon(read)
            async with resuming(client, first["id"]) as third:
                events = Events(third)
                await events.next()
                slow.go.set()
                last = await events.rest()

    assert [""] == [one["data"] for one in earlier]
    assert 1 == len(last)


async def test_an_older_client(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """One that does not know events without data gets none, and can go on all the same."""
    async with client_of(supervisor, tmp_path) as (_, client):
        async with asking(client, **{"mcp-protocol-version": "2025-06-18"}) as answer:
            await until(lambda: bool(slow.calls))
            progress(slow, 1)
            first = await Events(answer).next()
        slow.go.set()
        async with resuming(client, first["id"]) as answer:
            rest = await Events(answer).rest()

    assert '"progress":1' in first["data"]
    assert '"text":"done"' in rest[-1]["data"]


async def test_ids_of_others(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """Whoever presents the id of another session's event learns what he learns with one that never was: nothing."""
    async with client_of(supervisor, tmp_path) as (served, client), Wire(served.addresses[0]) as other:
        await other.open()
        async with asking(client) as answer:
            real = (await Events(answer).next())["id"]
        slow.go.set()
        never = real[0] + "A" * 16 + real[17:]
        told: list[list[dict[str, str]]] = []
        for event_id in (real, never):
            async with resuming(other, event_id) as answer:
                told.append(await Events(answer).rest())
        async with resuming(client, real) as answer:
            own = await Events(answer).rest()

    assert told[0] == told[1]
    assert 1 == len(told[0])
    assert '"id":2' in told[0][0]["data"]
    assert '"cause":"answer_forgotten"' in told[0][0]["data"]
    assert '"outcome":"maybe_executed"' in told[0][0]["data"]
    assert '"text":"done"' in own[-1]["data"]


async def test_an_answer_that_is_not_kept_any_more(
    supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
):
    """Who comes too late is told that the request may have been carried out, rather than left to wait."""
    async with client_of(supervisor, tmp_path) as (_, client):
        slow.go.set()
        async with asking(client) as answer:
            events = await Events(answer).rest()
        monkeypatch.setattr(event_memory, "KEPT_SECONDS", -1.0)
        async with resuming(client, events[0]["id"]) as answer:
            late = await Events(answer).rest()

    assert '"text":"done"' in events[-1]["data"]
    assert 1 == len(late)
    assert '"cause":"answer_forgotten"' in late[0]["data"]


async def test_an_answer_that_was_received(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """Who comes back after the answer itself is told nothing: least of all that it is not kept."""
    async with client_of(supervisor, tmp_path) as (_, client):
        slow.go.set()
        async with asking(client) as answer:
            events = await Events(answer).rest()
        async with resuming(client, events[-1]["id"]) as answer:
            more = await answer.aread()

    assert '"text":"done"' in events[-1]["data"]
    assert (200, b"") == (answer.status_code, more)


async def test_an_answer_that_comes_while_a_ping_is_written(monkeypatch: pytest.MonkeyPatch):
    """It is not left waiting for the next one, which never comes, where the client had not read until then."""
    monkeypatch.setattr(event_stream, "PING_INTERVAL", 0.01)
    blocked, reads = anyio.Event(), anyio.Event()
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        if message.get("body") == PING:
            blocked.set()
            await reads.wait()
        sent.append(message.get("body", b""))

    track, line = EventMemory(Shelf()).open(1), Line(send, "session")
    await line.begin()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(follow, track, 0, line, otherwise=b"lost"))
            await blocked.wait()
            last = track.record(b"{}", is_last=True)
            reads.set()

    assert last == sent[-1]


@pytest.mark.parametrize("request_id", [1.5, None, True, [1]])
async def test_ids_that_are_none(supervisor: PuppetSupervisor, tmp_path: Path, request_id: Any):
    """A request whose id can name nothing is refused, rather than taken for a notification that nobody answers."""
    async with client_of(supervisor, tmp_path) as (_, client):
        answer = await client.post(call("a__echo", request_id))

    assert 400 == answer.status_code
    assert "the id of a request has to be a string or a whole number" == answer.json()["error"]["message"]


async def test_no_request_in_flight_is_answered_so(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """An id that is not known, and names a request that is in flight, is refused: the answer to that is on its way."""
    async with client_of(supervisor, tmp_path) as (_, client), asking(client) as answer:
        events = Events(answer)
        real = (await events.next())["id"]
        async with resuming(client, real[0] + "A" * 16 + real[17:]) as refused:
            pass
        slow.go.set()
        rest = await events.rest()

    assert 400 == refused.status_code
    assert '"text":"done"' in rest[-1]["data"]


async def test_the_end_of_the_session(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """Who has taken up a stream is told when the session ends under it, and nothing is kept of it."""
    async with client_of(supervisor, tmp_path) as (served, client):
        session = served._sessions.all()[0]
        async with asking(client) as answer:
            first = await Events(answer).next()
        async with resuming(client, first["id"]) as answer:
            events = Events(answer)
            await events.next()
            await client.delete()
            rest = await events.rest()

    assert 1 == len(rest)
    assert '"cause":"session_ended"' in rest[0]["data"]
    assert 0 == session.transport.memory.size


async def test_a_server_that_ends_its_stream(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """A client that asked for an event stream has it ended as the server has ended its own, and comes back for the answer."""
    async with client_of(supervisor, tmp_path) as (_, client):
        async with asking(client) as answer:
            await until(lambda: bool(slow.calls))
            pause = slow.calls[0].on_pause
            assert pause is not None
            pause()
            before = await Events(answer).rest()
        async with resuming(client, before[0]["id"]) as answer:
            events = Events(answer)
            await events.next()
            slow.go.set()
            rest = await events.rest()

    assert [""] == [one["data"] for one in before]
    assert '"text":"done"' in rest[0]["data"]


async def test_nobody_else_loses_the_stream(supervisor: PuppetSupervisor, tmp_path: Path, slow: Slow):
    """A client that takes JSON first waits for its answer, whatever the server does with its own stream."""
    async with client_of(supervisor, tmp_path) as (_, client), anyio.create_task_group() as tasks:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await client.post(call("a__echo")))

        tasks.start_soon(ask)
        await until(lambda: bool(slow.calls))
        pause = slow.calls[0].on_pause
        assert pause is not None
        pause()
        slow.go.set()
        await until(lambda: bool(answers))

    assert "application/json" == answers[0].headers["content-type"]
    assert "done" == answers[0].json()["result"]["content"][0]["text"]


async def test_a_stream_of_notifications_that_breaks(supervisor: PuppetSupervisor, tmp_path: Path):
    """What came on it after the last event that was received comes again; an older stream that seems to be open is ended."""
    async with client_of(supervisor, tmp_path) as (served, client):
        session = served._sessions.all()[0]
        headers = {"mcp-session-id": client.session or "", **EARLY}
        async with client.http.stream("GET", "/mcp", headers=headers) as answer:
            events = Events(answer)
            first = await events.next()
            session.outbox.log("notifications/message", {"level": "error", "data": "one"})
            second = await events.next()
            async with resuming(client, first["id"]) as later:
                following = Events(later)
                begin, again = await following.next(), await following.next()
                session.outbox.list_changed("notifications/tools/list_changed")
                third = await following.next()
                left = await events.rest()

    assert "" == first["data"] == begin["data"]
    assert second == again
    assert "list_changed" in third["data"]
    assert [] == left


async def test_an_unknown_stream_of_notifications(supervisor: PuppetSupervisor, tmp_path: Path):
    """Where nobody knows what was missed, as after another run of the daemon, all may differ."""
    async with client_of(supervisor, tmp_path) as (_, client), resuming(client, f"p{'A' * 16}.7") as answer:
        events = Events(answer)
        got = [await events.next() for _ in range(4)]

    assert "" == got[0]["data"]
    assert {"tools", "prompts", "resources"} == {one["data"].split("notifications/")[1].split("/")[0] for one in got[1:]}

"""What waits for a client is merged or bounded, and what a request emits precedes its result."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcpvisor.daemon.gateway import emissions, outbox
from mcpvisor.daemon.gateway.emissions import Emissions
from mcpvisor.daemon.gateway.loglevels import LevelWishes, admits, named
from mcpvisor.daemon.gateway.outbox import Outbox
from mcpvisor.supervisor.errors import Outcome, RequestFailed

pytestmark = pytest.mark.anyio


async def test_an_outbox_of_a_silent_client(monkeypatch: pytest.MonkeyPatch):
    """While a client does not listen, a change is kept once and the oldest log messages go."""
    monkeypatch.setattr(outbox, "LOG_BACKLOG", 100)
    box, sent, is_open = Outbox(), [], anyio.Event()

    async def push(method: str, params: dict[str, Any] | None) -> None:
        await is_open.wait()
        sent.append((method, params))

    for number in range(150):
        box.log("log", {"n": number})
        box.list_changed("changed")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.deliver, push, anyio.lowlevel.checkpoint)
        is_open.set()
        with anyio.fail_after(20):
            while len(sent) < 101:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert sent[0] == ("changed", None)
    assert [params["n"] for _, params in sent[1:] if params] == list(range(50, 150))


async def test_large_messages_that_wait():
    """What waits for a client is bounded in bytes as well; a message that is too large by itself is dropped, and counted."""
    box, sent = Outbox(), []

    async def push(_: str, params: dict[str, Any] | None) -> None:
        sent.append((params or {})["n"])

    for number in range(10):
        box.log("log", {"n": number, "data": "x" * 200_000})
    box.log("log", {"n": 10, "data": "x" * 300_000})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.deliver, push, anyio.lowlevel.checkpoint)
        with anyio.fail_after(20):
            while len(sent) < 5:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert (sent, box.dropped) == ([5, 6, 7, 8, 9], 6)


async def test_large_emissions():
    """Progress that a slow client does not take in is dropped by its bytes; the result comes all the same."""
    sent: list[int] = []

    async def send(_: str, params: dict[str, Any]) -> None:
        sent.append(params["n"])

    emitted = Emissions(send)

    async def request() -> dict[str, Any]:
        for number in range(10):
            emitted.put("m", {"n": number, "data": "x" * 200_000})
        emitted.put("m", {"n": 10, "data": "x" * 300_000})
        return {"data": "x" * 3_000_000}

    result = await emitted.during(request)

    assert (len(result["data"]), sent) == (3_000_000, [5, 6, 7, 8, 9])


async def test_emissions_precede_the_result():
    """All that was put before the result is sent before it, in order; what comes later is nobody's."""
    sent: list[int] = []

    async def send(_: str, params: dict[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(params["n"])

    emitted = Emissions(send)

    async def request() -> dict[str, Any]:
        for number in range(5):
            emitted.put("m", {"n": number})
        return {"done": len(sent)}

    result = await emitted.during(request)
    emitted.put("m", {"n": 99})

    assert (result, sent) == ({"done": 0}, [0, 1, 2, 3, 4])


async def test_a_flood_of_emissions():
    """A slow client costs a bounded backlog: the newest are kept."""
    sent: list[int] = []

    async def send(_: str, params: dict[str, Any]) -> None:
        sent.append(params["n"])

    emitted = Emissions(send)

    async def request() -> dict[str, Any]:
        for number in range(10_000):
            emitted.put("m", {"n": number})
        return {}

    await emitted.during(request)

    assert sent == list(range(10_000 - emissions.BACKLOG, 10_000))


async def test_a_failure_after_emissions():
    """A failure leaves as it is, after what was emitted."""
    sent: list[str] = []

    async def send(method: str, _: dict[str, Any]) -> None:
        sent.append(method)

    emitted = Emissions(send)

    async def request() -> dict[str, Any]:
        emitted.put("m", {})
        raise RequestFailed(Outcome.TIMEOUT, "deadline", "too late")

    with pytest.raises(RequestFailed, match="too late"):
        await emitted.during(request)
    assert sent == ["m"]


@pytest.mark.parametrize(
    ("wanted", "level", "expected"),
    [("warning", "error", True), ("warning", "warning", True), ("warning", "info", False), ("info", "nonsense", True)],
)
def test_levels(wanted: str, level: str, expected: bool):
    """A level admits itself and what is worse."""
    assert admits(wanted, level) is expected


def test_the_level_that_all_sessions_make():
    """The most verbose one, told when it differs; who never asked counts as `info`, but only beside those who did."""
    told: list[str | None] = []
    wishes = LevelWishes(told.append)
    silent, quiet, loud = wishes.open(), wishes.open(), wishes.open()
    loud.change("debug")
    quiet.change("error")
    loud.change("debug")
    loud.end()
    silent.end()
    quiet.change("alert")
    quiet.end()
    quiet.end()
    quiet.change("debug")  # a request that outlived its session

    assert told == ["debug", "info", "error", "alert", None]


def test_loggers_name_their_server():
    """The logger of a message begins with its server, whatever the server says."""
    assert named("a", {"data": 1})["logger"] == "a"
    assert named("a", {"logger": "b"})["logger"] == "a/b"
    assert named("a", {"logger": 7})["logger"] == "a"

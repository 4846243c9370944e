"""The push stream of a legacy session: opened, watched, opened again, and never in the way of calls."""

from __future__ import annotations

from itertools import pairwise

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import (
    BOTH,
    STREAM_HEAD,
    Heard,
    Request,
    echo,
    event,
    mcp,
    puppet,
    raw_server,
    reply,
    session,
)
from tests.waiting import until

from mcpvisor.supervisor.transports.push import PushPacing

UPDATED = "notifications/resources/updated"


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


def test_pacing_grows_and_is_reset() -> None:
    """The delay doubles from one second to a minute, and begins anew after a stream that has lived."""
    pacing = PushPacing(jitter=lambda: 1.0)

    assert [1, 2, 4, 8, 16, 32, 60, 60] == [pacing.after(3.0) for _ in range(8)]
    assert [1, 2] == [pacing.after(10.0), pacing.after(0.0)]


def test_pacing_is_jittered() -> None:
    """No two daemons come back at the same moment: the delay is spread over its upper half."""
    assert [0.5, 1.0] == [PushPacing(jitter=lambda low=low: low).after(0.0) for low in (0.0, 1.0)]


@pytest.mark.parametrize(("retry_ms", "expected"), [(0, 0.5), (700, 0.7), (999_999, 60.0)])
def test_pacing_as_the_server_asks(retry_ms: int, expected: float) -> None:
    """A server that says `retry:` and has used its stream gets what it asks for, between half a second and a minute."""
    assert expected == PushPacing().after(0.1, retry_ms=retry_ms, carried=True)
    assert expected == PushPacing().after(2.0, retry_ms=retry_ms)


def test_pacing_of_a_server_that_only_asks() -> None:
    """A `retry:` on a stream that was of no use is no reason to come back quickly, only one to come back later."""
    pacing = PushPacing(jitter=lambda: 1.0)

    assert [1, 2, 4] == [pacing.after(1.9, retry_ms=100) for _ in range(3)]
    assert [20, 20, 32, 60] == [pacing.after(0.0, retry_ms=20_000) for _ in range(4)]
    assert 60 == pacing.after(0.0, retry_ms=999_999_999)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("mode", "state", "named"),
    [
        ("405", "none", "405 Method Not Allowed"),
        ("200-json", "none", "200 OK, application/json"),
        ("200-text", "none", "200 OK, text/plain"),
        ("404", "none", "404 Not Found"),
        ("400", "none", "400 Bad Request"),
        ("406", "none", "406 Not Acceptable"),
        ("500", "retrying", "500 Internal Server Error"),
        ("hang", "opening", ""),
    ],
)
async def test_refused(mode: str, state: str, named: str) -> None:
    """However a server says that it has no push stream, that is shown with its reason and asked once; calls just work."""
    with puppet("http_get_refused.py", mode) as server:
        async with session(server.url) as wire:
            assert "hello" == await echo(wire)
            await until(lambda: wire.push == state and (server.state().get("gets", 0) == 1))
            assert named in wire.push_reason
            assert "hello" == await echo(wire)
        assert 1 == server.state()["gets"]


@pytest.mark.anyio
@pytest.mark.parametrize("status", ["500 Internal Server Error", "401 Unauthorized"])
async def test_trouble_is_tried_again(status: str) -> None:
    """A GET that fails, or whose credentials are refused, is sent again after a delay, and the stream is then used."""
    gets = 0

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        nonlocal gets
        if request.verb != "GET":
            return reply(status="202 Accepted")
        gets += 1
        if gets < 3:
            return reply(status=status)
        await stream.send(STREAM_HEAD + event({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "a"}}))
        await anyio.sleep(60)
        return None

    heard = Heard()
    async with raw_server(mcp(answer)) as url, session(url, heard) as wire:
        wire.push_stream._pacing = PushPacing(jitter=lambda: -0.9)
        with anyio.fail_after(20):
            while wire.push != "open":
                await wire.push_stream.changed.wait()
        await until(lambda: bool(heard.notifications))
    assert (3, [(UPDATED, {"uri": "a"})]) == (gets, heard.notifications)


@pytest.mark.anyio
async def test_resumed_by_id() -> None:
    """A stream that gave ids is resumed from the last one, at the time the server asked for; its end makes the wire suspect."""
    with puppet("http_sse_recycle.py", "ids", "--life", "0.5") as server:
        heard = Heard()
        async with session(server.url, heard) as wire:
            suspicion = wire.suspicion
            await wire.request("resources/subscribe", {"uri": "res://counter"})
            await until(lambda: server.state().get("gets", 0) >= 3)
            assert (True, None) == (suspicion.is_set(), wire.end)
            assert "0" <= (await wire.request("resources/read", {"uri": "res://counter"}))["contents"][0]["text"]
            await until(lambda: len(heard.notifications) >= 4)
        state = server.state()
        assert (1, 1) == (state["most_open"], state["initializes"])
        assert state["gets_per_second_max"] <= 2
        assert {UPDATED} == {method for method, _ in heard.notifications}
        assert ([], []) == (heard.noises, heard.refusals)


@pytest.mark.anyio
async def test_last_event_id_is_sent() -> None:
    """What is missed between two streams can be had from a server that keeps it: the last id is named."""
    ids: list[str | None] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.verb != "GET":
            return reply(status="202 Accepted")
        ids.append(request.headers.get("last-event-id"))
        await stream.send(STREAM_HEAD + b"id: e%d\nretry: 1\ndata:\n\n" % len(ids))
        return None

    async with raw_server(mcp(answer)) as url, session(url):
        await until(lambda: len(ids) >= 2)
    assert [None, "e1"] == ids[:2]


@pytest.mark.anyio
@pytest.mark.parametrize("sent", [b"retry: 0\nid: 5\ndata:\n\n", b"retry: 0\n\n", b"retry: 0\nevent: ping\ndata: {}\n\n"])
async def test_streams_that_carry_nothing_are_opened_ever_more_slowly(sent: bytes) -> None:
    """A server that ends each at once, and says that it wants no wait, is asked after one second, two and four."""
    gets: list[float] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.verb != "GET":
            return reply(status="202 Accepted")
        gets.append(anyio.current_time())
        await stream.send(STREAM_HEAD + sent)
        return None

    async with raw_server(mcp(answer)) as url, session(url) as wire:
        wire.push_stream._pacing = PushPacing(jitter=lambda: 1.0)
        await until(lambda: len(gets) == 4)
    waits = [later - at for at, later in pairwise(gets)]

    assert [True, True, True] == [wait >= least for wait, least in zip(waits, (0.99, 1.99, 3.99), strict=True)]


@pytest.mark.anyio
async def test_one_get_for_streams_that_end_at_once() -> None:
    """Streams that end without a byte are opened ever more slowly."""
    with puppet("http_sse_recycle.py", "empty") as server:
        async with session(server.url) as wire:
            await until(lambda: server.state().get("gets", 0) == 2)
            await until(lambda: wire.push == "retrying")
            assert "the server ended the stream" == wire.push_reason
            assert "hello" == await echo(wire)
        assert server.state()["gets_per_second_max"] <= 2


@pytest.mark.anyio
@pytest.mark.parametrize(("mode", "push"), [("get", "open"), ("post", "none")])
async def test_updates_on_either_stream(mode: str, push: str) -> None:
    """Updates are taken from the push stream, and where there is none from the streams that answer calls."""
    heard = Heard()
    with puppet("http_resource_subs.py", mode) as server:
        async with session(server.url, heard) as wire:
            await until(lambda: wire.push == push)
            await wire.request("resources/subscribe", {"uri": "MiXeD://Host/Path/"})
            server.control("touch", uri="MiXeD://Host/Path/")
            await wire.request("ping", None)
            await until(lambda: len(heard.notifications) == 2)
    assert ["memo://stranger", "MiXeD://Host/Path/"] == [params["uri"] for _, params in heard.notifications]


@pytest.mark.anyio
async def test_end_of_the_stream_after_a_loss() -> None:
    """When the server drops its sessions the end of the stream raises suspicion, and the next request tells the rest."""
    with puppet("http_resource_subs.py") as server:
        async with session(server.url) as wire:
            await until(lambda: wire.push == "open")
            server.control("drop")
            await until(lambda: wire.suspect)
            assert wire.end is None


@pytest.mark.anyio
async def test_requests_of_the_server_on_the_push_stream() -> None:
    """A request that the server makes on the push stream is answered by a POST."""
    answered = anyio.Event()
    got: list[dict] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.verb == "GET":
            await stream.send(STREAM_HEAD + event({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
            await anyio.sleep(60)
        elif request.verb == "POST" and "method" not in request.message:
            got.append(request.message)
            answered.set()
        return reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url, session(url):
        with anyio.fail_after(20):
            await answered.wait()
    assert [{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "not offered"}}] == got

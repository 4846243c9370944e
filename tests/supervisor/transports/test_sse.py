"""The wire of the old HTTP+SSE transport against a server of that kind."""

from __future__ import annotations

import json
import re

import anyio
import pytest
from tests.supervisor.transports.http_rig import (
    BOTH,
    HANDSHAKE,
    Heard,
    echo,
    puppet,
    raw_server,
    read_request,
    shake_hands,
    spec_of,
    wired,
)

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.spec import HttpTransport
from mcpvisor.supervisor.transports.http_memory import HttpMemory

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


def sse_spec(url: str):
    return spec_of(url, transport=HttpTransport.SSE)


async def failure_of(call) -> RequestFailed:
    with anyio.fail_after(20), pytest.raises(RequestFailed) as failed:
        await call
    return failed.value


async def test_calls() -> None:
    """Requests go out as POSTs, answers come on the stream, many at a time."""
    with puppet("sse_old.py") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            await shake_hands(wire)
            got: list[str] = []

            async def call(text: str) -> None:
                got.append(await echo(wire, text))

            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(call, str(number))
            assert ("sse", [str(number) for number in range(20)]) == (wire.kind, sorted(got, key=int))


async def test_the_address_of_a_session_is_secret() -> None:
    """What is long in the address that the server has named is learnt: the id of the session is somewhere in it."""
    learnt: list[str] = []
    with puppet("sse_old.py") as server:
        async with wired(sse_spec(server.url), Heard(), memory=HttpMemory(learnt.extend)) as wire:
            await shake_hands(wire)
    (session,) = learnt

    assert re.fullmatch("[0-9a-f]{32}", session)


async def test_question_within_a_call() -> None:
    """A request of the server is answered while the call that caused it is going on."""
    with puppet("sse_old.py") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            await shake_hands(wire)
            with anyio.fail_after(20):
                got = await wire.request("tools/call", {"name": "ask", "arguments": {}})
    assert {"roots": []} == json.loads(got["content"][0]["text"])


async def test_end_of_the_stream() -> None:
    """The end of the stream is the end of the wire: what is in flight fails at once, what comes later is not sent."""
    with puppet("sse_old.py") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            await shake_hands(wire)
            failure = await failure_of(wire.request("tools/call", {"name": "die", "arguments": {}}))
            after = await failure_of(wire.request("ping", None))
            assert (Outcome.MAYBE_EXECUTED, "stream_failed") == (failure.outcome, failure.cause)
            assert (Outcome.NOT_SENT, "stream_failed") == (after.outcome, after.cause)


async def test_death_of_the_server() -> None:
    """A server that dies ends the wire."""
    with puppet("sse_old.py") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            await shake_hands(wire)
            server.process.kill()
            with anyio.fail_after(20):
                await wire.ended.wait()
            assert wire.end is not None
            assert "stream_failed" == wire.end.cause


async def test_failed_post() -> None:
    """A POST that is refused fails its request at once; the wire stands."""
    with puppet("sse_old.py", "fail-post") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            await shake_hands(wire)
            failure = await failure_of(echo(wire))
            assert (Outcome.MAYBE_EXECUTED, "server_error") == (failure.outcome, failure.cause)
            assert {} == await wire.request("ping", None)


@pytest.mark.parametrize(
    ("mode", "cause", "named"),
    [("foreign", "protocol", "another origin"), ("refuse", "stream_failed", "503 Service Unavailable")],
)
async def test_streams_that_lead_nowhere(mode: str, cause: str, named: str) -> None:
    """A foreign endpoint and a refused GET end the wire with the reason, and the waiting request was not sent."""
    with puppet("sse_old.py", mode) as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
            assert (Outcome.NOT_SENT, cause) == (failure.outcome, failure.cause)
            assert named in failure.message
            assert wire.end is not None
            assert (7.0 if mode == "refuse" else None) == wire.end.retry_after_s


async def test_nobody_listens() -> None:
    """A refused dial ends the wire as such."""

    async def serve(stream) -> None: ...

    async with raw_server(serve) as url:
        pass
    async with wired(sse_spec(url), Heard()) as wire:
        failure = await failure_of(wire.request("initialize", HANDSHAKE))
        assert (Outcome.NOT_SENT, "connect_failed") == (failure.outcome, failure.cause)


async def test_no_event_stream() -> None:
    """A GET that is answered with something else is named as a matter of the protocol."""
    with puppet("http_get_refused.py", "200-text") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
            assert (Outcome.NOT_SENT, "protocol") == (failure.outcome, failure.cause)
            assert "text/plain" in failure.message


async def test_silent_server_can_be_left() -> None:
    """A server that never names its endpoint holds nobody beyond his own deadline, nor the end of the wire."""
    with puppet("sse_old.py", "silent") as server:
        async with wired(sse_spec(server.url), Heard()) as wire:
            with anyio.move_on_after(0.2) as scope:
                await wire.request("tools/call", {"name": "echo"})
            assert scope.cancelled_caught


async def test_endless_line() -> None:
    """A line without end is one refusal and the end of the wire."""

    async def serve(stream) -> None:
        await read_request(stream, bytearray())
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
        while True:
            await stream.send(b"x" * 65536)

    heard = Heard()
    async with raw_server(serve) as url:
        spec = spec_of(url, transport=HttpTransport.SSE, max_message=1_000_000)
        async with wired(spec, heard) as wire:
            with anyio.fail_after(20):
                await wire.ended.wait()
    assert ["size"] == [reason for reason, _ in heard.refusals]

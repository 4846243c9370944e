"""What wires do with credentials that change, run out or cannot be had, whatever they carry them on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import (
    BOTH,
    STREAM_HEAD,
    Heard,
    Request,
    echo,
    mcp,
    raw_server,
    read_request,
    reply,
    result,
    shake_hands,
    spec_of,
)
from tests.waiting import until

from mcpvisor.supervisor.auth.credential import Credential, CredentialsMissing
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.spec import HttpTransport
from mcpvisor.supervisor.transports.http import HttpWire
from mcpvisor.supervisor.transports.open_http import open_http
from mcpvisor.supervisor.transports.sse import SseWire

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


class Numbered:
    """Credentials `t1`, `t2` and so on: each refusal of the newest makes another, up to `last`; none while `missing`."""

    def __init__(self, last: int = 9) -> None:
        self._newest = self._made(1)
        self._number = 1
        self._last = last
        self.missing: CredentialsMissing | None = None
        self.accepted_ones: list[str] = []

    @staticmethod
    def _made(number: int) -> Credential:
        return Credential((("authorization", f"t{number}"),))

    async def current(self) -> Credential:
        if self.missing is not None:
            raise self.missing
        return self._newest

    async def instead_of(self, refused: Credential, challenge: str) -> Credential | None:
        if refused is self._newest:
            if self._number >= self._last:
                return None
            self._number += 1
            self._newest = self._made(self._number)
        return await self.current()

    def accepted(self, credential: Credential) -> None:
        self.accepted_ones.append(credential.headers[0][1])


@asynccontextmanager
async def wired(url: str, credentials: Numbered, transport: HttpTransport) -> AsyncIterator[HttpWire | SseWire]:
    spec = spec_of(url, transport=transport)
    async with open_http(spec, Heard(), credentials=credentials) as wire, anyio.create_task_group() as tasks:
        await tasks.start(wire.run, None, None)
        yield wire
        tasks.cancel_scope.cancel()


class Guarded:
    """What a server takes: the credential `wanted`, which a test may change; and how often it refused what."""

    def __init__(self, wanted: str = "t1") -> None:
        self.wanted = wanted
        self.refused: list[tuple[str, str, str]] = []

    def refusal(self, request: Request) -> bytes | None:
        sent = request.headers.get("authorization", "")
        if sent == self.wanted:
            return None
        self.refused.append((request.verb, request.message.get("method", ""), sent))
        return reply({"error": "invalid_token"}, status="401 Unauthorized")


def text(request: Request) -> dict[str, object]:
    return result(request, {"content": [{"type": "text", "text": request.message["params"]["arguments"]["text"]}]})


async def test_the_old_transport_renews_on_its_stream_and_on_its_posts() -> None:
    """Over HTTP+SSE the GET of the stream and each POST are repeated with what is newer; the stream that stands goes on."""
    guarded = Guarded("t2")
    streams: list[anyio.abc.ByteStream] = []

    async def serve(stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            request = await read_request(stream, buffer)
            if refusal := guarded.refusal(request):
                await stream.send(refusal)
                continue
            if request.verb == "GET":
                streams.append(stream)
                await stream.send(STREAM_HEAD + b"event: endpoint\ndata: /post\n\n")
                await anyio.sleep_forever()
            await stream.send(reply(status="202 Accepted"))
            if request.message.get("method") == "initialize":
                answer = result(request, {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {}})
            elif "id" in request.message:
                answer = text(request)
            else:
                continue
            await streams[0].send(b"event: message\ndata: " + json.dumps(answer).encode() + b"\n\n")

    credentials = Numbered()
    with anyio.fail_after(20):
        async with raw_server(serve) as url, wired(url, credentials, HttpTransport.SSE) as wire:
            await shake_hands(wire)
            assert "one" == await echo(wire, "one")
            guarded.wanted = "t3"
            assert "two" == await echo(wire, "two")
            assert wire.end is None
    assert [("GET", "", "t1"), ("POST", "tools/call", "t2")] == guarded.refused
    assert 1 == len(streams)


async def test_a_call_is_repeated_once() -> None:
    """What is refused again is refused: the caller is told so, and the wire asks for a probe of its session."""
    guarded = Guarded()

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        return guarded.refusal(request) or (reply(text(request)) if "id" in request.message else reply(status="202 Accepted"))

    with anyio.fail_after(20):
        async with raw_server(mcp(answer)) as url, wired(url, Numbered(), HttpTransport.STREAMABLE_HTTP) as wire:
            await shake_hands(wire)
            await until(lambda: wire.push == "none")
            guarded.refused.clear()
            guarded.wanted = "t9"
            with pytest.raises(RequestFailed) as caught:
                await echo(wire)
            assert (Outcome.NOT_SENT, "auth") == (caught.value.outcome, caught.value.cause)
            assert wire.suspect
    assert ["t1", "t2"] == [sent for _, method, sent in guarded.refused if method == "tools/call"]


async def test_a_call_that_was_redirected_is_not_repeated() -> None:
    """A refusal by another address says nothing about the one before, which may have run the tool."""
    calls: list[str] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.message.get("method") != "tools/call":
            return reply(status="202 Accepted")
        calls.append(request.path)
        if request.path == "/mcp":
            return reply(status="307 Temporary Redirect", head="Location: /other\r\n")
        return reply(status="401 Unauthorized")

    with anyio.fail_after(20):
        async with raw_server(mcp(answer)) as url, wired(url, Numbered(), HttpTransport.STREAMABLE_HTTP) as wire:
            await shake_hands(wire)
            with pytest.raises(RequestFailed) as caught:
                await echo(wire)
    assert (Outcome.MAYBE_EXECUTED, ["/mcp", "/other"]) == (caught.value.outcome, calls)


async def test_nothing_is_sent_without_credentials() -> None:
    """While there are none, calls and the push stream fail without a byte, notifications are dropped, and the wire stands."""
    asked: list[str] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        asked.append(request.verb)
        return reply(text(request)) if "id" in request.message else reply(status="202 Accepted")

    credentials = Numbered()
    with anyio.fail_after(20):
        async with raw_server(mcp(answer)) as url, wired(url, credentials, HttpTransport.STREAMABLE_HTTP) as wire:
            await wire.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
            credentials.missing = CredentialsMissing("auth_unavailable", "none to be had", 7.0)
            wire.negotiated("2025-11-25", modern=False)
            await until(lambda: wire.push == "retrying")
            await wire.notify("notifications/initialized", None)
            with pytest.raises(RequestFailed, match="none to be had") as caught:
                await echo(wire)
            found = (caught.value.outcome, caught.value.cause, caught.value.retry_after_s)
            assert (Outcome.NOT_SENT, "auth_unavailable", 7.0) == found
            assert "push channel: none to be had" == wire.push_trouble
            assert ([], None, False) == (asked, wire.end, wire.suspect)
            credentials.missing = None
            assert "hello" == await echo(wire)
            assert "t1" == credentials.accepted_ones[-1]
            credentials.missing = CredentialsMissing("auth", "none any more")
    assert ["POST"] == [verb for verb in asked if verb != "GET"]


async def test_a_stream_that_cannot_be_opened_for_want_of_credentials() -> None:
    """The wire of the old transport ends with the cause that tells whether somebody is needed."""
    credentials = Numbered()
    credentials.missing = CredentialsMissing("auth", "no program 'x'", 60.0)
    with anyio.fail_after(20):
        async with open_http(
            spec_of("http://127.0.0.1:9/", transport=HttpTransport.SSE), Heard(), credentials=credentials
        ) as wire:
            await wire.run(None, None)  # type: ignore[arg-type]  # the callbacks are not used
    assert wire.end is not None
    assert ("auth", "no program 'x'", 60.0) == (wire.end.cause, wire.end.detail, wire.end.retry_after_s)

"""Redirects and faults after a request was written: what may have run is never written twice, nor said to be unsent."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import (
    BOTH,
    Heard,
    Request,
    mcp,
    puppet,
    raw_server,
    read_request,
    reply,
    result,
    session,
    spec_of,
    wired,
)

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.spec import HttpTarget, TlsTrust
from mcpvisor.supervisor.transports.address import parse_address
from mcpvisor.supervisor.transports.dial import Dialer, DialFailed
from mcpvisor.supervisor.transports.endpoint import Endpoint
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_pool import HttpPool

pytestmark = pytest.mark.anyio

CALL = {"name": "pay", "arguments": {}}
DONE = {"content": []}


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


def moved(code: int, location: str = "/moved") -> bytes:
    return reply(status=f"{code} Moved", head=f"Location: {location}\r\n")


@dataclass
class Till:
    """A server that answers each `tools/call` it gets with the next of its answers; None closes, empty is a result."""

    answers: list[bytes | None]
    paths: list[str] = field(default_factory=list)

    async def answer(self, request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.message.get("method") == "ping":
            return reply(result(request, {})) if request.path == "/moved" else moved(302)
        if request.message.get("method") != "tools/call":
            return reply(status="202 Accepted" if request.verb == "POST" else "405 No")
        self.paths.append(request.path)
        answer = self.answers.pop(0)
        return reply(result(request, DONE)) if answer == b"" else answer


REFUSED = [
    ("301", [moved(301)], ["/mcp"], "redirect", "/moved"),
    ("302", [moved(302)], ["/mcp"], "redirect", "/moved"),
    ("303", [moved(303)], ["/mcp"], "redirect", "/moved"),
    ("307 to elsewhere", [moved(307, "http://127.0.0.1:9/other")], ["/mcp"], "redirect", "http://127.0.0.1:9/other"),
    ("307, 307", [moved(307), moved(307, "/more")], ["/mcp", "/moved"], "redirect", "/more"),
    ("308, 302", [moved(308), moved(302, "/more")], ["/mcp", "/moved"], "redirect", "/more"),
    ("307, 303", [moved(307), moved(303, "/more")], ["/mcp", "/moved"], "redirect", "/more"),
    ("307, elsewhere", [moved(307), moved(307, "http://127.0.0.1:9/")], ["/mcp", "/moved"], "redirect", "http://127.0.0.1:9/"),
    ("307 to itself", [moved(307, "/mcp"), moved(307, "/mcp")], ["/mcp", "/mcp"], "redirect", "/mcp"),
    ("307, reset", [moved(307), None], ["/mcp", "/moved"], "stream_failed", "/moved"),
    ("307, 401", [moved(307), reply(status="401 No")], ["/mcp", "/moved"], "auth", "401"),
    ("307, 429", [moved(307), reply(status="429 No")], ["/mcp", "/moved"], "busy", "429"),
]


@pytest.mark.parametrize(("answers", "paths", "cause", "named"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_redirected_call_may_have_run(answers: list[bytes | None], paths: list[str], cause: str, named: str) -> None:
    """A call that a redirect made fail is never said to be unsent, is not written again, and its failure names the address."""
    till = Till(list(answers))
    async with raw_server(mcp(till.answer)) as url, session(url) as wire:
        with anyio.fail_after(20), pytest.raises(RequestFailed) as failed:
            await wire.request("tools/call", CALL)

    assert (Outcome.MAYBE_EXECUTED, cause, paths) == (failed.value.outcome, failed.value.cause, till.paths)
    assert named in failed.value.message


@pytest.mark.parametrize("code", [307, 308])
async def test_a_call_that_was_not_handled_is_sent_on(code: int) -> None:
    """A server that says it has not handled a call gets it once more where it says, and all later ones at once there."""
    till = Till([moved(code), b"", b""])
    async with raw_server(mcp(till.answer)) as url, session(url) as wire:
        with anyio.fail_after(20):
            assert [DONE] * 2 == [await wire.request("tools/call", CALL) for _ in range(2)]

    assert ["/mcp", "/moved", "/moved"] == till.paths


async def test_what_is_repeatable_teaches_the_address() -> None:
    """A method that may be repeated follows any redirect within the origin, and calls go to the new address from then on."""
    till = Till([b""])
    async with raw_server(mcp(till.answer)) as url, session(url) as wire:
        with anyio.fail_after(20):
            await wire.request("ping", {})
            await wire.request("tools/call", CALL)

    assert ["/moved"] == till.paths


@pytest.mark.parametrize(("repeatable", "expected"), [(False, ConnectionBroken), (True, DialFailed)])
async def test_no_connection_after_a_redirect(repeatable: bool, expected: type[Exception]) -> None:
    """When nobody can be reached where a redirect leads, a request that must not run twice counts as written."""

    async def serve(stream: anyio.abc.ByteStream) -> None:
        await read_request(stream, bytearray())
        await stream.send(reply(status="307 Moved", head="Location: /moved\r\nConnection: close\r\n"))

    async with raw_server(serve) as url:
        address = parse_address(url)
        dials = [Dialer(address.origin, None).dial]

        async def dial() -> anyio.abc.ByteStream:
            if not dials:
                raise DialFailed("connect_failed", "nobody there")
            return await dials.pop()()

        endpoint = Endpoint(address, HttpTarget(url=url), HttpPool(dial))
        with anyio.fail_after(20), pytest.raises(expected, match="nobody there"):
            await endpoint.open("POST", b"{}", {}, repeatable=repeatable)


async def test_redirects_to_fresh_paths_are_not_kept() -> None:
    """A server that names a new address each time costs no more memory for each of them."""
    count = 0

    async def serve(stream: anyio.abc.ByteStream) -> None:
        nonlocal count
        buffer = bytearray()
        while True:
            await read_request(stream, buffer)
            count += 1
            await stream.send(moved(307, f"/{count}") if count % 3 else reply(b"{}"))

    async with raw_server(serve) as url:
        address = parse_address(url)
        pool = HttpPool(Dialer(address.origin, None).dial)
        endpoint = Endpoint(address, HttpTarget(url=url), pool)
        for _ in range(20):
            async with await endpoint.open("POST", b"{}", {}, repeatable=True) as response:
                await response.body(10)
        await pool.aclose()

    assert (60, "/59") == (count, endpoint.address.path)
    assert 1 == len(endpoint._heads)


@contextmanager
def breaking_tls_server(cert: str, key: str) -> Generator[str]:
    """A server on a thread that reads one request and then writes what is no TLS on the same connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            accepted, _ = listener.accept()
            with context.wrap_socket(accepted, server_side=True) as secured:
                secured.recv(65536)
                with socket.socket(fileno=secured.detach()) as bare:
                    bare.sendall(b"no TLS at all\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            thread.join(20)


async def test_tls_that_breaks_after_a_call_was_written() -> None:
    """A fault of TLS after a call was written says nothing about whether it ran."""
    with puppet("http_redirect_slash.py", "tls") as maker:
        cert = maker.line()
        with breaking_tls_server(cert, str(Path(cert).with_name("key.pem"))) as url:
            async with wired(spec_of(url, tls=TlsTrust(ca=cert)), Heard()) as wire:
                with anyio.fail_after(20), pytest.raises(RequestFailed) as failed:
                    await wire.request("tools/call", CALL)

    assert (Outcome.MAYBE_EXECUTED, "stream_failed") == (failed.value.outcome, failed.value.cause)

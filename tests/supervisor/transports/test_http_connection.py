"""One kept-alive connection, and the pool: odd bytes, limits, and connections that turn out closed."""

from __future__ import annotations

import gzip
import zlib

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import BOTH, Serve, raw_server, read_request, reply
from tests.waiting import until

from mcpvisor.supervisor.auth.kinds import Bearer
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import HttpTarget
from mcpvisor.supervisor.transports.address import Address, parse_address
from mcpvisor.supervisor.transports.dial import Dialer
from mcpvisor.supervisor.transports.endpoint import MAX_LOCATION, Endpoint, RedirectRefused, redirected, spec_headers
from mcpvisor.supervisor.transports.http_connection import ConnectionBroken
from mcpvisor.supervisor.transports.http_pool import HttpPool
from mcpvisor.supervisor.transports.http_response import ResponseRefused

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


def endpoint_of(url: str, **options: object) -> tuple[Endpoint, HttpPool]:
    address = parse_address(url)
    pool = HttpPool(Dialer(address.origin, None).dial)
    return Endpoint(address, HttpTarget(url=url, **options), pool), pool  # type: ignore[arg-type]  # options of a test


def saying(*pieces: bytes) -> Serve:
    """Answers every request with the same bytes, one write for each piece, and keeps the connection."""

    async def serve(stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            await read_request(stream, buffer)
            for piece in pieces:
                await stream.send(piece)

    return serve


async def get(url: str, *, times: int = 1, limit: int = 100_000) -> tuple[bytes, str]:
    endpoint, pool = endpoint_of(url)
    body = b""
    try:
        for _ in range(times):
            async with await endpoint.open("POST", b"{}", {}, repeatable=True) as response:
                body = await response.body(limit)
        return body, repr(pool)
    finally:
        await pool.aclose()


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "body", "idle"),
    [
        ([HEAD + b"Content-Length: 2\r\n\r\nhi"], b"hi", 1),
        ([bytes([byte]) for byte in HEAD + b"Content-Length: 2\r\n\r\nhi"], b"hi", 1),
        ([CHUNKED + b"1;x=y\r\nh\r\n1\r\ni\r\n0\r\nTrailer: z\r\n\r\n"], b"hi", 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nhi"],
         b"hi", 1),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", 1),
        ([HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi"], b"hi", 0),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"], b"hi", 0),
        ([HEAD + b"Content-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n"], b"hi", 0),
        ([HEAD + b"Content-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi"], b"hi", 1),
    ],
    ids=["length", "byte by byte", "chunked", "informational", "no content", "close", "http 1.0", "excess", "identity"],
)  # fmt: skip
async def test_framings(pieces: list[bytes], body: bytes, idle: int) -> None:
    """Every framing of HTTP/1.1 is read; a connection is only kept where nothing odd was on it."""
    async with raw_server(saying(*pieces)) as url:
        assert (body, f"HttpPool({idle} idle)") == await get(url)


@pytest.mark.parametrize("coding", ["gzip", "zlib", "bare"])
async def test_compressed_bodies(coding: str) -> None:
    """A server that compresses though identity was asked for is understood, in both spellings of deflate."""
    text = b"hello " * 50_000
    packed = gzip.compress(text, mtime=0) if coding == "gzip" else zlib.compress(text)
    packed = packed[2:-4] if coding == "bare" else packed
    head = f"Content-Encoding: {'gzip' if coding == 'gzip' else 'deflate'}\r\n"
    async with raw_server(saying(reply(packed, head=head))) as url:
        assert text == (await get(url, limit=len(text)))[0]
        with pytest.raises(ResponseRefused) as refused:
            await get(url, limit=len(text) - 1)
    assert "size" == refused.value.reason


async def test_body_until_close() -> None:
    """A body without any framing ends with the connection."""

    async def serve(stream: anyio.abc.ByteStream) -> None:
        await read_request(stream, bytearray())
        await stream.send(HEAD + b"\r\nuntil ")
        await stream.send(b"close")

    async with raw_server(serve) as url:
        assert (b"until close", "HttpPool(0 idle)") == await get(url)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "syntax"),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "syntax"),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhix", "syntax"),
        (CHUNKED + b"zz\r\n", "syntax"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "syntax"),
        (HEAD + b"X: " + b"y" * 70_000, "size"),
        (HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(200)) + b"\r\n", "size"),
        (HEAD + b"Content-Length: 100001\r\n\r\n", "size"),
        (CHUNKED + b"186a1\r\n" + b"x" * 100_001 + b"\r\n0\r\n\r\n", "size"),
        (CHUNKED + b"1;" + b"x" * 70_000, "size"),
        (HEAD + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx", "syntax"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "syntax"),
    ],
)
async def test_refused_responses(answer: bytes, reason: str) -> None:
    """What is no HTTP, or too much of it, is refused with one named reason."""
    async with raw_server(saying(answer)) as url:
        with pytest.raises(ResponseRefused) as refused:
            await get(url)
    assert reason == refused.value.reason


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 20", HEAD + b"Content-Length: 5\r\n\r\nhi", CHUNKED + b"5\r\nhi",
               HEAD + b"Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n" + gzip.compress(b"x" * 99, mtime=0)[:12]]
)  # fmt: skip
async def test_broken_responses(answer: bytes) -> None:
    """A response that breaks off is never taken for a whole one."""

    async def serve(stream: anyio.abc.ByteStream) -> None:
        await read_request(stream, bytearray())
        await stream.send(answer)

    async with raw_server(serve) as url:
        with pytest.raises(ConnectionBroken):
            await get(url)


async def test_connections_are_kept() -> None:
    """Requests one after another share a connection."""
    connections: list[anyio.abc.ByteStream] = []

    async def serve(stream: anyio.abc.ByteStream) -> None:
        connections.append(stream)
        await saying(reply(b"ok"))(stream)

    async with raw_server(serve) as url:
        await get(url, times=5)
    assert 1 == len(connections)


async def test_connection_closed_while_idle() -> None:
    """A connection that was closed while nobody used it is noticed before it is used again, whatever the request."""
    connections = 0
    closed = anyio.Event()

    async def serve(stream: anyio.abc.ByteStream) -> None:
        nonlocal connections, closed
        connections += 1
        await read_request(stream, bytearray())
        await stream.send(reply(b"ok"))
        await stream.aclose()
        closed.set()

    async with raw_server(serve) as url:
        endpoint, pool = endpoint_of(url)
        for _ in range(5):
            async with await endpoint.open("POST", b"{}", {}, repeatable=False) as response:
                assert b"ok" == await response.body(10)
            await closed.wait()
            closed = anyio.Event()
        await pool.aclose()
    assert 5 == connections


@pytest.mark.parametrize("repeatable", [True, False])
async def test_connection_closed_under_a_request(repeatable: bool) -> None:
    """A kept connection that closes instead of answering costs a repeatable request a second try, any other one fails."""
    seen = 0

    async def serve(stream: anyio.abc.ByteStream) -> None:
        nonlocal seen
        buffer = bytearray()
        await read_request(stream, buffer)
        await stream.send(reply(b"ok"))
        await read_request(stream, buffer)
        seen += 1

    async with raw_server(serve) as url:
        endpoint, pool = endpoint_of(url)
        async with await endpoint.open("POST", b"{}", {}, repeatable=False) as response:
            await response.body(10)
        if repeatable:
            async with await endpoint.open("POST", b"{}", {}, repeatable=True) as response:
                assert b"ok" == await response.body(10)
        else:
            with pytest.raises(ConnectionBroken):
                await endpoint.open("POST", b"{}", {}, repeatable=False)
        await pool.aclose()
    assert 1 == seen


async def test_idle_connections_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that nobody uses is closed before the server would do it."""
    monkeypatch.setattr("mcpvisor.supervisor.transports.http_pool.IDLE_SECONDS", 0.05)
    ended = anyio.Event()

    async def serve(stream: anyio.abc.ByteStream) -> None:
        try:
            await saying(reply(b"ok"))(stream)
        finally:
            ended.set()

    async with raw_server(serve) as url, anyio.create_task_group() as tasks:
        endpoint, pool = endpoint_of(url)
        tasks.start_soon(pool.reap)
        async with await endpoint.open("POST", b"{}", {}, repeatable=False) as response:
            await response.body(10)
        with anyio.fail_after(20):
            await ended.wait()
        await until(lambda: repr(pool) == "HttpPool(0 idle)")
        tasks.cancel_scope.cancel()


async def test_early_refusal_of_a_big_request() -> None:
    """A server that answers before it has read the whole request, and closes, is heard."""

    async def serve(stream: anyio.abc.ByteStream) -> None:
        await stream.receive()
        await stream.send(reply(b"too big", status="413 Content Too Large", head="Connection: close\r\n"))
        with anyio.move_on_after(0.2):
            while True:
                await stream.receive()

    async with raw_server(serve) as url:
        endpoint, pool = endpoint_of(url)
        async with await endpoint.open("POST", b"x" * 50_000, {}, repeatable=False) as response:
            assert (413, b"too big") == (response.head.status, await response.body(100))
        await pool.aclose()


async def test_head_of_a_request() -> None:
    """The head names each header once, asks for identity, and holds the entry's headers, token and cookies."""
    requests = []

    async def serve(stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            requests.append(await read_request(stream, buffer))
            await stream.send(reply(b"ok", head="Set-Cookie: lb=7; Path=/; HttpOnly; Partitioned\r\n"))

    async with raw_server(serve) as url:
        endpoint, pool = endpoint_of(url + "?a=b", headers=(("X-Key", Secret("k")),), auth=Bearer(Secret("t")))
        endpoint.standing["mcp-protocol-version"] = "2025-11-25"
        for _ in range(2):
            async with await endpoint.open("POST", b"{}", {"MCP-Protocol-Version": "2026-07-28"}, repeatable=False) as response:
                await response.body(10)
        await pool.aclose()
    request = requests[1]
    assert ("POST", "/mcp?a=b", b"{}") == (request.verb, request.path, request.body)
    assert len(request.lines) == len(request.headers)
    assert {
        "host": url.split("/")[2],
        "user-agent": "mcpvisor",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "x-key": "k",
        "authorization": "Bearer t",
        "mcp-protocol-version": "2026-07-28",
        "cookie": "lb=7",
        "content-length": "2",
    } == request.headers


async def test_header_values_cannot_break_out() -> None:
    """A value with a line break is refused before anything is sent."""
    endpoint, _ = endpoint_of("http://127.0.0.1:9/")

    with pytest.raises(ValueError, match="line break"):
        await endpoint.open("POST", b"", {"mcp-name": "x\r\nHost: evil"}, repeatable=False)


@pytest.mark.parametrize(
    ("headers", "text"),
    [((("X Y", "1"),), "no valid header name"), ((("X", "a\nb"),), "line break"), ((("Content-Length", "1"),), "remove it")],
)
def test_headers_of_an_entry(headers: tuple[tuple[str, str], ...], text: str) -> None:
    """A header that cannot be sent, or is ours, is one clear error that names it."""
    with pytest.raises(SpecError, match=text):
        spec_headers(HttpTarget(url="http://x/", headers=headers))


BASE = parse_address("https://example.com/mcp?key=1")


@pytest.mark.parametrize(
    ("location", "path"),
    [("/mcp/", "/mcp/"), ("https://EXAMPLE.com:443/other?x=1", "/other?x=1"), ("sub", "/sub"), ("?y", "/mcp?y")],
)
def test_redirects_within_the_origin(location: str, path: str) -> None:
    """A redirect that stays within scheme, host and port is followed."""
    assert Address(BASE.origin, path) == redirected(BASE, location)


@pytest.mark.parametrize("location", ["http://example.com/mcp", "https://evil.test/mcp", "//evil.test/", "https://example.com:8443/",
                                      "javascript:alert(1)", "https://user@example.com/", "http://[bad"])  # fmt: skip
def test_redirects_that_leave_the_origin(location: str) -> None:
    """A redirect to another origin, or from https to http, is refused, and the address is named."""
    with pytest.raises(RedirectRefused):
        redirected(BASE, location)


@pytest.mark.parametrize(
    ("base", "location"),
    [(BASE, "/" + "x" * MAX_LOCATION), (parse_address("https://example.com/" + "x/" * 2000), "y" * 200)],
    ids=["long", "longer each time"],
)
def test_redirects_to_long_addresses(base: Address, location: str) -> None:
    """A redirect cannot make the address of a server grow without end."""
    with pytest.raises(RedirectRefused, match=r"from https://example.com/.* characters"):
        redirected(base, location)


@pytest.mark.parametrize(
    "url", ["ftp://x/", "//x/", "http://", "http://127.0.0.1::8089/mcp", "http://x:99999/", "http://u:p@x/", "http://x/a b"]
)
def test_bad_addresses(url: str) -> None:
    """A URL that cannot work is an error of the entry, and never prints a secret."""
    with pytest.raises(SpecError):
        parse_address(url)
    with pytest.raises(SpecError) as error:
        parse_address(Secret(url))
    assert url not in str(error.value)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://[::1]:8080/mcp", "[::1]:8080", "/mcp"),
        ("http://EXAMPLE.com", "example.com", "/"),
        ("https://example.com:443/a%20b/é?q=ü#f", "example.com", "/a%20b/%C3%A9?q=%C3%BC"),
    ],
)
def test_addresses(url: str, authority: str, path: str) -> None:
    """Addresses keep their path letter by letter and lose only what is never sent."""
    address = parse_address(url)

    assert (authority, path) == (address.origin.authority, address.path)


def test_addresses_hide_secrets() -> None:
    """What is printed of an address holds no query, and no path a secret went into."""
    assert "https://example.com/mcp" == str(BASE)
    assert "https://example.com/***" == str(parse_address(Secret("https://example.com/t0ken/mcp")))

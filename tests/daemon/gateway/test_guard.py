"""What no request gets past, whatever it is for."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.abc
import pytest
from tests.daemon.gateway.puppet import INSTANCE, Counted, PuppetConnection, PuppetSupervisor, gateway, tool
from tests.daemon.gateway.wire import Wire, call, initialize, raw
from tests.waiting import until

from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.supervisor.offer import Offer

pytestmark = pytest.mark.anyio


@pytest.fixture
def supervisor() -> PuppetSupervisor:
    return PuppetSupervisor(PuppetConnection("a", Offer(tools=(tool("echo"),))))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:1", 200),
        ("[::1]", 200),
        ("[::1]:80", 200),
        ("LOCALHOST", 200),
        ("proxy.example", 200),
        ("proxy.example:8443", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("localhost:x", 421),
        ("", 421),
    ],
)
async def test_hosts(supervisor: PuppetSupervisor, tmp_path: Path, host: str, status: int):
    """Only the local names and those of `hosts` are served, with any port or none."""
    counted = Counted()
    async with (
        gateway(supervisor, tmp_path, hosts=("proxy.example",), observer=counted) as served,
        Wire(served.addresses[0]) as client,
    ):
        answer = await client.post(initialize(), headers={"host": host})

    assert answer.status_code == status
    assert counted.refusals == ([] if status == 200 else [("client", "host")])


@pytest.mark.parametrize(("origin", "status"), [("https://app.example", 200), ("http://localhost:3000", 403), ("null", 403)])
async def test_origins(supervisor: PuppetSupervisor, tmp_path: Path, origin: str, status: int):
    """A web page may call only from an origin that is listed; other ports of this machine are other origins."""
    async with (
        gateway(supervisor, tmp_path, origins=("https://app.example",)) as served,
        Wire(served.addresses[0]) as client,
    ):
        answer = await client.post(initialize(), headers={"origin": origin})

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:7433", "http://localhost:7433", 200),
        ("localhost:7433", "https://LOCALHOST:7433", 200),
        ("localhost:7433", "http://127.0.0.1:7433", 403),
        ("localhost:7433", "localhost:7433", 403),
        ("localhost:7433", "file://localhost:7433", 403),
        ("evil.example", "http://evil.example", 421),
    ],
)
async def test_the_origin_of_the_gateway_itself(
    supervisor: PuppetSupervisor, tmp_path: Path, host: str, origin: str, status: int
):
    """What calls from the very host and port that it calls is no stranger; a name that was bent to this machine still is."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        answer = await client.post(initialize(), headers={"host": host, "origin": origin})

    assert answer.status_code == status


async def test_space_around_a_header_is_none_of_its_value(supervisor: PuppetSupervisor, tmp_path: Path):
    """Spaces and tabs around a value are read over, so that what is mirrored in a header is compared as it is meant."""
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
    )
    head = (
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"accept: application/json, text/event-stream\r\nmcp-protocol-version:2026-07-28 \t\r\nmcp-method:  tools/list  \r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    )
    async with gateway(supervisor, tmp_path) as served:
        answer = await raw(served.addresses[0], head + body)

    assert answer.startswith(b"HTTP/1.1 200 ")


HOSTILE = {
    "nothing": (b"", "syntax"),
    "half": (b'{"jsonrpc": "2.0", "id": 1', "syntax"),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', "syntax"),
    "lone surrogate": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}', "syntax"),
    "bad UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', "syntax"),
    "depth": (b"[" * 100_000 + b"]" * 100_000, "depth"),
    "values": (b"[" + b"[]," * 1_000_000 + b"[]]", "values"),
    "gzip": (b"\x1f\x8b\x08" + bytes(1000), "syntax"),
}


@pytest.mark.parametrize("name", list(HOSTILE))
async def test_hostile_bodies(supervisor: PuppetSupervisor, tmp_path: Path, name: str):
    """A body that can be no message is one named refusal, and the next request is served."""
    body, reason = HOSTILE[name]
    counted = Counted()
    async with gateway(supervisor, tmp_path, observer=counted) as served, Wire(served.addresses[0]) as client:
        await client.open()
        with anyio.fail_after(20):
            answer = await client.post(body)
            after = await client.post(call("a__echo"))

    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == (400, -32700, None)
    assert counted.refusals == [("client", reason)]
    assert after.status_code == 200


async def test_compressed_bodies(supervisor: PuppetSupervisor, tmp_path: Path):
    """A body that says it is compressed is refused unread."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        answer = await client.post(b"\x1f\x8b", headers={"content-encoding": "gzip"})

    assert answer.status_code == 415


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_large_bodies(supervisor: PuppetSupervisor, tmp_path: Path, is_chunked: bool):
    """A body over the limit is refused, by its announced length or as soon as it is over."""
    counted = Counted()
    limits = GatewayLimits(body_bytes=1000, grace_seconds=1)
    body = b"x" * 2000
    head = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    if is_chunked:
        head += b"transfer-encoding: chunked\r\n\r\n7d0\r\n"
    else:
        head += b"content-length: 2000\r\n\r\n"
    async with gateway(supervisor, tmp_path, observer=counted, limits=limits) as served:
        answer = await raw(served.addresses[0], head + body)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert counted.refusals == [("client", "size")]


@pytest.mark.parametrize(
    "lengths",
    [b"content-length: 2\r\ntransfer-encoding: chunked\r\n", b"content-length: 2\r\ncontent-length: 3\r\n"],
)
async def test_two_lengths(supervisor: PuppetSupervisor, tmp_path: Path, lengths: bytes):
    """A request that tells its length twice is refused and the connection closed: that is how requests are smuggled."""
    async with gateway(supervisor, tmp_path) as served:
        data = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n" + lengths + b"\r\n{}"
        answer = await raw(served.addresses[0], data)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST /mcp HT",
        b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{",
    ],
    ids=["nothing", "first line", "blank lines", "head", "body"],
)
async def test_slow_requests(supervisor: PuppetSupervisor, tmp_path: Path, data: bytes):
    """A head or a body that does not come in time ends its connection."""
    counted = Counted()
    limits = GatewayLimits(head_seconds=0.2, body_seconds=0.2, grace_seconds=1)
    async with gateway(supervisor, tmp_path, observer=counted, limits=limits) as served:
        began = anyio.current_time()
        answer = await raw(served.addresses[0], data or b"", end=False) if data else await _silence(served.addresses[0])
        took = anyio.current_time() - began

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert took < 8
    assert counted.refusals == [("client", "slow")]


async def _silence(address: str) -> bytes:
    host, _, port = address.removeprefix("http://").rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        with anyio.fail_after(20):
            return await stream.receive()


async def test_endless_heads(supervisor: PuppetSupervisor, tmp_path: Path):
    """A head over its limit is refused while it is being sent."""
    counted = Counted()
    async with gateway(supervisor, tmp_path, observer=counted) as served:
        answer = await raw(served.addresses[0], b"GET /mcp HTTP/1.1\r\nx: " + b"y" * 100_000)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")  # what was sent beyond may reset the connection
    assert counted.refusals[0] == ("client", "size")


async def test_connection_cap(supervisor: PuppetSupervisor, tmp_path: Path):
    """A connection over the cap is told so and closed; those before it are served."""
    limits = GatewayLimits(connections=1, grace_seconds=1)
    async with gateway(supervisor, tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
        await client.open()
        refused = await _silence(served.addresses[0])
        answer = await client.post(call("a__echo"))

    assert refused.startswith(b"HTTP/1.1 503 ")
    assert answer.status_code == 200


async def test_share_of_one_principal(supervisor: PuppetSupervisor, tmp_path: Path):
    """One principal's open requests are bounded; over the bound it is told to come back."""
    door = supervisor.connection("a")
    release = anyio.Event()

    async def answer(call_: object) -> dict[str, object]:
        await release.wait()
        return {"content": []}

    door.answer = answer
    limits = GatewayLimits(exchanges_per_principal=1, grace_seconds=1)
    async with gateway(supervisor, tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
        await client.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, call("a__echo"))
            await until(door.called.is_set)
            refused = await client.post(call("a__echo", request_id=3))
            release.set()

    assert refused.status_code == 429


async def test_tokens(supervisor: PuppetSupervisor, tmp_path: Path):
    """Over TCP a bearer token is needed; the first is minted into a file of ours, and kept."""
    counted = Counted()
    async with gateway(supervisor, tmp_path, auth="auto", observer=counted) as served:
        token = served.token
        assert token is not None
        async with Wire(served.addresses[0], token) as client:
            await client.open()
            answer = await client.post(call("a__echo"))
        refusals = []
        for wrong in (None, "wrong", token[:-1], token + "x"):
            async with Wire(served.addresses[0], wrong) as client:
                refusals.append(await client.post(initialize()))
    file = tmp_path / "gateway.token"
    async with gateway(supervisor, tmp_path, auth="auto") as served:
        again = served.token

    assert answer.status_code == 200
    assert [one.status_code for one in refusals] == [401] * 4
    assert {one.headers["www-authenticate"] for one in refusals} == {'Bearer realm="mcpvisor"'}
    assert counted.refusals == [("client", "auth")] * 4
    assert supervisor.connection("a").calls[0].principal.name == "token:default"
    assert file.read_text().strip() == token == again
    assert file.stat().st_mode & 0o007 == 0


async def test_unix_peers(supervisor: PuppetSupervisor, tmp_path: Path):
    """Over a unix socket the kernel says who asks: our own user needs no token, under whatever host name."""
    path = tmp_path / "gw.sock"
    async with gateway(supervisor, tmp_path, auth="auto", listen=(f"unix:{path}",)) as served:
        mode = path.stat().st_mode & 0o777
        async with Wire(served.addresses[0]) as client:
            await client.open()
            answer = await client.post(call("a__echo"), headers={"host": "anything"})

    assert answer.status_code == 200
    assert supervisor.connection("a").calls[0].principal.name == f"uid:{os.geteuid()}"
    assert mode in (0o600, 0o660)
    assert not path.exists()


ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /mcp HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n")
print(s.recv(4096).split(b"\\r\\n")[0].decode())
"""


@pytest.mark.parametrize("clean", [False, True], ids=["with its mark", "with the mark removed"])
async def test_servers_may_not_ask(supervisor: PuppetSupervisor, tmp_path: Path, clean: bool):
    """A process that we started is refused on the unix socket, also when it has removed its mark."""
    path = tmp_path / "gw.sock"
    environment = {"PATH": os.environ["PATH"], **({} if clean else {"MCPVISOR_INSTANCE": INSTANCE})}
    async with gateway(supervisor, tmp_path, auth="auto", listen=(f"unix:{path}",)):
        done = await anyio.run_process([sys.executable, "-c", ASK, str(path)], env=environment)

    assert done.stdout.decode().strip() == "HTTP/1.1 403 Forbidden"


async def test_a_stale_socket_is_replaced(supervisor: PuppetSupervisor, tmp_path: Path):
    """The socket of a daemon that is gone is no obstacle; one that is listened to is left alone."""
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with gateway(supervisor, tmp_path, listen=(f"unix:{path}",)) as served:
        async with Wire(served.addresses[0]) as client:
            await client.open()
        with pytest.raises(Exception, match="another daemon listens on"):
            async with gateway(supervisor, tmp_path, listen=(f"unix:{path}",)):
                pass

        assert path.exists()


@pytest.mark.parametrize(
    "listen", [(), ("nonsense",), ("host:port",), ("::1:80",), ("127.0.0.1:99999",), ("unix:/dev/null/x",)]
)
async def test_bad_addresses(supervisor: PuppetSupervisor, tmp_path: Path, listen: tuple[str, ...]):
    """An address that cannot be listened on is one error that names its key."""
    with pytest.raises(Exception, match=r"gateway\.listen"):
        async with gateway(supervisor, tmp_path, listen=listen):
            pass


async def test_probes(supervisor: PuppetSupervisor, tmp_path: Path):
    """Probes need no credentials for their yes or no, but for what they say beyond that."""
    async with gateway(supervisor, tmp_path, auth="auto") as served:
        async with Wire(served.addresses[0]) as client:
            plain = await client.http.get("/readyz")
            refused = await client.http.get("/readyz?verbose")
        async with Wire(served.addresses[0], served.token) as client:
            verbose = await client.http.get("/readyz?verbose")
            nothing = await client.http.get("/nothing")

    assert (plain.status_code, plain.text) == (200, "/readyz")
    assert refused.status_code == 401
    assert verbose.text == "/readyz verbose"
    assert nothing.status_code == 404
    assert "error" in json.loads(nothing.text)


async def test_ipv6(supervisor: PuppetSupervisor, tmp_path: Path):
    """Several addresses are served at once, and the ports taken are told in order."""
    async with gateway(supervisor, tmp_path, listen=("127.0.0.1:0", "[::1]:0")) as served:
        for address in served.addresses:
            async with Wire(address) as client:
                await client.open()

    assert [address.rpartition(":")[0] for address in served.addresses] == ["http://127.0.0.1", "http://[::1]"]


def test_token_files_are_checked(tmp_path: Path):
    """A token that everybody may read, or a file without one, is an error that names the file."""
    from mcpvisor.daemon.gateway.settings import GatewayError
    from mcpvisor.daemon.gateway.tokens import read_or_mint

    file = tmp_path / "gateway.token"
    file.write_text("x" * 40)
    file.chmod(0o644)
    with pytest.raises(GatewayError, match=str(file)):
        read_or_mint(tmp_path)
    file.chmod(0o600)
    assert read_or_mint(tmp_path) == "x" * 40
    file.write_text("")
    with pytest.raises(GatewayError, match=str(file)):
        read_or_mint(tmp_path)


async def test_answers_that_nobody_reads(supervisor: PuppetSupervisor, tmp_path: Path):
    """A client that does not read its answer is cut off, and does not keep the answer in memory for ever."""
    text = "x" * 20_000_000

    async def answer(_: object) -> dict[str, object]:
        return {"content": [{"type": "text", "text": text}]}

    supervisor.connection("a").answer = answer
    limits = GatewayLimits(keep_alive_seconds=0.2, grace_seconds=1)
    async with gateway(supervisor, tmp_path, limits=limits) as served, Wire(served.addresses[0]) as client:
        await client.open()
        body = json.dumps(call("a__echo")).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {client.session}\r\ncontent-length: {len(body)}\r\n"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n\r\n"
        )
        host, _, port = served.addresses[0].removeprefix("http://").rpartition(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(head.encode() + body)
            ours = stream.extra(anyio.abc.SocketAttribute.local_port)
            with anyio.fail_after(20):
                while _is_held(int(port), ours):  # not reading is the point
                    await anyio.sleep(0.01)
            received = await _drain(stream)

    assert received < len(text)


def _is_held(port: int, other: int) -> bool:
    """Whether the end of a connection at one port, to another, is still open: 01 is ESTABLISHED."""
    ends = (f"0100007F:{port:04X}", f"0100007F:{other:04X}", "01")
    return any(tuple(line.split()[1:4]) == ends for line in Path("/proc/net/tcp").read_text().splitlines())


async def _drain(stream: anyio.abc.ByteReceiveStream) -> int:
    """How many bytes still come before the connection is at its end."""
    received = 0
    with anyio.fail_after(20):
        try:
            while True:
                received += len(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return received


def _post(client: Wire, message: object, *head: str) -> bytes:
    """A POST of the client's session as bytes."""
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "host: localhost",
        f"mcp-session-id: {client.session}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        *head,
        f"content-length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize("size", [1, 40, 10_000])
async def test_other_protocols_are_ignored(supervisor: PuppetSupervisor, tmp_path: Path, size: int):
    """A request that would rather speak another protocol is answered as the request it is, however it is cut."""
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ")
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        data = _post(client, call("a__echo"), *upgrade) + _post(client, call("a__echo", request_id=3), "connection: close")
        host, _, port = served.addresses[0].removeprefix("http://").rpartition(":")
        received = b""
        async with await anyio.connect_tcp(host, int(port)) as stream:
            with anyio.fail_after(20):
                for start in range(0, len(data), size):
                    await stream.send(data[start : start + size])
                    await anyio.lowlevel.checkpoint()
                try:
                    while True:
                        received += await stream.receive()
                except anyio.EndOfStream:
                    pass

    assert received.count(b"HTTP/1.1 200 OK") == 2
    assert received.count(b"a:echo") == 2


@pytest.mark.parametrize("is_reset", [False, True])
async def test_nothing_of_a_message_is_kept(supervisor: PuppetSupervisor, tmp_path: Path, is_reset: bool):
    """A message is given back with its answer, without a collector of cycles, by an idle connection and by one that is gone."""
    async with gateway(supervisor, tmp_path) as served, Wire(served.addresses[0]) as client:
        await client.open()
        host, _, port = served.addresses[0].removeprefix("http://").rpartition(":")
        gc.collect()
        gc.disable()
        try:
            async with await anyio.connect_tcp(host, int(port)) as stream:
                await stream.send(_post(client, call("a__echo", arguments={"mark": ["of this test"]})))
                answer = await stream.receive(12 if is_reset else 65536)
                supervisor.connection("a").calls.clear()
                if is_reset:
                    await stream.aclose()
                await until(lambda: _marked() == 0)
        finally:
            gc.enable()

    assert answer.startswith(b"HTTP/1.1 200")


def _marked() -> int:
    """How many arguments of the test above are still in memory."""
    return sum(type(one) is dict and one.get("mark") == ["of this test"] for one in gc.get_objects())


async def test_a_stranger_is_not_waited_for(supervisor: PuppetSupervisor, tmp_path: Path):
    """Whoever is refused is closed at once, and where all places are taken a newcomer gets that of an idle stranger."""
    limits = GatewayLimits(connections=1, grace_seconds=1)
    async with gateway(supervisor, tmp_path, auth="auto", limits=limits) as served:
        refused = await raw(served.addresses[0], b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
        host, _, port = served.addresses[0].removeprefix("http://").rpartition(":")
        async with await anyio.connect_tcp(host, int(port)) as idle, Wire(served.addresses[0]) as client:
            probe = await client.http.get("/livez")
            with anyio.fail_after(20), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await idle.receive()

    assert refused.startswith(b"HTTP/1.1 401 ")
    assert probe.status_code == 200


async def test_stalled_bodies_of_another(supervisor: PuppetSupervisor, tmp_path: Path):
    """Bodies that one principal does not finish leave room for those of another."""
    path = tmp_path / "gw.sock"
    listen = ("127.0.0.1:0", f"unix:{path}")
    limits = GatewayLimits(body_bytes=10_000, bodies_bytes=20_000, grace_seconds=0)
    counted = Counted()
    async with gateway(supervisor, tmp_path, auth="auto", listen=listen, limits=limits, observer=counted) as served:
        host, _, port = served.addresses[0].removeprefix("http://").rpartition(":")
        head = f"POST /mcp HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {served.token}\r\ncontent-length: 10000\r\n\r\n"
        async with AsyncExitStack() as stack:
            for _ in range(3):
                stream = await stack.enter_async_context(await anyio.connect_tcp(host, int(port)))
                await stream.send(head.replace("host: x", "host: localhost").encode() + b" " * 9_000)
            await until(lambda: ("client", "rate") in counted.refusals)
            async with Wire(f"unix:{path}") as other:
                answer = await other.post(initialize())

    assert answer.status_code == 200

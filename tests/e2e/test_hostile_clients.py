"""What a client that means harm costs a running daemon: one named refusal, and the other clients next to nothing."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import puppet
from tests.e2e.siege import MAX_GROWTH, MAX_HELD, MIB, Besieged, Client, Gauges, LostItsPace, again_where_slow, besieged

pytestmark = pytest.mark.alone

CALLS = 500
FLOOD = Path(__file__).with_name("flood.py")


class Slow:
    """Clients that begin a request and never end it; started with the daemon, since their deadlines are long."""

    HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: "
    BODY = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\ncontent-length: 10\r\n\r\n{"

    def __init__(self, daemon: Besieged, token: str) -> None:
        self.answers: dict[str, tuple[bytes, float]] = {}
        wishes = {"nothing": b"", "head": self.HEAD, "body": self.BODY % token.encode()}
        self._threads = [threading.Thread(target=self._begin, args=(daemon.tcp, *wish), daemon=True) for wish in wishes.items()]
        for thread in self._threads:
            thread.start()

    def _begin(self, address: str, name: str, data: bytes) -> None:
        host, _, port = address.rpartition(":")
        began = time.monotonic()
        with socket.create_connection((host, int(port))) as connection:
            connection.settimeout(60)
            connection.sendall(data)
            answer = connection.recv(65536)
        self.answers[name] = answer, time.monotonic() - began

    def end(self) -> dict[str, tuple[bytes, float]]:
        """What each was told, and after how many seconds."""
        for thread in self._threads:
            thread.join()
        return self.answers


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """A daemon with one quiet server; hostile clients come with the token, the neighbour over the unix socket."""
    entries = puppet("quiet", Path(__file__).parents[1] / "servers" / "lite.py")
    with besieged(tmp_path_factory.mktemp("d"), entries, auth="auto", ready=("quiet",)) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def token(daemon: Besieged) -> str:
    """The gateway's token."""
    return (daemon.folder / "state" / "gateway.token").read_text().strip()


@pytest.fixture(scope="module", autouse=True)
def slow(daemon: Besieged, token: str) -> Slow:
    """The slow clients."""
    return Slow(daemon, token)


@pytest.fixture
def attacker(daemon: Besieged, token: str) -> Iterator[Client]:
    """A client with a session that is ended after the test."""
    client = Client(daemon, tcp=True, token=token).open()
    yield client
    client.connection.request("DELETE", "/mcp", headers=client.headers)
    client.connection.getresponse().read()
    client.close()


class Watched:
    """The gauges and the neighbour during one attack; `refusals` are those that came with it."""

    def __init__(self) -> None:
        self.refusals: dict[str, int] = {}


@contextlib.contextmanager
def watched(daemon: Besieged) -> Iterator[Watched]:
    """Do what is in the block to the daemon, and check what must hold whatever it is."""
    seen = Watched()
    before = daemon.refused("client")
    neighbour = daemon.neighbour
    # The gauges ask the daemon all the time; the calm is to be measured beside them as well.
    with Gauges(daemon) as gauges:
        with neighbour.phase("attack", least=CALLS):
            yield seen
        kept_its_pace = neighbour.keeps_its_pace("attack")
    counts = {reason: count - before.get(reason, 0) for reason, count in daemon.refused("client").items()}
    seen.refusals = {reason: count for reason, count in counts.items() if count and reason != "slow"}

    assert gauges.held < MAX_HELD
    assert gauges.lag < MAX_HELD
    assert gauges.growth < MAX_GROWTH
    if not kept_its_pace:
        raise LostItsPace("calls beside the attack were slow")


def call_with(argument: bytes) -> bytes:
    """A call of the quiet server's tool with one more argument, as it is."""
    params = b'{"name":"quiet__echo","arguments":{"text":"x","more":%s}}' % argument
    return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}' % params


def bomb() -> bytes:
    """1 MB of gzip that inflates to 1 GiB, near enough: members of a MiB of blanks, one after another."""
    return gzip.compress(b" " * MIB) * 1024


BODIES = {
    "gzip": (bomb(), {"content-encoding": "gzip"}, 415, "size"),
    "gzip, unsaid": (bomb(), {}, 400, "syntax"),
    "16 MiB of []": (b"[" + b"[]," * (16 * MIB // 3) + b"[]]", {}, 413, "size"),
    "4 MB of []": (b"[" + b"[]," * 1_300_000 + b"[]]", {}, 400, "values"),
    "depth": (b"[" * 100_000 + b"]" * 100_000, {}, 400, "depth"),
    "surrogate": (call_with(b'"\\ud800"'), {}, 400, "syntax"),
    "NaN": (call_with(b"NaN"), {}, 400, "syntax"),
    "huge integer": (call_with(b"9" * 5000), {}, 400, "syntax"),
}


@pytest.mark.parametrize("name", BODIES)
@again_where_slow
def test_hostile_bodies(daemon: Besieged, attacker: Client, name: str):
    """A body that can be no message is one named refusal, which its client gets to read; its session goes on."""
    body, headers, status, reason = BODIES[name]
    with watched(daemon) as seen:
        answer = attacker.post(body, **headers)
        attacker.close()  # a refused body ends its connection
    after = attacker.call("quiet__echo", text="x")

    assert status == answer[0]
    assert json.loads(answer[2])["error"]["message"]
    assert {reason: 1} == seen.refusals
    assert "result" in after


HEAVY = {
    "half a million values": call_with(b"[" + b"1," * 499_000 + b"1]"),
    "objects": call_with(b"[" + b"{}," * 249_000 + b"{}]"),
    "escapes": call_with(b'"' + b"\\\\" * 2_000_000 + b'"'),
    "depth of 190": call_with(b"[" * 190 + b"]" * 190),
}


@pytest.mark.parametrize("name", HEAVY)
@again_where_slow
def test_heavy_bodies(daemon: Besieged, attacker: Client, name: str):
    """The most that one message may hold is carried through, and holds nobody up."""
    with watched(daemon) as seen:
        status, _, body = attacker.post(HEAVY[name])

    assert 200 == status
    assert "result" in json.loads(body)
    assert {} == seen.refusals


HEADS = {
    "endless": (b"GET /mcp HTTP/1.1\r\nx: " + b"y" * 100_000, "size"),
    "many headers": (b"GET /mcp HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, "size"),
    "long path": (b"GET /" + b"x" * 100_000, "size"),
    "two lengths": (b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", "syntax"),
    "two other lengths": (b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}", "syntax"),
}


@pytest.mark.parametrize("name", HEADS)
@again_where_slow
def test_hostile_heads(daemon: Besieged, name: str):
    """A head that is too large or says two things ends its connection, with one refusal."""
    data, reason = HEADS[name]
    host, _, port = daemon.tcp.rpartition(":")
    answer = b""
    with watched(daemon) as seen, socket.create_connection((host, int(port))) as connection:
        connection.settimeout(20)
        with contextlib.suppress(ConnectionError):  # what was sent beyond the limit may reset the connection
            connection.sendall(data)
            answer = connection.recv(65536)
            while connection.recv(65536):
                pass

    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert {reason: 1} == seen.refusals


def flood(daemon: Besieged, attacker: Client, kind: str, connections: int, depth: int, seconds: float, *count: int) -> int:
    """Flood the daemon from another process; how many answers came."""
    token = attacker.headers["authorization"].removeprefix("Bearer ")
    arguments = [daemon.tcp, token, attacker.headers["mcp-session-id"], kind, connections, depth, seconds, *count]
    done = subprocess.run([sys.executable, FLOOD, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=60)
    assert "" == done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("ping", None), ("notification", None), ("call", None), ("garbage", "syntax"), ("stranger", "auth")],
)
@again_where_slow
def test_floods(daemon: Besieged, attacker: Client, kind: str, reason: str | None):
    """However many requests a client makes at one time on however many connections, others have their turns in between."""
    with watched(daemon) as seen:
        answers = flood(daemon, attacker, kind, 32, 1, 1.0)

    assert answers > 100
    assert ({reason} if reason else set()) == seen.refusals.keys()
    assert "result" in attacker.call("quiet__echo", text="x")


@pytest.mark.parametrize("depth", [20, 2000])
@again_where_slow
def test_floods_on_one_connection(daemon: Besieged, attacker: Client, depth: int):
    """A client that sends more and more requests before it reads an answer is refused, and costs nobody anything."""
    with watched(daemon) as seen:
        flood(daemon, attacker, "ping", 16, depth, 1.0)

    assert {"rate"} == seen.refusals.keys()
    assert "result" in attacker.call("quiet__echo", text="x")


SHARE = 256
"""Sessions that one principal may have."""


@again_where_slow
def test_floods_of_sessions(daemon: Besieged, attacker: Client):
    """However many sessions a client opens it holds its share: its own oldest go, nobody else's, and others open theirs."""
    with contextlib.closing(Client(daemon).open()) as bystander:
        with watched(daemon) as seen:
            answers = flood(daemon, attacker, "initialize", 8, 1, 60.0, 2 * SHARE)
            Client(daemon).open().close()
        open_ones = re.search(r'^mcpvisor_gateway_sessions{era="legacy"} (\S+)', daemon.metrics(), re.MULTILINE)
        after = bystander.call("quiet__echo", text="x")

    assert 2 * SHARE == answers
    assert {} == seen.refusals
    assert open_ones is not None
    assert SHARE <= float(open_ones[1]) < 2 * SHARE
    assert "result" in after


def test_slow_clients(slow: Slow):
    """A connection that says nothing and a head that does not end are told so after 10 s, a body after 30 s."""
    answers = slow.end()

    assert {"nothing", "head", "body"} == answers.keys()
    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer, _ in answers.values())
    assert [10, 10, 30] == [round(answers[name][1]) for name in ("nothing", "head", "body")]

"""What is another client's does not exist: whoever presents it gets, byte for byte, what an unknown one gets."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.e2e.running import puppet
from tests.e2e.siege import Besieged, Client, besieged

Answer = tuple[int, list[tuple[str, str]], bytes]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """A daemon with two principals: whoever comes over the unix socket, and who has the token."""
    servers = Path(__file__).parents[1] / "servers"
    entries = puppet("slow", servers / "hostile.py") + puppet("quiet", servers / "lite.py")
    with besieged(tmp_path_factory.mktemp("d"), entries, auth="auto", ready=("slow", "quiet")) as daemon:
        yield daemon


@pytest.fixture
def victim(daemon: Besieged) -> Iterator[Client]:
    """A client by its uid, with a session."""
    client = Client(daemon).open()
    yield client
    client.close()


@pytest.fixture(params=["another principal", "another session"])
def stranger(daemon: Besieged, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client with a session of its own: by the token, or under the victim's own name."""
    token = (daemon.folder / "state" / "gateway.token").read_text().strip()
    client = Client(daemon, tcp=True, token=token) if request.param == "another principal" else Client(daemon)
    yield client.open()
    client.close()


@pytest.fixture
def other(daemon: Besieged) -> Iterator[Client]:
    """A client of another principal."""
    token = (daemon.folder / "state" / "gateway.token").read_text().strip()
    client = Client(daemon, tcp=True, token=token).open()
    yield client
    client.close()


def exchange(client: Client, method: str, message: Any, **headers: str) -> Answer:
    """The whole answer to one HTTP request; a stream that would stay open is not waited for."""
    data = b"" if message is None else json.dumps(message).encode()
    client.connection.request(method, client.path, data, {**client.headers, **headers})
    response = client.connection.getresponse()
    return response.status, response.getheaders(), response.read()


PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
CALL = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "quiet__echo", "arguments": {"text": "x"}}}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "ping"}


@pytest.mark.parametrize(
    ("method", "message", "headers"),
    [
        ("POST", PING, {}),
        ("POST", CALL, {}),
        ("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, {}),
        ("POST", {"jsonrpc": "2.0", "id": 1, "result": {}}, {}),
        ("POST", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, {}),
        ("POST", [], {}),
        ("POST", PING, {"accept": "text/plain"}),
        ("POST", PING, {"mcp-protocol-version": "1999-01-01"}),
        ("POST", PING, MODERN),
        ("GET", None, {}),
        ("GET", None, {"last-event-id": "1"}),
        ("GET", None, {"accept": "text/plain"}),
        ("DELETE", None, {}),
        ("PUT", None, {}),
    ],
)
def test_sessions(victim: Client, other: Client, method: str, message: Any, headers: dict[str, str]):
    """The id of another principal's session is unknown, whatever is asked in it, and the session is none the worse."""
    theirs = victim.headers["mcp-session-id"]
    unknown = secrets.token_urlsafe(24)
    answers = [exchange(other, method, message, **{**headers, "mcp-session-id": one}) for one in (unknown, theirs)]

    assert answers[0] == answers[1]
    assert "result" in victim.call("quiet__echo", text="x")
    assert "result" in other.call("quiet__echo", text="x")


def test_sessions_of_another_endpoint(victim: Client):
    """A session is known where it was opened and nowhere else, not even to its own client."""
    victim.path = "/mcp/quiet"
    unknown = secrets.token_urlsafe(24)
    theirs = victim.headers["mcp-session-id"]
    answers = [exchange(victim, "POST", PING, **{"mcp-session-id": one}) for one in (unknown, theirs)]

    assert answers[0] == answers[1]
    assert 404 == answers[0][0]


NEWER = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "slow__wait"}
NEWER_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class UnderWay:
    """A call of the victim that takes a while, under an id and with a progress token that a stranger knows.

    It is one of 2026-07-28 where the victim has no session.
    """

    ID = 4711
    TOKEN = "the victim's"

    def __init__(self, daemon: Besieged, victim: Client) -> None:
        is_newer = "mcp-session-id" not in victim.headers
        meta = {"progressToken": self.TOKEN, **(NEWER_META if is_newer else {})}
        params = {"name": "slow__wait", "arguments": {"seconds": 0.5}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": self.ID, "method": "tools/call", "params": params}
        headers = NEWER if is_newer else {}
        self._daemon = daemon
        self._answers: list[Answer] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(exchange(victim, "POST", message, **headers)))

    def __enter__(self) -> Self:
        self._thread.start()
        self._daemon.until(lambda: self._daemon.server("slow")["in_flight"], "the victim's call")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._daemon.server("slow")["in_flight"] == 1
        self._thread.join()

    def answer(self) -> dict[str, Any]:
        """What the victim got in the end."""
        return json.loads(self._answers[0][2])


REPLAYED = pytest.mark.parametrize(
    ("theirs", "unknown"),
    [
        (
            {"method": "notifications/cancelled", "params": {"requestId": UnderWay.ID}},
            {"method": "notifications/cancelled", "params": {"requestId": 815}},
        ),
        (
            {"method": "notifications/cancelled", "params": {"requestId": str(UnderWay.ID)}},
            {"method": "notifications/cancelled", "params": {"requestId": "815"}},
        ),
        (
            {"method": "notifications/progress", "params": {"progressToken": UnderWay.TOKEN, "progress": 1}},
            {"method": "notifications/progress", "params": {"progressToken": "nobody's", "progress": 1}},
        ),
        ({"id": UnderWay.ID, "result": {}}, {"id": 815, "result": {}}),
        ({"id": UnderWay.ID, "error": {"code": 1, "message": "x"}}, {"id": 815, "error": {"code": 1, "message": "x"}}),
        ({"id": UnderWay.ID, "method": "ping"}, {"id": 4712, "method": "ping"}),
    ],
    ids=["cancellation", "cancellation as text", "progress", "result", "error", "request"],
)


@REPLAYED
def test_requests(daemon: Besieged, victim: Client, stranger: Client, theirs: dict[str, Any], unknown: dict[str, Any]):
    """Ids and progress tokens mean something in their own session only: cancelling or answering another's does nothing."""
    with UnderWay(daemon, victim) as call:
        answers = [exchange(stranger, "POST", {"jsonrpc": "2.0", **one}) for one in (unknown, theirs)]
    status, headers, body = answers[0]

    assert (status, headers, body.replace(b"4712", b"4711")) == answers[1]
    assert {
        "jsonrpc": "2.0",
        "id": UnderWay.ID,
        "result": {"content": [{"type": "text", "text": "still here"}]},
    } == call.answer()


@pytest.mark.parametrize("by", ["another principal", "the same one"])
@REPLAYED
def test_requests_of_the_newer_era(daemon: Besieged, by: str, theirs: dict[str, Any], unknown: dict[str, Any]):
    """Where there are no sessions, an id or a token means something on its own connection only."""
    token = (daemon.folder / "state" / "gateway.token").read_text().strip()
    victim, stranger = Client(daemon), Client(daemon) if by == "the same one" else Client(daemon, tcp=True, token=token)
    answers = []
    with UnderWay(daemon, victim) as call:
        for one in (unknown, theirs):
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": one.get("method", "")}
            params = {**one.get("params", {}), "_meta": NEWER_META}
            message = {"jsonrpc": "2.0", **one, **({"params": params} if "method" in one else {})}
            answers.append(exchange(stranger, "POST", message, **headers))
    victim.close()
    stranger.close()
    status, headers, body = answers[0]

    assert (status, headers, body.replace(b"4712", b"4711")) == answers[1]
    assert "still here" == call.answer()["result"]["content"][0]["text"]


def test_the_same_id_at_one_time(daemon: Besieged, victim: Client, stranger: Client):
    """Two clients that choose the same id and the same progress token at one time get each its own answer."""
    params = {"name": "quiet__echo", "arguments": {"text": "mine"}, "_meta": {"progressToken": UnderWay.TOKEN}}
    message = {"jsonrpc": "2.0", "id": UnderWay.ID, "method": "tools/call", "params": params}
    with UnderWay(daemon, victim) as call:
        answer = exchange(stranger, "POST", message)

    assert "mine" == json.loads(answer[2])["result"]["content"][0]["text"]
    assert "still here" == call.answer()["result"]["content"][0]["text"]


def test_tokens(daemon: Besieged):
    """A token that is nearly right gets what any wrong one gets, and neither learns whether a session exists."""
    token = (daemon.folder / "state" / "gateway.token").read_text().strip()
    known = Client(daemon, tcp=True, token=token).open()
    answers = []
    for presented in (None, "x", token[:-1], token + "x", token.swapcase()):
        for session in (known.headers["mcp-session-id"], "nobody's"):
            client = Client(daemon, tcp=True, token=presented)
            answers.append(exchange(client, "POST", PING, **{"mcp-session-id": session}))
            client.close()
    known.close()

    assert 401 == answers[0][0]
    assert [answers[0]] * len(answers) == answers

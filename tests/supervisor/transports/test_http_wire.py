"""The Streamable HTTP wire against puppet servers as processes, and against servers of raw bytes."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import anyio.abc
import pytest
from tests.stopwatch import Stopwatch
from tests.supervisor.transports.http_rig import (
    BOTH,
    HANDSHAKE,
    STREAM_HEAD,
    Heard,
    Request,
    echo,
    event,
    mcp,
    puppet,
    raw_server,
    reply,
    result,
    session,
    shake_hands,
    spec_of,
    wired,
)
from tests.waiting import until

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.open_calls import CallClock, OpenCall, Origin
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.questions import Belongs
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import HttpTransport, TlsTrust
from mcpvisor.supervisor.transports.http import HttpWire
from mcpvisor.supervisor.transports.open_http import open_http
from mcpvisor.supervisor.transports.wire import OpenFailed

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


def text(request: Request, value: str = "ok") -> dict[str, Any]:
    return result(request, {"content": [{"type": "text", "text": value}]})


async def failure_of(call: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as failed:
        await call
    return failed.value


# Sessions


@pytest.mark.parametrize("mode", ["404-json", "404-empty", "404-html", "400", "200-sse", "late"])
async def test_session_lost(mode: str) -> None:
    """Every way of saying that the session is gone ends the wire for new requests, and leaves the outcome of this one open."""
    with puppet("http_session_expiry.py", mode, "--every", "1000") as server:
        async with session(server.url) as wire:
            assert "hello" == await echo(wire)
            server.control("expire")
            failure = await failure_of(wire.request("tools/call", {"name": "add_one"}))
            after = await failure_of(wire.request("tools/list", None))

            assert (Outcome.MAYBE_EXECUTED, "session_lost") == (failure.outcome, failure.cause)
            assert (Outcome.NOT_SENT, "session_lost") == (after.outcome, after.cause)
            assert wire.end is not None
            assert wire.ended.is_set()
        state = server.state()
        assert (1 if mode == "late" else None) == state.get("added")
        assert (1, None, None) == (state["initializes"], state.get("init_with_session"), state.get("deletes"))


async def test_session_loss_spares_what_is_in_flight() -> None:
    """A request that meets a lost session fails alone: others get the answers that are already on their way."""
    release = anyio.Event()

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        if request.verb == "DELETE" or "id" not in request.message:
            return reply(status="202 Accepted")
        if request.message["method"] == "ping":
            return reply(status="404 Not Found")
        await release.wait()
        return reply(text(request, "late"))

    got: list[str] = []
    async with raw_server(mcp(answer)) as url, session(url) as wire, anyio.create_task_group() as tasks:

        async def slow() -> None:
            got.append(await echo(wire))

        tasks.start_soon(slow)
        await until(lambda: wire.in_flight == 1)
        failure = await failure_of(wire.request("ping", None))
        assert ("session_lost", True, 1) == (failure.cause, wire.ended.is_set(), wire.in_flight)
        release.set()
    assert ["late"] == got


async def test_run_returns_when_a_lost_wire_is_empty() -> None:
    """A wire whose session is lost is over once nothing is in flight on it any more."""
    with puppet("http_session_expiry.py") as server:
        with anyio.fail_after(20):
            async with open_http(spec_of(server.url), Heard()) as wire, anyio.create_task_group() as tasks:
                await tasks.start(wire.run, None, None)
                await shake_hands(wire)
                server.control("expire")
                await failure_of(wire.request("ping", None))


async def test_new_session_id_is_taken() -> None:
    """A session id that the server names later takes the place of the first one."""
    seen: list[str | None] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        if request.message.get("method") == "tools/call":
            seen.append(request.headers.get("mcp-session-id"))
        return reply(text(request), head="Mcp-Session-Id: s2\r\n") if "id" in request.message else reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url, session(url) as wire:
        await echo(wire)
        await echo(wire)
    assert ["s1", "s2"] == seen


async def test_session_is_deleted_on_leaving() -> None:
    """A session is ended at the server when the wire is left, and a server that never answers to that holds nobody up."""
    verbs: list[tuple[str, str | None]] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        verbs.append((request.verb, request.headers.get("mcp-session-id")))
        if request.verb == "DELETE":
            await anyio.sleep(60)
        return reply(status="202 Accepted" if request.verb == "POST" else "405 Method Not Allowed")

    async with raw_server(mcp(answer)) as url:
        began = anyio.current_time()
        async with session(url):
            pass
        took = anyio.current_time() - began
    assert ("DELETE", "s1") == verbs[-1]
    assert 1.9 < took < 10


@pytest.mark.parametrize("status", ["200 OK", "202 Accepted", "404 Not Found", "405 Method Not Allowed", "500 Oops"])
async def test_any_answer_to_the_end_of_a_session_will_do(status: str) -> None:
    """A server that knows no DELETE, or no such session any more, delays nothing and is no trouble."""
    verbs: list[str] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        verbs.append(request.verb)
        if request.verb == "DELETE":
            return reply(status=status)
        return reply(status="202 Accepted" if request.verb == "POST" else "405 Method Not Allowed")

    heard = Heard()
    async with raw_server(mcp(answer)) as url:
        watch = Stopwatch()
        watch.start()
        with anyio.fail_after(20):
            async with session(url, heard) as wire:
                pass
        took = watch.seconds()
    assert took < 1
    assert (1, []) == (verbs.count("DELETE"), heard.refusals)
    assert wire.end is not None
    assert "closed" == wire.end.cause


async def test_headers_of_the_protocol() -> None:
    """The session id and the negotiated version go with every request after the handshake, and extra headers with theirs."""
    seen: list[Request] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        seen.append(request)
        return reply(text(request)) if "id" in request.message else reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url, session(url) as wire:
        await wire.request("tools/call", {"name": "x"}, headers={"Mcp-Name": "x"})
    calls = [one.headers for one in seen if one.message.get("method") == "tools/call"]
    assert [("s1", "2025-11-25", "x")] == [(h["mcp-session-id"], h["mcp-protocol-version"], h["mcp-name"]) for h in calls]


async def test_modern_era_has_no_session() -> None:
    """In the modern era no session id is sent, no push stream is opened, and nothing is deleted."""
    seen: list[Request] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        seen.append(request)
        return reply(text(request), head="Mcp-Session-Id: s9\r\n")

    async with raw_server(mcp(answer)) as url, wired(spec_of(url), Heard()) as wire:
        await wire.request("server/discover", {})
        wire.negotiated("2026-07-28", modern=True)
        await echo(wire)
        await echo(wire)
    assert ["POST"] * 3 == [one.verb for one in seen]
    assert [None] * 3 == [one.headers.get("mcp-session-id") for one in seen]
    assert "2026-07-28" == seen[-1].headers["mcp-protocol-version"]


# Answers


async def test_answers_in_event_streams() -> None:
    """Notifications, progress and requests of the server come within a stream and are taken before the answer."""
    asked = anyio.Event()
    answers: list[dict[str, Any]] = []

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        message = request.message
        if message and "method" not in message:
            answers.append(message)
            asked.set()
            return reply(status="202 Accepted")
        if message.get("method") != "tools/call":
            return reply(status="202 Accepted")
        token = message["params"]["_meta"]["progressToken"]
        await stream.send(STREAM_HEAD + b": hi\n\nid: 1\ndata:\n\nevent: ping\ndata: 1\n\n")
        await stream.send(event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "log"}}))
        for step in (1, 2):
            progress = {"progressToken": token, "progress": step}
            await stream.send(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        await stream.send(event({"jsonrpc": "2.0", "id": "q1", "method": "roots/list"}))
        await asked.wait()  # a server may well need its answer before it can give its own
        await stream.send(event(text(request)))
        return None

    heard, steps = Heard(), list[int]()
    async with raw_server(mcp(answer)) as url, session(url, heard) as wire:
        with anyio.fail_after(20):
            call = OpenCall("tools/call", Principal("me"), tool="x", sink=None, clock=CallClock(5.0, 5.0))
            other = OpenCall("tools/call", Principal("you"), tool="y", sink=None, clock=CallClock(5.0, 5.0))
            wire._exchange.open("tools/call", call=other)
            got = await wire.request(
                "tools/call", {"name": "x"}, on_progress=lambda params: steps.append(params["progress"]), call=call
            )
    assert "ok" == got["content"][0]["text"]
    assert ([1, 2], [("notifications/message", {"data": "log"})]) == (steps, heard.notifications)
    assert [{"jsonrpc": "2.0", "id": "q1", "result": {"roots": []}}] == answers
    assert [("roots/list", Origin(Belongs.CALL, call, (call,)))] == heard.asked


async def test_answer_for_another_request() -> None:
    """An answer that comes with another request's settles that one, although its own POST says nothing."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.message.get("params", {}).get("name") == "silent":
            await anyio.sleep(60)
        if request.message.get("method") != "tools/call":
            return reply(status="202 Accepted")
        other = {"jsonrpc": "2.0", "id": request.message["id"] - 1, "result": {"other": True}}
        await stream.send(STREAM_HEAD + event(other) + event(text(request)))
        return None

    got: list[dict[str, Any]] = []
    async with raw_server(mcp(answer)) as url, session(url) as wire, anyio.create_task_group() as tasks:

        async def silent() -> None:
            got.append(await wire.request("tools/call", {"name": "silent"}))

        tasks.start_soon(silent)
        await until(lambda: wire.in_flight == 1)
        with anyio.fail_after(20):
            await echo(wire)
            await until(lambda: bool(got))
    assert [{"other": True}] == got


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (STREAM_HEAD + b"data: {}\n\n", "stream_failed"),
        (STREAM_HEAD + b'data: {"jsonrpc": "2.0", "id": 2, "res', "stream_failed"),
        (STREAM_HEAD, "stream_failed"),
        (b"", "stream_failed"),
        (reply({"jsonrpc": "2.0", "id": 999, "result": {}}), "no_answer"),
        (reply(b"[]"), "no_answer"),
        (reply(b'{"jsonrpc": "2.0", "id": 2, "result": NaN}'), "answer_refused"),
        (reply(b"<h1>Sign in</h1>", kind="text/html"), "not_mcp"),
        (reply(status="202 Accepted"), "no_answer"),
        (reply(b"oops", status="500 Internal Server Error", kind="text/plain"), "server_error"),
    ],
)
async def test_requests_without_an_answer(body: bytes, cause: str) -> None:
    """Whatever comes instead of an answer fails that request at once, as one that may have been executed; the wire stays."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.message.get("method") == "tools/call":
            await stream.send(body)
            return None
        return reply(text(request)) if "id" in request.message else reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url, session(url) as wire:
        with anyio.fail_after(20):
            failure = await failure_of(echo(wire))
            assert (Outcome.MAYBE_EXECUTED, cause) == (failure.outcome, failure.cause)
            assert {"content": [{"type": "text", "text": "ok"}]} == await wire.request("ping", None)
        assert wire.end is None


async def test_batches() -> None:
    """An array of messages (revision 2025-03-26) is taken message by message."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        if "id" not in request.message:
            return reply(status="202 Accepted")
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        return reply(json.dumps([note, text(request)]).encode(), kind="Application/JSON; charset=utf-8")

    heard = Heard()
    async with raw_server(mcp(answer)) as url, session(url, heard) as wire:
        assert "ok" == await echo(wire)
    assert [("notifications/tools/list_changed", {})] == heard.notifications


@pytest.mark.parametrize("answered", [b"", b"null"])
@pytest.mark.parametrize("status", ["200 OK", "202 Accepted", "204 No Content"])
async def test_answers_to_notifications(status: str, answered: bytes) -> None:
    """Any success will do as the answer to a notification."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        if "id" in request.message:
            return reply(text(request))
        return f"HTTP/1.1 {status}\r\n\r\n".encode() if status.startswith("204") else reply(answered, status=status)

    async with raw_server(mcp(answer)) as url, session(url) as wire:
        assert "ok" == await echo(wire)


async def test_event_streams_keep_their_connection() -> None:
    """A connection whose event stream has ended in good order is used again."""
    connections = set[int]()

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes:
        connections.add(id(stream))
        if "id" not in request.message:
            return reply(status="202 Accepted")
        body = event(text(request))
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await stream.send(b"%x\r\n%s\r\n" % (len(body), body))
        return b"0\r\n\r\n"

    async with raw_server(mcp(answer)) as url, wired(spec_of(url), Heard()) as wire:
        await wire.request("initialize", HANDSHAKE)
        wire.negotiated("2026-07-28", modern=True)
        for _ in range(5):
            await echo(wire)
            await until(lambda: "1 idle" in repr(wire._pool))
    assert 1 == len(connections)


async def test_notifications_that_nobody_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that leaves a notification without any response holds its sender up for a short time only."""
    monkeypatch.setattr("mcpvisor.supervisor.transports.http.NOTE_SECONDS", 0.1)

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if "id" not in request.message and request.verb == "POST":
            await anyio.sleep(60)
        return reply(text(request)) if request.verb == "POST" else reply(status="405 Method Not Allowed")

    async with raw_server(mcp(answer)) as url:
        with anyio.fail_after(20):
            async with session(url) as wire:
                assert "ok" == await echo(wire)


# Cancellation


@pytest.mark.parametrize("modern", [False, True])
async def test_cancellation(modern: bool) -> None:
    """A withdrawn request is cancelled by a notification in the older era, and by closing its connection in the newer one."""
    seen: list[dict[str, Any]] = []
    closed = anyio.Event()

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        message = request.message
        if message.get("method") == "tools/call":
            try:
                while True:
                    await stream.receive()
            finally:
                closed.set()
        seen.append(message)
        return reply(text(request)) if "id" in message else reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url, wired(spec_of(url), Heard()) as wire:
        await wire.request("initialize", HANDSHAKE)
        wire.negotiated("x", modern=modern)
        with anyio.move_on_after(0.1):
            await echo(wire)
        with anyio.fail_after(20):
            await closed.wait()
        assert 0 == wire.in_flight
        await wire.request("ping", None)
        await until(lambda: modern or cancelled_in(seen) != [])
    assert ([] if modern else [2]) == cancelled_in(seen)


def cancelled_in(seen: list[dict[str, Any]]) -> list[int]:
    return [one["params"]["requestId"] for one in seen if one.get("method") == "notifications/cancelled"]


@pytest.mark.alone
async def test_nobody_waits_for_a_cancellation_to_be_taken() -> None:
    """A server that is stopped takes no notice of it either; who has left does not wait for that."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.message.get("method") in ("tools/call", "notifications/cancelled"):
            await anyio.sleep_forever()
        return reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url, session(url) as wire:
        began = anyio.current_time()
        with anyio.move_on_after(0.1):
            await echo(wire)
        took = anyio.current_time() - began
    assert took < 0.5


async def test_leaving_a_wire_fails_what_is_in_flight() -> None:
    """Nothing waits for a wire that is being closed."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.message.get("method") == "tools/call":
            await anyio.sleep(60)
        return reply(status="202 Accepted")

    failures: list[RequestFailed] = []
    async with raw_server(mcp(answer)) as url, anyio.create_task_group() as tasks, session(url) as wire:

        async def call() -> None:
            failures.append(await failure_of(echo(wire)))

        for _ in range(3):
            tasks.start_soon(call)
        await until(lambda: wire.in_flight == 3)
    assert [(Outcome.MAYBE_EXECUTED, "closed")] * 3 == [(one.outcome, one.cause) for one in failures]


# Addresses, credentials, trust


@pytest.mark.parametrize("mode", ["307", "301"])
async def test_redirects_are_followed(mode: str) -> None:
    """A redirect on the same origin is followed with method, body and headers, and remembered."""
    with puppet("http_redirect_slash.py", mode) as server:
        async with session(server.url, bearer=Secret("t")) as wire:
            assert ["a", "b"] == [await echo(wire, "a"), await echo(wire, "b")]
            assert "/mcp/" == wire.address.path
            await until(lambda: wire.push == "none")
        state = server.state()
        assert (1, None, 1) == (state["redirects"], state.get("leaked"), state["gets_slash"])


@pytest.mark.parametrize(("mode", "named"), [("cross", "another origin"), ("loop", "more than 5 redirects")])
async def test_redirects_that_are_not_followed(mode: str, named: str) -> None:
    """A redirect to another origin, or without end, is refused with the address it names; nothing goes there."""
    with puppet("http_redirect_slash.py", mode) as server:
        async with wired(spec_of(server.url, bearer=Secret("t")), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
            assert (Outcome.REJECTED, "redirect") == (failure.outcome, failure.cause)
            assert named in failure.message
            assert "http://127.0.0.1:" in failure.message
        assert (None, None) == (server.state().get("leaked"), server.state().get("caught"))


async def test_tls_trust() -> None:
    """An unknown certificate is refused with the key that helps; with its CA file the server is used; http is never gone to."""
    with puppet("http_redirect_slash.py", "tls") as server:
        ca = server.line()
        async with wired(spec_of(server.url), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
            assert (Outcome.NOT_SENT, "tls") == (failure.outcome, failure.cause)
            assert "tls.ca" in failure.message
        for replace in (False, True):
            async with session(server.url, tls=TlsTrust(ca=ca, replace=replace)) as wire:
                assert ["hello"] * 3 == [await echo(wire) for _ in range(3)]
        async with wired(spec_of(server.url + "/", tls=TlsTrust(ca=ca)), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
            assert (Outcome.REJECTED, "redirect") == (failure.outcome, failure.cause)


async def test_client_certificate() -> None:
    """A server that wants a certificate gets the one of the entry; without one the refusal names the keys to set."""
    with puppet("http_redirect_slash.py", "tls") as maker:
        cert = maker.line()
        key = cert.replace("cert.pem", "key.pem")
        with mutual_tls_server(cert, key) as url:
            async with wired(spec_of(url, tls=TlsTrust(ca=cert)), Heard()) as wire:
                failure = await failure_of(wire.request("initialize", HANDSHAKE))
                assert (Outcome.NOT_SENT, "tls") == (failure.outcome, failure.cause)
                assert "tls.client_cert" in failure.message
                failure = await failure_of(wire.request("tools/call", {"name": "echo"}))  # the server has had it
                assert (Outcome.MAYBE_EXECUTED, "tls") == (failure.outcome, failure.cause)
            async with wired(spec_of(url, tls=TlsTrust(ca=cert, client_cert=cert, client_key=key)), Heard()) as wire:
                assert {} == await wire.request("initialize", HANDSHAKE)


@contextmanager
def mutual_tls_server(cert: str, key: str) -> Iterator[str]:
    """A server on a thread that asks its clients for a certificate, and answers any POST with an empty result."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            # What the client has sent is read before the end: else the system resets, and the alert is lost.
            request.settimeout(2)
            socket.socket.recv(request, 65536)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_REQUIRED
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("trust", [TlsTrust(ca="/nowhere.pem"), TlsTrust(client_cert="/nowhere.pem")])
async def test_tls_files_that_are_missing(trust: TlsTrust) -> None:
    """A CA or certificate file that cannot be loaded is an error of the entry that names the key."""
    with pytest.raises(OpenFailed, match=r"tls\.\w+: /nowhere.pem cannot be loaded") as failed:
        async with open_http(spec_of("https://127.0.0.1:9/", tls=trust), Heard()):
            pass
    assert "tls" == failed.value.end.cause


async def test_tls_against_a_plain_server() -> None:
    """https against a server that speaks http is named as a matter of TLS, not of the network."""
    with puppet("http_get_refused.py") as server:
        async with wired(spec_of(server.url.replace("http:", "https:")), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
    assert (Outcome.NOT_SENT, "tls") == (failure.outcome, failure.cause)


async def test_credentials_that_ran_out() -> None:
    """A 401 fails the request as not sent, with the challenge, and the session stands."""
    with puppet("http_auth_expiry.py", "revoked", "--uses", "4") as server:
        async with session(server.url, bearer=Secret("fake-access-1")) as wire:
            failure = None
            for _ in range(6):
                try:
                    await echo(wire)
                except RequestFailed as error:
                    failure = error
                    break
            assert failure is not None
            assert (Outcome.NOT_SENT, "auth") == (failure.outcome, failure.cause)
            assert "invalid_token" in failure.data["www_authenticate"]
            assert wire.end is None


async def test_nobody_listens() -> None:
    """A refused dial fails that request as not sent and makes the wire suspect; requests in flight and the wire go on."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        return reply(text(request)) if "id" in request.message else reply(status="202 Accepted")

    async with raw_server(mcp(answer)) as url:
        pass
    async with wired(spec_of(url), Heard()) as wire:
        suspicion = wire.suspicion
        failure = await failure_of(wire.request("initialize", HANDSHAKE))
        assert (Outcome.NOT_SENT, "connect_failed") == (failure.outcome, failure.cause)
        assert "127.0.0.1: Connection refused" in failure.message
        assert (True, True, None) == (wire.suspect, suspicion.is_set(), wire.end)


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_both_families(host: str) -> None:
    """A server on IPv6 only is reached by name and by address."""
    with puppet("http_get_refused.py", "--host", "::1") as server:
        url = server.url.replace("[::1]", "localhost") if host == "localhost" else server.url
        async with session(url) as wire:
            assert "hello" == await echo(wire)


async def test_old_transport_is_recognised() -> None:
    """A server of the old transport is known by its refusal of `initialize`, and opened again as what it is."""
    with puppet("sse_old.py") as server:
        async with wired(spec_of(server.url), Heard()) as wire:
            failure = await failure_of(wire.request("initialize", HANDSHAKE))
            assert (Outcome.NOT_SENT, "not_streamable_http") == (failure.outcome, failure.cause)
        async with wired(spec_of(server.url), Heard(), transport=HttpTransport.SSE) as wire:
            assert "old" == (await wire.request("initialize", HANDSHAKE))["serverInfo"]["name"]


async def test_messages_that_cannot_be_sent() -> None:
    """Params that JSON cannot carry fail that request here, and nothing is sent."""
    async with wired(spec_of("http://127.0.0.1:9/"), Heard()) as wire:
        assert isinstance(wire, HttpWire)
        failure = await failure_of(wire.request("tools/call", {"name": "\ud800"}))
        assert (Outcome.REJECTED, "unsendable", False) == (failure.outcome, failure.cause, wire.suspect)


async def test_notification_answered_with_a_stream() -> None:
    """A server that opens an event stream for a notification, and never ends it, holds nobody up."""

    async def answer(request: Request, stream: anyio.abc.ByteStream) -> bytes | None:
        if request.verb == "POST" and "id" not in request.message:
            await stream.send(STREAM_HEAD + b": hello\n\n")
            await anyio.sleep(60)
        return reply(text(request)) if request.verb == "POST" else reply(status="405 Method Not Allowed")

    async with raw_server(mcp(answer)) as url:
        began = anyio.current_time()
        async with session(url) as wire:
            assert "ok" == await echo(wire)
        assert anyio.current_time() - began < 10

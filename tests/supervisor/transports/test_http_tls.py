"""Whom a server is trusted by: its certificate against the system's authorities and those of its entry, and ours against it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.supervisor.transports.certificates import Authority, Issued
from tests.supervisor.transports.http_rig import BOTH, HANDSHAKE, Heard, spec_of, wired

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import ServerStateChanged
from mcpvisor.supervisor.spec import HttpTarget, RestartPolicy, ServerSpec, TlsTrust
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.wire import OpenFailed

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


class Quiet(ThreadingHTTPServer):
    """A server whose clients may go away."""

    daemon_threads = True
    dials = 0

    def get_request(self) -> Any:
        self.dials += 1
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # What the client has sent is read before the end: else the system resets, and the alert is lost.
        request.settimeout(2)
        socket.socket.recv(request, 65536)


class Handler(BaseHTTPRequestHandler):
    """Answers any request of JSON-RPC with an empty result."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def tls_server(own: Issued, *, clients_of: str | None = None) -> Iterator[Quiet]:
    """A server on a thread that shows `own`, and wants a certificate by the authority `clients_of` where that is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    if clients_of is not None:
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_REQUIRED
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def url_of(server: Quiet, host: str = "127.0.0.1") -> str:
    return f"https://{host}:{server.server_address[1]}/mcp"


async def ask(url: str, trust: TlsTrust) -> dict[str, Any] | RequestFailed:
    """What a handshake gives."""
    async with wired(spec_of(url, tls=trust), Heard()) as wire:
        try:
            with anyio.fail_after(20):
                return await wire.request("initialize", HANDSHAKE)
        except RequestFailed as failure:
            return failure


def refusal(answer: dict[str, Any] | RequestFailed) -> str:
    assert isinstance(answer, RequestFailed)
    assert (Outcome.NOT_SENT, "tls") == (answer.outcome, answer.cause)
    return answer.message


async def test_an_authority_of_ones_own_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `add` servers of the system's authorities and of the entry's own are trusted, without it only the former."""
    system, own = Authority(tmp_path, "system"), Authority(tmp_path, "own")
    monkeypatch.setenv("SSL_CERT_FILE", system.cert)
    with tls_server(system.issue()) as public, tls_server(own.issue()) as private:
        added = TlsTrust(ca=own.cert)

        assert [{}, {}] == [await ask(url_of(server), added) for server in (public, private)]
        assert {} == await ask(url_of(public), TlsTrust())
        assert "(key tls.ca names a CA to trust)" in refusal(await ask(url_of(private), TlsTrust()))


async def test_an_authority_of_ones_own_replaces_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `replace` only servers of the entry's own authority are trusted, whatever the system trusts."""
    system, own = Authority(tmp_path, "system"), Authority(tmp_path, "own")
    monkeypatch.setenv("SSL_CERT_FILE", system.cert)
    with tls_server(system.issue()) as public, tls_server(own.issue()) as private:
        only = TlsTrust(ca=own.cert, replace=True)

        assert {} == await ask(url_of(private), only)
        assert "unable to get local issuer certificate" in refusal(await ask(url_of(public), only))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"days": -1}, "certificate has expired: it has to be renewed at the server, or one of the two clocks is wrong"),
        ({"self_signed": True}, "self-signed certificate (key tls.ca names a CA to trust)"),
        ({"host": "127.0.0.9"}, "certificate is not valid for '127.0.0.1' (url has to name a host that it was made for)"),
        ({"host": "other.test"}, "certificate is not valid for '127.0.0.1' (url has to name a host that it was made for)"),
    ],
)
async def test_what_is_wrong_with_a_certificate_is_named(tmp_path: Path, options: dict[str, Any], named: str) -> None:
    """An expired certificate, a self-signed one and one for another host are told apart, each with what mends it."""
    own = Authority(tmp_path, "own")
    with tls_server(own.issue(**options)) as server:
        told = refusal(await ask(url_of(server), TlsTrust(ca=own.cert)))

    assert told.endswith(named)


async def test_a_self_signed_certificate_can_be_trusted_as_it_is(tmp_path: Path) -> None:
    """Written as `tls.ca`, it is its own authority."""
    made = Authority(tmp_path, "own").issue(self_signed=True)
    with tls_server(made) as server:
        assert {} == await ask(url_of(server), TlsTrust(ca=made.cert))


async def test_a_client_certificate(tmp_path: Path) -> None:
    """A server that asks for a certificate gets the entry's; without one, or with a stranger's, the refusal names the keys."""
    own, stranger = Authority(tmp_path, "own"), Authority(tmp_path, "stranger")
    ours, theirs = own.issue("client"), stranger.issue("client")
    with tls_server(own.issue(), clients_of=own.cert) as server:
        url = url_of(server)

        assert {} == await ask(url, TlsTrust(ca=own.cert, client_cert=ours.cert, client_key=ours.key))
        for trust in (TlsTrust(ca=own.cert), TlsTrust(ca=own.cert, client_cert=theirs.cert, client_key=theirs.key)):
            assert "(keys tls.client_cert and tls.client_key)" in refusal(await ask(url, trust))


async def test_a_certificate_that_is_not_trusted_is_not_tried_like_an_outage(tmp_path: Path) -> None:
    """The server is `failed` after one dial, says why and with which key, and waits minutes; the right CA mends it at once."""
    own = Authority(tmp_path, "own")
    quick = RestartPolicy(delay=0.01, max_delay=0.02)
    with tls_server(own.issue()) as server:
        async with Supervisor(guarded=False) as supervisor:
            spec = ServerSpec(name="safe", target=HttpTarget(url=url_of(server)), restart=quick)
            await supervisor.apply([spec])
            with anyio.fail_after(20):
                status = await supervisor.wait_until("safe", lambda status: status.state is State.FAILED)
            told = [event for event in supervisor.history("safe") if isinstance(event, ServerStateChanged)]

    assert "key tls.ca names a CA to trust" in status.reason
    assert status.next_attempt is not None
    assert 290 < status.next_attempt - status.since < 310
    assert (State.FAILED, 1) == (told[-1].new, server.dials)


@pytest.mark.parametrize("left", [None, b"", b"no certificate"])
async def test_what_was_loaded_of_files_outlives_them(tmp_path: Path, left: bytes | None) -> None:
    """A session that is opened while a file is being replaced has what was loaded of it last; another content never has."""
    own = Authority(tmp_path, "own")
    with tls_server(own.issue()) as server:
        trust = TlsTrust(ca=own.cert, contents=f"first of {tmp_path}")
        before = await ask(url_of(server), trust)
        if left is None:
            Path(own.cert).unlink()
        else:
            Path(own.cert).write_bytes(left)
        away = await ask(url_of(server), trust)
        for unloaded in (replace(trust, contents="second"), TlsTrust(ca=own.cert)):
            with pytest.raises(OpenFailed, match=r"tls\.ca: .*own\.pem cannot be loaded"):
                await ask(url_of(server), unloaded)

    assert ({}, {}) == (before, away)

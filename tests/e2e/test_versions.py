"""How a protocol version is agreed on with servers that do not negotiate as they should, over real sockets."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import Request, raw_server, read_request, reply, result

from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import Era, HttpTarget, RestartPolicy, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Order, Supervisor

pytestmark = pytest.mark.anyio

OLDER = "2025-06-18"
SUPPORTED = ["2024-11-05", "2025-03-26", OLDER]
IN_WORDS = f"Bad Request: Unsupported protocol version (supported versions: {', '.join(SUPPORTED)})"


NEWER = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "serverInfo": {"name": "raw", "version": "2"}}


def refusal(code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": data}}


class Stubborn:
    """A server that answers any `initialize` with one version, and refuses those that offer another where it is told how."""

    def __init__(self, version: str, refused: bytes | None = None) -> None:
        self.version = version
        self.refused = refused
        self.offered: list[str] = []
        self.headers: list[str | None] = []
        """`MCP-Protocol-Version` of each request after the handshake."""

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            await stream.send(self._answer(await read_request(stream, buffer)))

    def _answer(self, request: Request) -> bytes:
        method = request.message.get("method")
        if method == "server/discover":
            return reply(IN_WORDS.encode(), status="400 Bad Request", kind="text/plain")
        if method == "initialize":
            self.offered.append(request.message["params"]["protocolVersion"])
            if self.refused is not None and self.offered[-1] != self.version:
                return self.refused
            info = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": {"name": "raw", "version": "1"}}
            return reply(result(request, info))
        if request.verb != "POST":
            return reply(status="405 Method Not Allowed")
        self.headers.append(request.headers.get("mcp-protocol-version"))
        return reply(result(request, {})) if "id" in request.message else reply(status="202 Accepted")


async def agreed(server: Stubborn, **keys: Any) -> ServerStatus:
    """The status of the server once it is ready, or not to be had; one that is ready was asked something."""
    spec = {"restart": RestartPolicy(delay=30.0), **keys}
    async with raw_server(server.serve) as url, Supervisor(guarded=False) as supervisor:
        await supervisor.apply([ServerSpec(name="http", target=HttpTarget(url=url), **spec)])
        with anyio.fail_after(20):
            status = await supervisor.wait_until("http", lambda status: status.state in (State.READY, State.FAILED))
            if status.state is State.READY:
                await supervisor.connection("http").request("ping", principal=Principal("test"))
        return status


@pytest.mark.parametrize(
    "refused",
    [
        reply(refusal(-32602, "Unsupported protocol version", {"supported": SUPPORTED, "requested": "2025-11-25"})),
        reply(refusal(-32602, "no", {"supported": SUPPORTED}), status="400 Bad Request"),
        reply(refusal(-32000, IN_WORDS), status="400 Bad Request"),
        reply(IN_WORDS.encode(), status="400 Bad Request", kind="text/plain"),
    ],
    ids=["data", "data at 400", "words at 400", "text at 400"],
)
async def test_a_refused_version_is_followed_by_the_newest_that_is_offered(refused: bytes) -> None:
    """However the refusal names the versions: `initialize` is sent once more, and the header has the agreed one later."""
    server = Stubborn(OLDER, refused)
    status = await agreed(server)

    assert (State.READY, "legacy", OLDER) == (status.state, status.era, status.protocol_version)
    assert ["2025-11-25", OLDER] == server.offered
    assert {OLDER} == set(server.headers)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_fixed_older_version_is_accepted(version: str) -> None:
    """A server that answers with its own version whatever is offered is spoken to in that one."""
    server = Stubborn(version)
    status = await agreed(server)

    assert (State.READY, version, ["2025-11-25"]) == (status.state, status.protocol_version, server.offered)
    assert {version} == set(server.headers)


async def test_a_version_that_nobody_knows_is_named_with_ours() -> None:
    """The reason has the server's version and those that are known, so that one can see which side is to be updated."""
    status = await agreed(Stubborn("1999-12-31"), era=Era.LEGACY)

    assert State.FAILED is status.state
    assert "1999-12-31" in status.reason
    assert "2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25" in status.reason


async def test_a_server_that_was_updated_is_spoken_to_in_the_newer_era() -> None:
    """What was remembered of it stops working: `initialize` is refused by the newer era, which is then spoken."""
    is_new = False

    async def serve(stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            request = await read_request(stream, buffer)
            await stream.send(new(request) if is_new else old._answer(request))

    def new(request: Request) -> bytes:
        if request.message.get("method") == "server/discover":
            return reply(result(request, {"supportedVersions": ["2026-07-28"], "capabilities": {}, **NEWER}))
        error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2026-07-28"]}}
        return reply({"jsonrpc": "2.0", "id": request.message.get("id"), "error": error}, status="400 Bad Request")

    old = Stubborn(OLDER)
    async with raw_server(serve) as url, Supervisor(guarded=False) as supervisor:
        await supervisor.apply([ServerSpec(name="http", target=HttpTarget(url=url), restart=RestartPolicy(delay=0.05))])
        with anyio.fail_after(20):
            await supervisor.wait_until("http", lambda status: status.state is State.READY)
            before = supervisor.status("http").era
            is_new = True
            await supervisor.order("http", Order.RESTART, who="test")
            after = (await supervisor.wait_until("http", lambda status: status.era == "modern")).era

    assert ("legacy", "modern") == (before, after)

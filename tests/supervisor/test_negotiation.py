"""Which era a server in memory is found to speak by its answers, under virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.negotiation import is_occupied
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.exchange import peer_error
from tests.supervisor.memory_wire import MemoryServer

pytestmark = pytest.mark.anyio

STDIO = ServerSpec(name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))
HTTP = ServerSpec(name="files", target=HttpTarget(url="http://127.0.0.1:1/mcp"))


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


async def settled(server: MemoryServer, made: ServerSpec) -> ServerStatus:
    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(600):
        async with Supervisor(opener=opener, guarded=False) as supervisor:
            await supervisor.apply([made])
            ends = (State.READY, State.BACKOFF, State.FAILED)
            return await supervisor.wait_until("files", lambda status: status.state in ends)


@pytest.mark.parametrize(("made", "kind"), [(STDIO, "stdio"), (HTTP, "http")])
@pytest.mark.parametrize("answer", [{}, {"capabilities": {}}, {"supportedVersions": "2026-07-28", "capabilities": {}}])
async def test_an_answer_that_is_no_discovery_leads_to_the_older_handshake(made: ServerSpec, kind: str, answer: Any) -> None:
    """A server that answers whatever it is asked shows no newer era by it."""
    server = MemoryServer(kind=kind)

    async def anything(params: dict[str, Any]) -> Any:
        del params
        return answer

    server.handlers["server/discover"] = anything
    status = await settled(server, made)

    assert (State.READY, "legacy", 1) == (status.state, status.era, server.opened)


async def test_where_the_older_handshake_is_refused_as_well_the_first_answer_is_told() -> None:
    """A broken server of the newer era is told what is wrong with its own answer."""
    server = MemoryServer()

    async def empty(params: dict[str, Any]) -> Any:
        del params
        return {}

    async def refuse(params: dict[str, Any]) -> Any:
        del params
        raise peer_error({"code": -32601, "message": "Method not found"})

    server.handlers |= {"server/discover": empty, "initialize": refuse}
    status = await settled(server, STDIO)

    assert (State.BACKOFF, True) == (status.state, "the answer to server/discover is not valid" in status.reason)


def refused(status: int | None, message: str, **keys: Any) -> RequestFailed:
    data = None if status is None else {"http_status": status}
    return RequestFailed(keys.pop("outcome", Outcome.PEER_ERROR), keys.pop("cause", "error_answer"), message, data=data, **keys)


@pytest.mark.parametrize(
    "failure",
    [
        refused(None, "Invalid Request: Server already initialized"),
        refused(400, "Only one session is allowed"),
        refused(503, "too many sessions", cause="server_error", outcome=Outcome.MAYBE_EXECUTED),
        refused(400, "Maximum number of concurrent sessions reached", cause="not_streamable_http", outcome=Outcome.NOT_SENT),
        refused(403, "session limit exceeded", cause="http_refused"),
        refused(409, "the server answered 409 Conflict, no content type, and no body"),
        refused(None, "Another client is connected"),
    ],
)
def test_a_server_without_room_is_known_by_its_words(failure: RequestFailed) -> None:
    """Servers say in many ways that they have no room for a second session."""
    assert is_occupied(failure)


@pytest.mark.parametrize(
    "failure",
    [
        refused(400, "Bad Request"),
        refused(400, "Bad Request: No valid session ID provided"),
        refused(404, "Session not found"),
        refused(None, "Unsupported protocol version"),
        refused(401, "session limit", cause="auth", outcome=Outcome.NOT_SENT),
        refused(429, "too many connections", cause="busy", outcome=Outcome.NOT_SENT, retry_after_s=3.0),
        refused(None, "another connection was refused", cause="connect_failed", outcome=Outcome.NOT_SENT),
    ],
)
def test_what_says_nothing_of_room(failure: RequestFailed) -> None:
    """Other refusals, limits that end at a time that is said, and what was never answered are no want of room."""
    assert not is_occupied(failure)

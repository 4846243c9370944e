"""The wanted log level, over servers in memory under virtual time: when a session is asked for it, and what a failure costs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import LogLevelAsked
from mcpvisor.supervisor.log_level import ANSWER_SECONDS, AT_REST, RETRY, RETRY_MAX, SETTLE
from mcpvisor.supervisor.spec import Era
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor
from tests.supervisor.memory_wire import MemoryServer
from tests.supervisor.test_supervisor import ME, reach, spec, supervised

REFUSAL = RequestFailed(Outcome.PEER_ERROR, "error_answer", "not today", code=-32603)


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


pytestmark = pytest.mark.anyio


class LoggingServer(MemoryServer):
    """Keeps the levels it is asked for, with the time of each; `answer_after` and `failure` say how it takes them."""

    def __init__(self, *, has_levels: bool = True) -> None:
        super().__init__()
        self.asked: list[tuple[str, float]] = []
        self.answer_after = 0.0
        self.failure: RequestFailed | None = None
        self.capabilities: dict[str, Any] = {"tools": {}, **({"logging": {}} if has_levels else {})}
        self.handlers |= {"initialize": self.initialize, "server/discover": self.discover, "logging/setLevel": self.set_level}

    async def initialize(self, params: dict[str, Any]) -> Any:
        info = {"name": "memory", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "serverInfo": info}

    async def discover(self, params: dict[str, Any]) -> Any:
        return {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": self.capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
        }

    async def set_level(self, params: dict[str, Any]) -> Any:
        self.asked.append((params["level"], anyio.current_time()))
        await anyio.sleep(self.answer_after)
        if self.failure is not None:
            raise self.failure
        return {}

    @property
    def levels(self) -> list[str]:
        return [level for level, _ in self.asked]


def legacy(**changes: object) -> Any:
    return spec(era=Era.LEGACY, **changes)


def told(supervisor: Supervisor) -> list[tuple[str, str]]:
    return [(event.level, event.why) for event in supervisor.history("files") if isinstance(event, LogLevelAsked)]


async def test_nothing_is_sent_while_nobody_wants_a_level() -> None:
    """A server keeps its own level until somebody asks."""
    server = LoggingServer()
    async with supervised(legacy(), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        await anyio.sleep(600)

    assert [] == server.levels


async def test_a_level_is_restored_before_the_lists() -> None:
    """Each new session is brought to the level first, then its lists are read."""
    server = LoggingServer()
    async with supervised(legacy(), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await reach(supervisor, "files", State.READY)
        first = list(server.log)
        server.end()
        await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)

    assert first == ["initialize", "notifications/initialized", "logging/setLevel", "tools/list"]
    assert server.levels == ["debug", "debug"]


async def test_a_server_that_comes_later_is_brought_to_the_level() -> None:
    """The level is wanted of all servers, those to come included."""
    server = LoggingServer()
    async with supervised(files=server) as supervisor:
        supervisor.want_log_level("notice")
        await supervisor.apply([legacy()])
        await reach(supervisor, "files", State.READY)

    assert server.levels == ["notice"]


async def test_a_session_is_asked_when_another_level_is_wanted() -> None:
    """Within the time to settle, and not for the level that it has."""
    server = LoggingServer()
    async with supervised(legacy(), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        for level in ("warning", "warning", "debug"):
            supervisor.want_log_level(level)
            await anyio.sleep(1)

    assert server.levels == ["warning", "debug"]


async def test_changes_are_coalesced_and_the_last_one_wins() -> None:
    """One request at a time, however often the level changes meanwhile."""
    server = LoggingServer()
    server.answer_after = 2.0
    async with supervised(legacy(), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        began = anyio.current_time()
        for number in range(1000):
            supervisor.want_log_level(("debug", "info", "error")[number % 3])
            await anyio.sleep(0.001)
        supervisor.want_log_level("alert")
        await anyio.sleep(10)

    first, last = server.asked
    assert (first[0] in ("debug", "info", "error"), last[0]) == (True, "alert")
    assert last[1] - began == pytest.approx(SETTLE + 2.0 + SETTLE, abs=0.01)


async def test_a_level_that_nobody_wants_any_more_is_set_back() -> None:
    """A server does not go on at `debug` for a client that is gone; the next session is told nothing."""
    server = LoggingServer()
    async with supervised(legacy(), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await reach(supervisor, "files", State.READY)
        supervisor.want_log_level(None)
        await anyio.sleep(1)
        server.end()
        await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)

    assert server.levels == ["debug", AT_REST]


async def test_a_refused_level_is_tried_again_and_degrades_nothing() -> None:
    """The server is ready meanwhile; the refusal is told once, and so is that it took the level at last."""
    server = LoggingServer()
    server.failure = REFUSAL
    async with supervised(legacy(), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await reach(supervisor, "files", State.READY)
        await anyio.sleep(600)
        states = [supervisor.status("files").state, supervisor.status("files").reason]
        server.failure = None
        await anyio.sleep(RETRY_MAX + 1)
        tries = len(server.asked)
        await anyio.sleep(600)
        events = told(supervisor)

    waits = [later - earlier - SETTLE for (_, earlier), (_, later) in zip(server.asked, server.asked[1:], strict=False)]
    assert states == [State.READY, ""]
    assert events == [("debug", "not today"), ("debug", "")]
    assert waits[:5] == pytest.approx([RETRY, 2 * RETRY, 4 * RETRY, 8 * RETRY, RETRY_MAX], abs=0.01)
    assert len(server.asked) == tries


async def test_another_level_does_not_wait_for_the_retry() -> None:
    """A server may take one level and not another."""
    server = LoggingServer()
    server.failure = REFUSAL
    async with supervised(legacy(), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await reach(supervisor, "files", State.READY)
        server.failure = None
        supervisor.want_log_level("info")
        await anyio.sleep(1)

    assert server.levels == ["debug", "info"]


async def test_a_server_silent_to_its_level_becomes_ready() -> None:
    """It holds up its own lists for five seconds, and calls not at all."""
    server = LoggingServer()
    server.silent = {"logging/setLevel"}
    async with supervised(legacy(), files=server) as supervisor:
        supervisor.want_log_level("debug")
        began = anyio.current_time()
        await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=ME)
        called_at = anyio.current_time()
        await reach(supervisor, "files", State.READY)
        ready_at = anyio.current_time()
        events = told(supervisor)

    assert called_at - began < 1
    assert ready_at - began == pytest.approx(ANSWER_SECONDS, abs=0.1)
    assert events == [("debug", "no answer within 5 s")]


@pytest.mark.parametrize(("era", "has_levels"), [(Era.LEGACY, False), (Era.MODERN, True)])
async def test_a_server_without_levels_for_its_session_is_not_asked(era: Era, has_levels: bool) -> None:
    """Neither one that logs nothing, nor one of the newer era, which is asked with each request."""
    server = LoggingServer(has_levels=has_levels)
    async with supervised(spec(era=era), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await reach(supervisor, "files", State.READY)
        supervisor.want_log_level("info")
        await anyio.sleep(60)

    assert server.levels == []


@pytest.mark.parametrize(("era", "expected"), [(Era.LEGACY, [None, None]), (Era.MODERN, ["debug", None])])
async def test_a_request_carries_its_level_in_the_newer_era_only(era: Era, expected: list[str | None]) -> None:
    """The level of a request is the caller's own, and no other request's."""
    server = LoggingServer()
    seen: list[Any] = []

    async def work(params: dict[str, Any]) -> Any:
        seen.append(params.get("_meta", {}).get("io.modelcontextprotocol/logLevel"))
        return {"content": []}

    server.handlers["tools/call"] = work
    async with supervised(spec(era=era), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        connection = supervisor.connection("files")
        await connection.request("tools/call", {"name": "echo"}, principal=ME, log_level="debug")
        await connection.request("tools/call", {"name": "echo"}, principal=ME)

    assert seen == expected


async def test_an_unknown_level_is_refused() -> None:
    """The error names the levels there are, and nothing changes."""
    async with supervised() as supervisor:
        with pytest.raises(ValueError, match="'loud' is no log level; there are debug, info, notice"):
            supervisor.want_log_level("loud")

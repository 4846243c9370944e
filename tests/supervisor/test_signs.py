"""What is known to be wrong with a server now: it is gone with what it was about, and stays whatever happens besides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.supervisor import events
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.observer import NoObserver
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.reporting import HISTORY, MAX_DROPS_TOLD
from mcpvisor.supervisor.signs import CatalogDrop, Signs
from mcpvisor.supervisor.spec import Era, Intensity, RestartPolicy
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order, Supervisor
from mcpvisor.supervisor.transports.wire import WireEnd
from tests.supervisor.memory_wire import MemoryServer
from tests.supervisor.test_supervisor import reach, spec, supervised

pytestmark = pytest.mark.anyio

GOOD = {"name": "echo", "inputSchema": {"type": "object"}}
BAD = [{"name": ""}, 5]


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class ListingServer(MemoryServer):
    """Lists what `listed` holds, and refuses log levels with `level_failure`."""

    def __init__(self, *more: Any) -> None:
        super().__init__()
        self.listed: list[Any] = [GOOD, *more]
        self.level_failure: RequestFailed | None = None
        self.handlers |= {"tools/list": self.list, "initialize": self.initialize, "logging/setLevel": self.set_level}

    async def initialize(self, params: dict[str, Any]) -> Any:
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "memory", "version": "1"},
        }

    async def list(self, params: dict[str, Any]) -> Any:
        return {"tools": list(self.listed)}

    async def set_level(self, params: dict[str, Any]) -> Any:
        if self.level_failure is not None:
            raise self.level_failure
        return {}

    def babble(self, *lines: bytes) -> None:
        """Write to stdout what is no message."""
        assert self.wire is not None
        for line in lines:
            self.wire.say(line, None)


async def ready(supervisor: Supervisor, generation: int) -> Signs:
    """The signs once this generation is ready."""
    await supervisor.wait_until("files", lambda status: (status.generation, status.state) == (generation, State.READY))
    return supervisor.signs("files")


def fill_history(supervisor: Supervisor) -> None:
    """Push all that happened out of the history."""
    for number in range(HISTORY):
        supervisor.tell(events.OperatorOrdered(at=float(number), server="files", order="none", who="test"))


async def test_entries_of_a_list_that_was_mended_are_no_longer_left_out() -> None:
    """What is left out is of the present lists: a new session that lists only good tools says nothing of the former."""
    server = ListingServer(*BAD)
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        before = await ready(supervisor, 1)
        server.listed = [GOOD]
        server.end()
        after = await ready(supervisor, 2)
        told = [event for event in supervisor.history("files") if isinstance(event, events.CatalogEntryDropped)]

    assert (("tools", "entry 1"), ("tools", "entry 2")) == tuple((drop.kind, drop.entry) for drop in before.drops)
    assert 2 == before.dropped == len(told)
    assert ((), 0) == (after.drops, after.dropped)


async def test_a_list_that_is_read_again_replaces_what_was_left_out_of_it() -> None:
    """Also within a session: the drops are those of the newest reading, neither more nor less."""
    server = ListingServer(*BAD)
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        await ready(supervisor, 1)
        seen = []
        for listed in ([GOOD, {"name": "x"}], [GOOD]):
            server.listed = listed
            server.say({"method": "notifications/tools/list_changed"})
            await anyio.sleep(5)
            seen.append(supervisor.signs("files").drops)

    assert [(CatalogDrop("tools", "x", "inputSchema is missing or no object"),), ()] == seen


async def test_what_is_wrong_outlives_the_events_that_told_of_it() -> None:
    """However much happens since, what is still so is still shown."""
    server = ListingServer(*BAD)
    server.level_failure = RequestFailed(Outcome.PEER_ERROR, "error_answer", "not today", code=-32603)
    server.handlers["tools/call"] = denying
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await ready(supervisor, 1)
        server.babble(b"Welcome!")
        with pytest.raises(RequestFailed):
            await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=Principal("me"))
        before = supervisor.signs("files")
        fill_history(supervisor)
        after = supervisor.signs("files")
        left = {type(event) for event in supervisor.history("files")}

    assert {events.OperatorOrdered} == left
    assert before == after
    assert (2, 1, "Welcome!", "debug (not today)", "HTTP 403: it wants the scope x") == (
        after.dropped,
        after.noise,
        after.excerpt,
        after.log_level,
        after.denied,
    )


async def denying(params: dict[str, Any]) -> Any:
    raise RequestFailed(Outcome.PEER_ERROR, "auth", "HTTP 403: it wants the scope x", data={"http_status": 403})


async def test_a_new_session_begins_without_the_signs_of_the_last() -> None:
    """What a session does not take or refuses is gone with it."""
    server = ListingServer()
    server.level_failure = RequestFailed(Outcome.PEER_ERROR, "error_answer", "not today", code=-32603)
    server.handlers["tools/call"] = denying
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        supervisor.want_log_level("debug")
        await ready(supervisor, 1)
        with pytest.raises(RequestFailed):
            await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=Principal("me"))
        before = supervisor.signs("files")
        server.level_failure = None
        server.end()
        after = await ready(supervisor, 2)

    assert ("debug (not today)", "HTTP 403: it wants the scope x") == (before.log_level, before.denied)
    assert Signs() == replace(after, ends=0, ends_seconds=None)


async def test_a_refusal_for_want_of_rights_is_shown_for_ten_minutes() -> None:
    """Of time that passed, not of a clock that may be set."""
    server = ListingServer()
    server.handlers["tools/call"] = denying
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        await ready(supervisor, 1)
        with pytest.raises(RequestFailed):
            await supervisor.connection("files").request("tools/call", {"name": "echo"}, principal=Principal("me"))
        seen = []
        for seconds in (590, 20):
            await anyio.sleep(seconds)
            seen.append(bool(supervisor.signs("files").denied))

    assert [True, False] == seen


async def test_noise_is_of_the_process_that_made_it() -> None:
    """It is shown while that runs and while nothing runs after it, and not of the next one."""
    server = ListingServer()
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        await ready(supervisor, 1)
        server.babble(b"====", b"Welcome", b"====")
        running = supervisor.signs("files")
        await supervisor.order("files", Order.STOP, who="test")
        await reach(supervisor, "files", State.STOPPED)
        stopped = supervisor.signs("files")
        await supervisor.order("files", Order.START, who="test")
        mended = await ready(supervisor, 2)

    assert (3, "Welcome") == (running.noise, running.excerpt)
    assert running == stopped
    assert Signs() == mended


async def test_each_line_of_noise_is_counted_and_few_are_told_of() -> None:
    """The number is that of the lines; events are the first three and each power of ten."""
    counted: list[int] = []

    class Counting(NoObserver):
        def noise_received(self, server: str, lines: int) -> None:
            counted.append(lines)

    server = ListingServer()
    async with Supervisor(opener=server.open, guarded=False, observer=Counting()) as supervisor:
        await supervisor.apply([spec(era=Era.LEGACY)])
        await ready(supervisor, 1)
        server.babble(*(b"line %d" % number for number in range(90)))
        signs = supervisor.signs("files")
        told = [event.count for event in supervisor.history("files") if isinstance(event, events.StdoutNoise)]

    assert (90, 90) == (signs.noise, sum(counted))
    assert [1, 2, 3, 10] == told


async def test_all_that_is_left_out_is_counted() -> None:
    """Also what is not named."""
    server = ListingServer(*({"name": f"t{number}"} for number in range(50)))
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        signs = await ready(supervisor, 1)

    assert (50, MAX_DROPS_TOLD + 1) == (signs.dropped, len(signs.drops))
    assert "30 further entries" == signs.drops[-1].entry


async def test_a_failure_is_forgotten_once_the_server_is_ready() -> None:
    """Of several failures the newest is the cause; what went wrong before the server was last ready is none any more."""
    server = ListingServer()
    seen = []
    async with supervised(spec(era=Era.LEGACY), files=server) as supervisor:
        seen.append((await ready(supervisor, 1)).cause)
        server.open_failure = WireEnd(cause="no_such_program", detail="gone")
        server.end("session_lost")
        await reach(supervisor, "files", State.FAILED)
        fill_history(supervisor)
        seen.append(supervisor.signs("files").cause)
        server.open_failure = None
        await anyio.sleep(301)
        seen.append((await ready(supervisor, 3)).cause)

    assert ["", "no_such_program", ""] == seen


async def test_ends_are_counted_since_the_server_was_last_up_for_long() -> None:
    """With the time since the first of them, by the monotonic clock; real uptime begins another count."""
    policy = RestartPolicy(intensity=Intensity(ends=3, within=60.0), stable_after=30.0, crash_loop_retry=300.0)
    server = ListingServer()
    async with supervised(spec(era=Era.LEGACY, restart=policy), files=server) as supervisor:
        await ready(supervisor, 1)
        began = anyio.current_time()
        server.end_after_initialize = WireEnd(cause="process_exited", detail="exited with code 1", exit_code=1)
        server.end()
        await reach(supervisor, "files", State.CRASH_LOOP)
        fill_history(supervisor)
        await anyio.sleep(1000)
        looping, passed = supervisor.signs("files"), anyio.current_time() - began
        server.end_after_initialize = None
        await reach(supervisor, "files", State.READY)
        await anyio.sleep(60)
        stable = supervisor.signs("files")

    assert looping.ends == 4 + 1000 // 300
    assert looping.ends_seconds == pytest.approx(passed, abs=0.1)
    assert (0, None) == (stable.ends, stable.ends_seconds)

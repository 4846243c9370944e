"""What becomes of calls and handshakes that meet a limit: every form of `Retry-After`, over real sockets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import Request, mcp, raw_server, read_request, reply, result
from tests.waiting import until

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import Era, HttpTarget, RestartPolicy, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

ME = Principal("test")
QUICK = RestartPolicy(delay=0.05, max_delay=0.2)


def busy(retry_after: str | None, status: str = "429 Too Many Requests") -> bytes:
    return reply(status=status, head="" if retry_after is None else f"Retry-After: {retry_after}\r\n")


class Limited:
    """A server that answers calls with what `refusals` hold, or make then, one after another; with results after the last."""

    def __init__(self, *refusals: bytes | Callable[[], bytes]) -> None:
        self.refusals = list(refusals)
        self.calls: list[float] = []
        """When each call came."""

    async def answer(self, request: Request, stream: anyio.abc.ByteStream) -> bytes:
        if request.verb != "POST":
            return reply(status="405 Method Not Allowed")
        if "id" not in request.message:
            return reply(status="202 Accepted")
        if request.message["method"] not in ("tools/call", "resources/read"):
            return reply(result(request, {}))
        self.calls.append(time.monotonic())
        refusal = self.refusals.pop(0) if self.refusals else reply(result(request, {"content": []}))
        return refusal if isinstance(refusal, bytes) else refusal()


@asynccontextmanager
async def supervised(server: Limited, **keys: Any) -> AsyncIterator[Supervisor]:
    async with raw_server(mcp(server.answer)) as url, Supervisor(guarded=False) as supervisor:
        await supervisor.apply([spec_of(url, **keys)])
        with anyio.fail_after(20):
            await supervisor.wait_until("http", lambda status: status.state is State.READY)
        yield supervisor


def spec_of(url: str, **keys: Any) -> ServerSpec:
    return ServerSpec(name="http", target=HttpTarget(url=url), **{"era": Era.LEGACY, "restart": QUICK, **keys})


async def call(supervisor: Supervisor, method: str = "tools/call", deadline: float | None = None) -> dict[str, Any]:
    params = {"name": "echo"} if method == "tools/call" else {"uri": "a:b"}
    with anyio.fail_after(20):
        return await supervisor.connection("http").request(method, params, principal=ME, deadline=deadline)


async def failure_of(awaitable: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as failed:
        await awaitable
    return failed.value


@pytest.mark.parametrize(("form", "least"), [("1", 1.0), ("0", 0.5), ("date", 0.9), ("a date that is over", 0.5)])
async def test_a_short_wait_is_waited_out(form: str, least: float) -> None:
    """A call that was surely not carried out is sent again when the server said, never at once, and has its answer."""
    dates = {"date": 2, "a date that is over": -60}  # seconds from when the server says it
    server = Limited(lambda: busy(formatdate(time.time() + dates[form], usegmt=True) if form in dates else form))
    async with supervised(server) as supervisor:
        got = await call(supervisor)

    assert {"content": []} == got
    assert 2 == len(server.calls)
    assert least <= server.calls[1] - server.calls[0] < least + 5


async def test_a_limit_that_goes_on_is_asked_ever_more_slowly() -> None:
    """A server that always says "at once" does not get a storm: each wait is at least twice the one before."""
    server = Limited(*[busy("0")] * 3)
    async with supervised(server) as supervisor:
        await call(supervisor)
    gaps = [after - before for before, after in zip(server.calls, server.calls[1:], strict=False)]

    assert [True, True, True] == [gap >= least for gap, least in zip(gaps, (0.5, 1.0, 2.0), strict=True)]


@pytest.mark.alone
@pytest.mark.parametrize(
    ("retry_after", "told"),
    [("3600", 3600.0), ("99999999999", 86_400.0), ("soon", None), ("-5", None), (None, None), ("1e3", None), ("5, 7", None)],
)
async def test_a_long_wait_or_none_that_can_be_read_is_told_at_once(retry_after: str | None, told: float | None) -> None:
    """The caller learns that nothing was done, and after what time, where that is known; nothing is sent again."""
    server = Limited(busy(retry_after))
    async with supervised(server) as supervisor:
        began = time.monotonic()
        failure = await failure_of(call(supervisor))
        took = time.monotonic() - began

    assert (Outcome.NOT_SENT, "busy", told) == (failure.outcome, failure.cause, failure.retry_after_s)
    assert (1, True) == (len(server.calls), took < 0.5)


async def test_the_wait_has_to_end_within_the_calls_own_limit() -> None:
    """A wait of two seconds is none for a call that has one."""
    server = Limited(busy("2"))
    async with supervised(server) as supervisor:
        failure = await failure_of(call(supervisor, deadline=1.0))

    assert (Outcome.NOT_SENT, "busy", 2.0, 1) == (failure.outcome, failure.cause, failure.retry_after_s, len(server.calls))


async def test_a_503_may_have_done_it() -> None:
    """A proxy says 503 of a server that broke off in the middle as well: a read is sent again, a call is not."""
    server = Limited(*[busy("1", "503 Service Unavailable")] * 2)
    async with supervised(server) as supervisor:
        failure = await failure_of(call(supervisor))
        got = await call(supervisor, "resources/read")

    assert (Outcome.MAYBE_EXECUTED, "busy", 1.0) == (failure.outcome, failure.cause, failure.retry_after_s)
    assert ({"content": []}, 3) == (got, len(server.calls))


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize(("form", "seconds"), [("3600", 3600.0), ("date", 1800.0), ("99999999999", 86_400.0)])
async def test_a_handshake_that_meets_a_limit_parks_the_server(form: str, seconds: float, status: str) -> None:
    """Nothing is tried before the server said, not for callers either; the reason and the time are shown, and callers told."""
    asked: list[str] = []
    told = formatdate(time.time() + 1800, usegmt=True) if form == "date" else form

    async def serve(stream: anyio.abc.ByteStream) -> None:
        buffer = bytearray()
        while True:
            asked.append((await read_request(stream, buffer)).message["method"])
            await stream.send(busy(told, status))

    async with raw_server(serve) as url, Supervisor(guarded=False) as supervisor:
        await supervisor.apply([spec_of(url)])
        with anyio.fail_after(20):
            parked = await supervisor.wait_until("http", lambda status: status.state is State.BACKOFF)
        failures = [await failure_of(call(supervisor)) for _ in range(5)]

    assert parked.next_attempt is not None
    assert seconds - 5 < parked.next_attempt - parked.since <= seconds + 5
    assert ["initialize"] == asked
    assert "(Retry-After)" in parked.reason
    assert {(Outcome.NOT_SENT, "backoff")} == {(one.outcome, one.cause) for one in failures}
    assert all(seconds - 10 < (one.retry_after_s or 0) <= seconds + 5 for one in failures)


@pytest.mark.parametrize("retry_after", ["soon", "-5", None])
async def test_a_handshake_with_a_limit_that_cannot_be_read_is_tried_as_usual(retry_after: str | None) -> None:
    """Garbage parks nobody: the growing delay of any failed try holds."""
    asked = 0

    async def serve(stream: anyio.abc.ByteStream) -> None:
        nonlocal asked
        buffer = bytearray()
        while True:
            await read_request(stream, buffer)
            asked += 1
            await stream.send(busy(retry_after))

    async with raw_server(serve) as url, Supervisor(guarded=False) as supervisor:
        await supervisor.apply([spec_of(url)])
        await until(lambda: asked >= 4)
        status = supervisor.status("http")

    assert status.next_attempt is None or status.next_attempt - time.time() < 1.0

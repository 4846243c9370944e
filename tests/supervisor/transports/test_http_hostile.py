"""Servers that mean harm: each answer is one named refusal, costs little time and memory, and ends nothing but its request."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
from tests.processes import resident
from tests.supervisor.transports.http_rig import BOTH, Heard, echo, puppet, session

from mcpvisor.supervisor.errors import Outcome, RequestFailed

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
MAX_LAG = 0.25
MAX_GROWTH = 256 * MIB


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


class Gauge:
    """The longest time that the loop was held, and the most memory, while a test ran.

    Time is this thread's CPU time between two of its own turns, so that what else runs on the machine does not count.
    """

    def __init__(self) -> None:
        self.lag = 0.0
        self.before = resident()
        self.most = self.before

    async def run(self) -> None:
        while True:
            began = time.thread_time()
            await anyio.sleep(0.005)
            self.lag = max(self.lag, time.thread_time() - began)
            self.most = max(self.most, resident())


@contextmanager
def within_bounds(gauge: Gauge) -> Iterator[None]:
    gc.collect()  # what other tests have left is not what is measured
    yield
    assert gauge.lag < MAX_LAG
    assert gauge.most - gauge.before < MAX_GROWTH


@pytest.mark.parametrize(
    ("mode", "cause", "refusals"),
    [
        ("gzip-bomb", "answer_refused", ["size"]),
        ("deflate-bomb", "answer_refused", ["size"]),
        ("sse-line", "answer_refused", ["size"]),
        ("sse-comments", "answer_refused", ["size"]),
        ("brackets", "answer_refused", ["values"]),
        ("depth", "answer_refused", ["depth"]),
        ("head", "answer_refused", ["size"]),
        ("headers", "answer_refused", ["size"]),
        ("chunk-ext", "answer_refused", ["size"]),
        ("big", "answer_refused", ["size"]),
        ("nan", "answer_refused", ["syntax"]),
        ("surrogate", "answer_refused", ["syntax"]),
        ("latin1", "answer_refused", ["syntax"]),
        ("both", "answer_refused", ["syntax"]),
        ("garbage", "answer_refused", ["syntax"]),
        ("br", "answer_refused", ["syntax"]),
        ("short", "stream_failed", []),
        ("cut", "stream_failed", []),
    ],
)
async def test_hostile_answer(mode: str, cause: str, refusals: list[str]) -> None:
    """A hostile answer fails its own request with one refusal, within the bounds of time and memory; the session goes on."""
    heard, gauge = Heard(), Gauge()
    with puppet("http_hostile.py", mode) as server, within_bounds(gauge):
        async with session(server.url, heard) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(gauge.run)
            with anyio.fail_after(60), pytest.raises(RequestFailed) as failed:
                await echo(wire)
            assert {} == await wire.request("ping", None)
            tasks.cancel_scope.cancel()
    assert (Outcome.MAYBE_EXECUTED, cause) == (failed.value.outcome, failed.value.cause)
    assert refusals == [reason for reason, _ in heard.refusals]


async def test_more_body_than_announced() -> None:
    """Bytes beyond Content-Length are never taken for the next answer."""
    heard = Heard()
    with puppet("http_hostile.py", "long") as server:
        async with session(server.url, heard) as wire:
            for _ in range(3):
                assert "ok" == await echo(wire)
                assert {} == await wire.request("ping", None)
    assert [] == heard.refusals


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what the daemon runs on; it takes seconds
async def test_flood_of_notifications() -> None:
    """200,000 notifications are dropped beyond the rate, counted in few reports, and the answer behind them still comes."""
    heard, gauge = Heard(), Gauge()
    with puppet("http_hostile.py", "flood") as server, within_bounds(gauge):
        async with session(server.url, heard) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(gauge.run)
            began = time.perf_counter()
            with anyio.fail_after(120):
                assert "ok" == await echo(wire)
            seconds = time.perf_counter() - began
            tasks.cancel_scope.cancel()
    assert {"rate"} == {reason for reason, _ in heard.refusals}
    assert len(heard.refusals) <= seconds + 2
    assert len(heard.notifications) <= 2000 + 500 * (seconds + 1)
    assert 200_000 == len(heard.notifications) + sum(int(detail.split()[0]) for _, detail in heard.refusals)

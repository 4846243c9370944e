"""What a hostile or broken server may write on its stdout costs one named refusal, and the neighbours next to nothing."""

from __future__ import annotations

import resource
import time

import anyio
import anyio.lowlevel
import pytest
from tests.processes import resident

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.transports.intake import UNASKED_BURST

pytestmark = pytest.mark.anyio

LAG = 0.25
GROWTH = 256 * 1024 * 1024

WRITE = (
    "import sys, json; out = sys.stdout.buffer; m = json.loads(sys.stdin.readline());"
    'head = b\'{"jsonrpc":"2.0","id":%d,"result":\' % m[\'id\'];'
)
SERVE = (
    "out.flush()\nfor line in sys.stdin:\n m = json.loads(line)\n"
    " if m.keys() >= {'id', 'method'}: print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': {'ok': 1}}), flush=True)"
)
CORPUS = {
    "values": ("out.write(head + b'[' + b'[],' * (5592405) + b'[]]}\\n');", "values"),
    "values-bare": ("out.write(b'[]' * (8 << 20) + b'\\n' + head + b'{}}\\n');", None),
    "objects": ("out.write(head + b'{\"a\":[' + b'{},' * 1_400_000 + b'{}]}}\\n');", "values"),
    "depth": ("out.write(head + b'[' * 100_000 + b']' * 100_000 + b'}\\n');", "depth"),
    "surrogate": ('out.write(head + b\'{"a":"\\\\ud800"}}\\n\');', "syntax"),
    "nan": ("out.write(head + b'{\"a\":NaN}}\\n');", "syntax"),
    "64-mb-line": ("out.write(head + b'\"' + b'x' * (64 << 20) + b'\"}\\n');", "size"),
    "quoted-commas": ("out.write(head + b'{\"a\":\"' + b',' * (20 << 20) + b'\"}}\\n');", None),
}


@pytest.mark.parametrize("name", CORPUS)
async def test_hostile_answer_costs_one_refusal(opened, told, lag, name):
    """One bad answer fails its request with a reason, holds the loop for less than 250 ms, and the server goes on."""
    script, reason = CORPUS[name]
    before = resident()
    peak = before
    with anyio.fail_after(60):
        async with opened("stdio_inline.py", WRITE + script + SERVE) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(lag.run)
            failure = None
            with anyio.move_on_after(40):
                try:
                    await wire.request("first", {})
                except RequestFailed as error:
                    failure = error
            peak = max(peak, resident())
            after = await wire.request("second", {})
            tasks.cancel_scope.cancel()

    assert {"ok": 1} == after
    assert lag.worst < LAG
    assert peak - before < GROWTH
    if reason is not None:
        assert (Outcome.MAYBE_EXECUTED, "answer_refused") == (failure.outcome, failure.cause)
        assert [reason] == [refused for refused, _ in told.refusals]


FLOODS = {
    "notifications": b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"flood %d"}}\n',
    "progress": b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}\n',
    "requests": b'{"jsonrpc":"2.0","id":"q%d","method":"ping"}\n',
    "noise": b"line %d of a log\n",
    "arrays": b"[]\n",
    "answers": b'{"jsonrpc":"2.0","id":99999%d,"result":{}}\n',
}


@pytest.mark.parametrize(
    "kind", [*(kind for kind in FLOODS if kind != "answers"), pytest.param("answers", marks=pytest.mark.slow)]
)
async def test_flood_is_dropped_and_neighbours_live(opened, told, lag, kind):
    """A million messages in one go are dropped above the rate and told of; the loop stays free, and the answer arrives."""
    line = FLOODS[kind] % 7 if b"%d" in FLOODS[kind] else FLOODS[kind]
    bursts = 20 if kind == "answers" else 100
    script = WRITE + f"[out.write({line!r} * 10_000) for _ in range({bursts})]; out.write(head + b'{{}}}}\\n');" + SERVE
    before = resident()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with anyio.fail_after(120):
        async with opened("stdio_inline.py", script) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(lag.run)
            began = time.perf_counter()
            result = await wire.request("first", {})
            seconds = time.perf_counter() - began
            tasks.cancel_scope.cancel()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    print(f"{kind}: {seconds:.1f} s, CPU {cpu:.2f} s, lag {lag.worst * 1000:.0f} ms")

    assert {} == result
    assert lag.worst < LAG
    assert resident() - before < GROWTH
    expected = {"rate", "syntax"} if kind == "answers" else {"rate"}  # answers to nothing are told of by themselves, rarely

    assert expected == {reason for reason, _ in told.refusals}
    assert len(told.refusals) <= 2 * seconds + 10  # each second one for what is over the rate, and one for what is too many
    assert len(told.notifications) + len(told.noises) <= UNASKED_BURST + 500 * (seconds + 1)
    assert cpu < seconds * 0.5 + 1
    assert (1_000_000 if kind == "noise" else 0) == len(told.noises) + told.dropped_noise


async def test_list_changed_is_never_dropped(opened, told):
    """List changes and resource updates pass above the rate, for nobody would ask again."""
    line = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
    script = WRITE + f"out.write({line!r} * 10_000); out.write(head + b'{{}}}}\\n');" + SERVE
    with anyio.fail_after(60):
        async with opened("stdio_inline.py", script) as wire:
            await wire.request("first", {})

    assert 10_000 == len(told.notifications)


@pytest.mark.alone
async def test_neighbour_of_a_flood_keeps_its_pace(opened, told):
    """While one server floods for good, another one's calls take no more than a few milliseconds each."""
    script = "import sys\nwhile True: sys.stdout.write('noise\\n' * 1000)"
    slowest = 0.0
    with anyio.fail_after(60):
        async with opened("stdio_inline.py", script), opened("stdio_scripted.py") as neighbour:
            for _ in range(200):
                began = time.perf_counter()
                await neighbour.request("echo", {})
                slowest = max(slowest, time.perf_counter() - began)

    assert slowest < LAG


async def test_endless_line_costs_no_memory(opened, told, lag):
    """A line that never ends is read past in bounded memory and without holding anybody up."""
    script = "import sys\nwhile True: sys.stdout.write('x' * 100_000)"
    before = resident()
    with anyio.fail_after(60):
        async with opened("stdio_inline.py", script, max_message=1 << 20) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(lag.run)
            with anyio.move_on_after(1):
                await wire.ended.wait()
            tasks.cancel_scope.cancel()

    assert resident() - before < 32 << 20
    assert lag.worst < LAG


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":NaN}}',
        b'{"jsonrpc":"2.0","id":"q","method":"ping","params":{"id":1,"data":NaN}}',
        b'{"method":"notifications/message","params":{"id":1,"data":"\\ud800"},"jsonrpc":"2.0"}',
    ],
)
async def test_unreadable_notification_fails_no_call(opened, told, line):
    """A notification or request of the server that cannot be read is refused alone, even while a call is in flight."""
    script = WRITE + f"out.write({line!r} + b'\\n' + head + b'{{}}}}\\n');" + SERVE
    with anyio.fail_after(20):
        async with opened("stdio_inline.py", script) as wire:
            assert {} == await wire.request("first", {})

    assert ["syntax"] == [reason for reason, _ in told.refusals]


async def test_lines_of_nothing_hold_up_nobody(opened, told):
    """Millions of line ends are read in steps and told of, though there is no message in them."""
    script = WRITE + "out.write(b'\\n' * 3_000_000); out.write(head + b'{}}\\n');" + SERVE
    longest = 0.0

    async def others() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()  # of this thread alone, whatever else the machine does
            await anyio.lowlevel.checkpoint()
            longest = max(longest, time.thread_time() - began)

    with anyio.fail_after(60):
        async with opened("stdio_inline.py", script) as wire, anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            result = await wire.request("first", {})
            tasks.cancel_scope.cancel()

    assert {} == result
    assert longest < 0.008
    assert {"rate"} == {reason for reason, _ in told.refusals}

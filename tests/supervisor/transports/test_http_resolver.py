"""Looking up and dialling: nothing waits longer than its deadline, and a name that hangs holds up nobody else."""

from __future__ import annotations

import threading
import time
from collections import Counter

import anyio
import anyio.abc
import pytest
from tests.supervisor.transports.http_rig import BOTH

from mcpvisor.supervisor.transports import resolver as module
from mcpvisor.supervisor.transports.address import Origin
from mcpvisor.supervisor.transports.dial import Dialer, DialFailed, interleave
from mcpvisor.supervisor.transports.resolver import LookupFailed, Resolver

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both worlds."""
    return request.param


class Names:
    """A name service whose answers the test decides."""

    def __init__(self, **answers: list[str] | None) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()
        self.released = threading.Event()

    def __call__(self, host: str) -> list[str]:
        self.asked[host] += 1
        if host.startswith("hole"):
            self.released.wait(30)
        found = self.answers.get(host)
        if not found:
            raise OSError("Name or service not known")
        return found


@pytest.mark.alone
async def test_black_hole() -> None:
    """While lookups hang the loop runs on, other names are found at once, and the threads stay few."""
    names = Names(good=["127.0.0.1"])
    resolver = Resolver(names, deadline=0.2, workers=4)
    before = threading.active_count()
    failed = 0

    async def look(host: str) -> None:
        nonlocal failed
        try:
            await resolver.addresses(host)
        except LookupFailed:
            failed += 1

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(look, "hole")
        for number in range(2):
            tasks.start_soon(look, f"hole{number}")
        with anyio.fail_after(0.15):
            assert ["127.0.0.1"] == await resolver.addresses("good")
    took = time.perf_counter() - began
    threads = threading.active_count() - before
    names.released.set()

    assert (52, 1, True) == (failed, names.asked["hole"], threads <= 4)
    assert took < 1


async def test_last_good_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was found before keeps its address when the name service fails or hangs."""
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)
    names = Names(once=["127.0.0.1"], hole=["127.0.0.2"])
    resolver = Resolver(names, deadline=0.1)
    names.released.set()
    assert (["127.0.0.1"], ["127.0.0.2"]) == (await resolver.addresses("once"), await resolver.addresses("hole"))

    names.answers["once"] = None
    names.released.clear()

    assert (["127.0.0.1"], ["127.0.0.2"]) == (await resolver.addresses("once"), await resolver.addresses("hole"))
    assert 2 == names.asked["once"]
    names.released.set()


async def test_unknown_name() -> None:
    """A name that does not exist is an error that says so."""
    with pytest.raises(LookupFailed, match=r"'nowhere' cannot be found: Name or service not known"):
        await Resolver(Names()).addresses("nowhere")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", ["127.0.0.1"]), ("::1", ["::1"]), ("localhost", ["127.0.0.1", "::1"])],
)
async def test_no_lookup_needed(host: str, expected: list[str]) -> None:
    """Numbers and localhost are never asked of a name service."""
    names = Names()

    assert (expected, 0) == (await Resolver(names).addresses(host), names.asked.total())


async def test_dead_address_among_good_ones() -> None:
    """Of several addresses the one that works is used, after a head start at most for each that does not."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        dialer = Dialer(Origin("http", "many", port), None, Resolver(Names(many=["127.0.0.2", "::1", "127.0.0.1"])))
        with anyio.fail_after(20):
            stream = await dialer.dial()
        assert ("127.0.0.1", port) == stream.extra(anyio.abc.SocketAttribute.remote_address)
        await stream.aclose()


async def test_no_address_works() -> None:
    """When every address refuses, the error names them all."""
    dialer = Dialer(Origin("http", "many", 9), None, Resolver(Names(many=["127.0.0.1", "::1"])))

    with pytest.raises(DialFailed, match=r"http://many:9 \(.*127.0.0.1: Connection refused"):
        await dialer.dial()


async def test_dial_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dial is over after its deadline, name lookup included."""
    monkeypatch.setattr("mcpvisor.supervisor.transports.dial.CONNECT_SECONDS", 0.1)
    names = Names()

    with pytest.raises(DialFailed, match=r"no connection within 0.1 s"):
        await Dialer(Origin("http", "hole", 9), None, Resolver(names)).dial()
    names.released.set()


def test_families_take_turns() -> None:
    """Addresses of the two families are tried in turn, beginning with the one the system prefers."""
    assert ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"] == interleave(["::1", "::2", "::3", "10.0.0.1", "10.0.0.2"])

"""What is remembered of a server: recalled at the start, forgotten when it stops working, and never taken for another's."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio.testing

from mcpvisor.supervisor.auth.kinds import Bearer
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.offer import MAX_OFFER, Offer
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.recalling import Recall
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Era, HttpTarget, ServerSpec, StdioLaunch, StopGraces
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.store import MemoryStore, Remembered, StandingOrder
from mcpvisor.supervisor.supervisor import Order, Supervisor
from mcpvisor.supervisor.target import target_digest
from mcpvisor.supervisor.transports.exchange import peer_error
from tests.supervisor.memory_wire import MemoryServer


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


SPEC = ServerSpec(name="files", target=StdioLaunch(command="memory"), stop=StopGraces(stdin=0, term=0))


@asynccontextmanager
async def run(store: MemoryStore, server: MemoryServer, spec: ServerSpec = SPEC) -> AsyncIterator[Supervisor]:
    """One run of a daemon: a supervisor that ends, over a store that does not."""

    def opener(opening: Opening) -> Any:
        return server.open(opening)

    with anyio.fail_after(7200):
        async with Supervisor(opener=opener, guarded=False, store=store) as supervisor:
            await supervisor.apply([spec])
            yield supervisor


async def reach(supervisor: Supervisor, *states: State) -> None:
    await supervisor.wait_until("files", lambda status: status.state in states)


def modern(server: MemoryServer) -> None:
    """Let a server speak the newer era only."""

    async def discover(_: Any) -> Any:
        return {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "memory", "version": "2"},
            "ttlMs": 0,
            "cacheScope": "private",
        }

    async def lists(_: Any) -> Any:
        return {
            "resultType": "complete",
            "tools": [{"name": "new", "inputSchema": {"type": "object"}}],
            "ttlMs": 0,
            "cacheScope": "private",
        }

    server.handlers |= {"server/discover": discover, "tools/list": lists}


@pytest.mark.anyio
class TestEras:
    async def test_a_server_of_the_older_era_is_not_asked_again_in_the_next_run(self) -> None:
        """The verdict of the run before saves the probe."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
        asked = server.log.count("server/discover")
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)

        assert (1, 1) == (asked, server.log.count("server/discover"))
        assert 2 == server.log.count("initialize")

    async def test_a_process_that_does_not_survive_the_question_is_not_asked_in_the_next_run(self) -> None:
        """One start costs one process, also after a restart of the daemon."""
        store, server = MemoryStore(), MemoryServer()

        async def die(_: Any) -> Any:
            server.end()
            await anyio.sleep_forever()

        server.handlers["server/discover"] = die
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
        opened = server.opened
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)

        assert (2, 3) == (opened, server.opened)

    async def test_a_verdict_is_forgotten_when_the_server_answers_that_it_is_wrong(self) -> None:
        """A server that was replaced by one of the newer era is asked for its era again, and is ready."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
        modern(server)

        async def refuse(_: Any) -> Any:
            raise peer_error({"code": -32601, "message": "Method not found: initialize"})

        server.handlers["initialize"] = refuse
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
            era = supervisor.status("files").era

        assert "modern" == era

    async def test_a_verdict_is_forgotten_when_the_server_is_silent(self) -> None:
        """A server that was replaced by one of the older era, which is silent to the probe, is ready at the second try."""
        store, server = MemoryStore(), MemoryServer()
        modern(server)
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
        server.handlers.clear()
        server.silent = {"server/discover"}
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
            status = supervisor.status("files")

        assert ("legacy", 2) == (status.era, status.generation)


@pytest.mark.anyio
class TestOffers:
    async def test_what_was_offered_last_is_on_show_before_the_server_is_up(self) -> None:
        """The catalog of the run before is there at once, marked as stale, until the server's own is read."""
        store, server = MemoryStore(), MemoryServer(tools=("old",))
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
        server.tools, server.silent = ["new"], {"initialize"}
        async with run(store, server) as supervisor:
            connection = supervisor.connection("files")
            early = ([tool["name"] for tool in connection.offer.tools], connection.stale, connection.first_try.is_set())
            assert supervisor.status("files").stale
            server.silent.clear()
            await reach(supervisor, State.READY)
            late = ([tool["name"] for tool in connection.offer.tools], connection.stale)

        assert (["old"], True, True) == early
        assert (["new"], False) == late

    async def test_a_server_that_was_never_reached_has_no_catalog_and_is_waited_for(self) -> None:
        """Without a memory nothing is stale, and a first list waits as ever."""
        server = MemoryServer()
        server.silent = {"server/discover", "initialize"}
        async with run(MemoryStore(), server) as supervisor:
            connection = supervisor.connection("files")

            assert (Offer(), False, False) == (connection.offer, connection.stale, connection.first_try.is_set())

    async def test_lists_that_a_server_has_no_more_go(self) -> None:
        """A kind of list that the new version of a server does not have is not shown for ever."""
        store, server = MemoryStore(), MemoryServer()
        known = Remembered(offer=Offer(resources=({"uri": "a://b", "name": "b"},)))
        store.remember("files", target_digest(SPEC), known)
        async with run(store, server) as supervisor:
            before = supervisor.connection("files").offer.resources
            await reach(supervisor, State.READY)
            after = supervisor.connection("files").offer.resources

        assert (1, 0) == (len(before), len(after))

    async def test_another_target_is_another_server(self) -> None:
        """What was known of the server that an entry led to before is not shown for the one that it leads to now."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
        async with run(store, server, replace(SPEC, target=StdioLaunch(command="another"))) as supervisor:
            assert Offer() == supervisor.connection("files").offer


@pytest.mark.anyio
class TestOrders:
    async def test_a_disable_lasts_until_an_enable(self) -> None:
        """It holds in the next run, which shows by whom and when; after an enable the server runs in each run."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await supervisor.order("files", Order.DISABLE, who="uid:7")
            await reach(supervisor, State.DISABLED)
            ordered = supervisor.status("files")
        async with run(store, server) as supervisor:
            await reach(supervisor, State.DISABLED)
            later = supervisor.status("files")
            await supervisor.order("files", Order.ENABLE, who="uid:8")
            await reach(supervisor, State.READY)
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)
            last = supervisor.status("files")

        assert ("disabled", "uid:7 (disable)") == (later.wanted, later.wanted_by)
        assert ordered.wanted_at == pytest.approx(later.wanted_at, abs=1)
        assert (None, "config") == (last.wanted_at, last.wanted_by)
        assert "disable ordered by uid:7" == later.reason

    @pytest.mark.parametrize("order", [Order.STOP, Order.RESTART])
    async def test_other_orders_end_with_the_daemon(self, order) -> None:
        """A stop lasts until the next start of the daemon, and so does all but a disable."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await supervisor.order("files", order, who="uid:7")
        async with run(store, server) as supervisor:
            await reach(supervisor, State.READY)

            assert "config" == supervisor.status("files").wanted_by

    async def test_an_edit_of_enabled_ends_a_disable(self) -> None:
        """Who writes into the entry that a server is enabled, or not, is heard last."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await supervisor.order("files", Order.DISABLE, who="uid:7")
            await supervisor.apply([replace(SPEC, enabled=False)])
            await supervisor.apply([SPEC])
            await reach(supervisor, State.READY)

        assert None is store.standing_order("files")

    async def test_a_server_that_is_out_of_the_configuration_for_a_moment_is_still_disabled(self) -> None:
        """Removing an entry and putting it back starts nothing that an operator has forbidden."""
        store, server = MemoryStore(), MemoryServer()
        async with run(store, server) as supervisor:
            await supervisor.order("files", Order.DISABLE, who="uid:7")
            await supervisor.apply([])
            await supervisor.apply([SPEC])
            await reach(supervisor, State.DISABLED)

        assert isinstance(store.standing_order("files"), StandingOrder)


def http(url: Any, **more: Any) -> ServerSpec:
    return ServerSpec(name="docs", target=HttpTarget(url=url, **more))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (http("https://a.example/mcp"), http("https://b.example/mcp")),
        (http("https://a.example/mcp"), http("https://a.example/other")),
        (http(Secret("https://a.example/mcp?key=1")), http(Secret("https://b.example/mcp?key=1"))),
        (SPEC, replace(SPEC, target=StdioLaunch(command="memory", args=("--other",)))),
        (SPEC, replace(SPEC, target=StdioLaunch(command="memory", env=(("HOME", "/x"),)))),
        (SPEC, replace(SPEC, target=StdioLaunch(command="memory", cwd="/x"))),
        (SPEC, replace(SPEC, era=Era.LEGACY)),
    ],
)
def test_where_and_how_a_server_is_reached_makes_another_digest(one, other):
    """Another program, argument, folder, address or era is another server."""
    assert target_digest(one) != target_digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (http("https://a.example/mcp", auth=Bearer(Secret("a"))), http("https://a.example/mcp", auth=Bearer(Secret("b")))),
        (
            http("https://a.example/mcp", headers=(("X-Key", Secret("a")),)),
            http("https://a.example/mcp", headers=(("X-Key", Secret("b")),)),
        ),
        (http(Secret("https://a.example/mcp?key=1")), http(Secret("https://a.example/mcp?key=2"))),
        (
            replace(SPEC, target=StdioLaunch(command="memory", env=(("KEY", Secret("a")),))),
            replace(SPEC, target=StdioLaunch(command="memory", env=(("KEY", Secret("b")),))),
        ),
        (SPEC, replace(SPEC, call_timeout=5.0, origin="elsewhere:1")),
    ],
)
def test_no_secret_and_no_limit_is_in_the_digest(one, other):
    """A secret that was replaced makes no other server, and none can be guessed from the digest."""
    assert target_digest(one) == target_digest(other)


@pytest.mark.anyio
async def test_a_secret_in_what_a_server_offers_is_not_remembered():
    """A server that puts its secret into its lists shows it to its callers; the store never gets it."""
    store, server = MemoryStore(), MemoryServer(tools=("s3cret-value",))
    spec = replace(SPEC, target=StdioLaunch(command="memory", env=(("KEY", Secret("s3cret-value")),)))
    async with run(store, server, spec) as supervisor:
        await reach(supervisor, State.READY)
        shown = supervisor.connection("files").offer.tools[0]["name"]
    known = store.recall("files", target_digest(spec))

    assert "s3cret-value" == shown
    assert known is not None
    assert known.offer is not None
    assert ["***"] == [tool["name"] for tool in known.offer.tools]


def remembering(secret: str) -> tuple[MemoryStore, ServerSpec, Recall]:
    """The memory of a server that was given a secret."""
    store = MemoryStore()
    spec = replace(SPEC, target=StdioLaunch(command="memory", env=(("KEY", Secret(secret)),)))
    return store, spec, Recall(store, spec, Mask([secret]))


@pytest.mark.anyio
async def test_an_offer_with_a_secret_that_reads_like_json_is_remembered_entry_by_entry():
    """A number that a schema has, too, costs no list; nothing but lists of entries is remembered."""
    store, spec, recall = remembering("100000")
    tool = {"name": "a", "inputSchema": {"type": "object", "properties": {"n": {"maximum": 100000}}}}
    await recall.offered(Offer(tools=(tool, {"name": "100000"}), instructions="100000"))
    known = store.recall("files", target_digest(spec))

    assert known is not None
    assert Offer(tools=(tool, {"name": "***"}), instructions="***") == known.offer


@pytest.mark.anyio
async def test_an_offer_that_is_too_large_is_not_masked_and_not_remembered():
    """A later one that is not is remembered with all its parts."""
    store, spec, recall = remembering("s3cret-value")
    large = tuple({"name": "s3cret-value" * 90_000} for _ in range(MAX_OFFER // 1_000_000))
    offer = Offer(prompts=({"name": "p"},), tools=large)
    await recall.offered(offer)
    known = store.recall("files", target_digest(spec))
    small = replace(offer, tools=())
    await recall.offered(small)
    later = store.recall("files", target_digest(spec))

    assert known is None or known.offer is None
    assert later is not None
    assert small == later.offer


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("entries", "members"), [(1900, 64), (1, 120_000)])
@pytest.mark.anyio
async def test_a_large_offer_full_of_secrets_does_not_hold_the_loop(entries: int, members: int):
    """More than ten megabytes with secrets, in many entries or in one, are masked in steps; others have their turns."""
    _, _, recall = remembering("s3cret-value")
    entry = {
        "name": "n",
        "inputSchema": {"properties": {f"k{n}": {"description": "s3cret-value " * 8} for n in range(members)}},
    }
    longest = 0.0

    async def take_turns() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()  # what else runs on the machine does not count
            await anyio.lowlevel.checkpoint()
            longest = max(longest, time.thread_time() - began)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await anyio.lowlevel.checkpoint()
        await recall.offered(Offer(tools=(entry,) * entries))
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert 0 < longest < 0.25
    assert "***" in recall.offer.tools[-1]["inputSchema"]["properties"]["k1"]["description"]

"""The stream of the newer era over servers in memory, under virtual time: one for everything, and never a moment without it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio.testing
from tests.supervisor.resource_wire import ResourceServer, refusal
from tests.supervisor.subscriptions.test_per_uri import Updates, states
from tests.supervisor.test_supervisor import reach, spec, supervised

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.events import SubscriptionsRestored
from mcpvisor.supervisor.spec import Era, WantedResource
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.subscriptions.listening import ACK_SECONDS, AGAIN_AND_AGAIN, LISTEN_RETRY_MAX
from mcpvisor.supervisor.subscriptions.outcome import SLOW_RETRY


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


pytestmark = pytest.mark.anyio

A, B, C = "memo://a", "MEMO://B/", "memo c"
LOST = RequestFailed(Outcome.MAYBE_EXECUTED, "stream_failed", "reset by peer")


def wanting(*uris: str | WantedResource) -> Any:
    wanted = tuple(WantedResource(uri=uri) if isinstance(uri, str) else uri for uri in uris)
    return spec(era=Era.MODERN, subscriptions=wanted)


def end_streams(server: ResourceServer, failure: RequestFailed | None = None) -> None:
    """In good order without a failure."""
    for pending in list(server.streams.values()):
        if failure is None:
            pending.settle({"resultType": "complete"})
        else:
            pending.fail(failure)


async def test_one_stream_carries_everything_before_the_server_is_ready() -> None:
    """Letter by letter, and each is told as one that may have changed."""
    server = ResourceServer()
    async with supervised(files=server) as supervisor:
        updates = Updates(supervisor)
        await supervisor.apply([wanting(A, B, C)])
        await reach(supervisor, "files", State.READY)
        restored = [event.counts["active"] for event in supervisor.history("files") if isinstance(event, SubscriptionsRestored)]
        server.update(B)

    assert [sorted([A, B, C])] == server.filters
    assert [(uri, "resync") for uri in (A, B, C)] == updates[:3]
    assert ([(B, "notified")], [3]) == (updates[3:], restored)


async def test_without_wishes_the_stream_is_for_changes_of_lists() -> None:
    """It holds nothing up, and stays as it is."""
    server = ResourceServer()
    server.ack_after = 5.0
    async with supervised(wanting(), files=server) as supervisor:
        began = anyio.current_time()
        await reach(supervisor, "files", State.READY)
        took = anyio.current_time() - began
        await anyio.sleep(1000)

    assert (True, [[]]) == (took < 1, server.filters)


async def test_another_set_is_a_new_stream_before_the_old_one_is_closed() -> None:
    """What both carry is active throughout and told no change; the old one is withdrawn once the new one stands."""
    server = ResourceServer()
    async with supervised(wanting(A), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        server.ack_after = 2.0
        await supervisor.apply([wanting(A, B)])
        await anyio.sleep(1)
        both, during = len(server.streams), states(supervisor)
        server.update(A)
        await anyio.sleep(3)
        assert server.wire is not None
        after = (len(server.streams), server.wire.cancelled)

    assert (2, {A: "active", B: "pending"}) == (both, during)
    assert (1, ["subscriptions/listen"]) == after
    assert ([[A], sorted([A, B])], 1) == (server.filters, server.opened)
    assert [(A, "notified"), (B, "resync")] == updates


async def test_a_set_that_changes_while_the_stream_is_opened_is_followed() -> None:
    """In the end one stream carries what is wanted then."""
    server = ResourceServer()
    async with supervised(wanting(A), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        server.ack_after = 2.0
        await supervisor.apply([wanting(A, B)])
        await anyio.sleep(1)
        await supervisor.apply([wanting(C)])
        await anyio.sleep(10)
        shown = states(supervisor)

    assert {C: "active"} == shown
    assert ([[A], sorted([A, B]), [C]], 0) == (server.filters, len(server.streams))


async def test_an_update_before_the_acknowledgement_is_not_lost() -> None:
    """Servers may push what they have not acknowledged yet."""
    server = ResourceServer()
    server.ack_after = 3.0
    async with supervised(files=server) as supervisor:
        updates = Updates(supervisor)
        await supervisor.apply([wanting(A)])
        await anyio.sleep(2)
        server.update(A)
        await reach(supervisor, "files", State.READY)

    assert [(A, "notified"), (A, "resync")] == updates


async def test_what_the_acknowledgement_does_not_name_is_a_failure() -> None:
    """It is asked for again slowly, and when the lists change; the others do not notice."""
    server = ResourceServer()
    server.unknown = {B}
    async with supervised(wanting(A, B), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        shown = states(supervisor)
        await anyio.sleep(SLOW_RETRY / 2)
        early = len(server.filters)
        server.unknown.clear()
        server.notify("notifications/resources/list_changed")
        await reach(supervisor, "files", State.READY)

    assert reason.startswith("1 of 2 subscriptions does not work, such as MEMO://B/: the server does not grant it")
    assert ({A: "active", B: "failed"}, 1) == (shown, early)
    assert 2 == len(server.filters)


async def test_a_server_that_refuses_all_for_one_is_asked_until_it_is_found() -> None:
    """The good ones are carried; list changes too."""
    server = ResourceServer()
    uris = [f"memo://{number}" for number in range(20)]
    server.refusals = {"memo://13": refusal(-32602, "Unknown resource")}
    async with supervised(wanting(*uris), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        shown = states(supervisor)
        await anyio.sleep(200)
        asked = len(server.filters)

    assert (
        "1 of 20 subscriptions does not work, such as memo://13: the server knows no such resource: Unknown resource" == reason
    )
    assert {uri: "failed" if uri == "memo://13" else "active" for uri in uris} == shown
    assert asked <= 12


@pytest.mark.parametrize("failure", [None, LOST], ids=["in good order", "lost"])
async def test_a_stream_that_ended_is_opened_again(failure: RequestFailed | None) -> None:
    """After a moment; lists are read again, and each resource may have changed meanwhile."""
    server = ResourceServer()
    async with supervised(wanting(A), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        await anyio.sleep(100)
        updates, reads, began = Updates(supervisor), server.log.count("tools/list"), anyio.current_time()
        end_streams(server, failure)
        await supervisor.wait_until("files", lambda status: status.subscriptions_active == 0)
        await supervisor.wait_until("files", lambda status: status.subscriptions_active == 1)
        took = anyio.current_time() - began
        await anyio.sleep(1)
        listed, state = server.log.count("tools/list") - reads, supervisor.status("files").state

    assert ([(A, "resync")], 1, State.READY) == (updates, listed, state)
    assert 0.5 <= took <= 1.2


async def test_a_stream_that_is_lost_while_another_is_opened_is_a_gap() -> None:
    """What both carry was not watched for a while, and that is told."""
    server = ResourceServer()
    async with supervised(wanting(A), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        server.ack_after = 5.0
        await supervisor.apply([wanting(A, B)])
        await anyio.sleep(1)
        updates = Updates(supervisor)
        next(iter(server.streams.values())).fail(LOST)
        await anyio.sleep(1)
        during = states(supervisor)
        await anyio.sleep(5)

    assert {A: "pending", B: "pending"} == during
    assert {(A, "resync"), (B, "resync")} == set(updates)
    assert 2 == len(updates)


async def test_streams_that_do_not_last_are_opened_ever_more_seldom() -> None:
    """A server that ends them at once is not asked in a loop."""
    server = ResourceServer()
    server.stream_refusal = LOST
    async with supervised(wanting(A), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        await anyio.sleep(600)
        tries = len(server.filters)
        server.stream_refusal = None
        await anyio.sleep(LISTEN_RETRY_MAX + 1)
        state = supervisor.status("files").state

    assert reason.endswith("memo://a: the stream of notifications was lost: reset by peer")
    assert (True, State.READY) == (12 <= tries <= 25, state)


async def test_streams_that_end_again_and_again_are_a_fault() -> None:
    """What they carry is failed with the reason and the next try, and is read where that is wanted, until a stream lives."""
    server = ResourceServer()
    server.ends_streams = True
    async with supervised(wanting(A, WantedResource(uri=B, poll=1.0)), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        await anyio.sleep(5)
        began = len(server.asked)
        seen: set[tuple[str, str, bool]] = set()
        for _ in range(60):
            await anyio.sleep(0.25)
            seen |= {
                (one.uri, one.state.value, one.next_retry is not None) for one in supervisor.subscriptions("files").statuses()
            }
        reads = len(server.asked) - began
        server.ends_streams = False
        await reach(supervisor, "files", State.READY)
        after = states(supervisor)

    assert reason.endswith(f"memo://a: {AGAIN_AND_AGAIN}")
    assert {(A, "failed", True), (B, "polled", True)} == seen
    assert {A: "active", B: "active"} == after
    assert 12 <= reads <= 17


async def test_a_server_without_such_streams_is_asked_seldom() -> None:
    """For a wanted resource every five minutes, for lists alone never again; a poll does without."""
    server, plain = ResourceServer(), ResourceServer()
    server.stream_refusal = plain.stream_refusal = refusal(-32601, "Method not found")
    polled = WantedResource(uri=B, poll=60.0)
    async with supervised(files=server, docs=plain) as supervisor:
        await supervisor.apply([wanting(A, polled), spec("docs", era=Era.MODERN)])
        reason = await reach(supervisor, "files", State.DEGRADED)
        await reach(supervisor, "docs", State.READY)
        shown = states(supervisor)
        await anyio.sleep(SLOW_RETRY * 2 + 10)

    assert reason.endswith("memo://a: the server knows no subscriptions: Method not found")
    assert {A: "failed", B: "polled"} == shown
    assert (3, 1) == (len(server.filters), len(plain.filters))


async def test_a_stream_without_acknowledgement_stands_for_lists_alone() -> None:
    """Resources are failed until it comes, if it does."""
    server = ResourceServer()
    server.acknowledges = False
    async with supervised(wanting(A), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        [pending] = server.streams.values()
        server.acknowledge(pending, [A])
        await reach(supervisor, "files", State.READY)

    assert reason.endswith(f"memo://a: the server has not acknowledged the stream within {ACK_SECONDS:g} s")


async def test_a_server_that_ends_the_stream_by_cancelling_it_is_asked_again() -> None:
    """On stdio that is how a server takes back a subscription."""
    server = ResourceServer()
    async with supervised(wanting(A), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        [number] = server.streams
        server.notify("notifications/cancelled", requestId=number, reason="shutting down")
        await supervisor.wait_until("files", lambda status: status.subscriptions_active == 0)
        await supervisor.wait_until("files", lambda status: status.subscriptions_active == 1)

    assert ([(A, "resync")], [[A], [A]]) == (updates, server.filters)


async def test_every_new_session_has_its_stream() -> None:
    """With everything that is wanted by then."""
    server = ResourceServer()
    async with supervised(wanting(A, B), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        server.end()
        await supervisor.apply([wanting(B)])
        await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)

    assert ([sorted([A, B]), [B]], [(B, "resync")]) == (server.filters, updates)


async def test_a_server_that_offers_none_is_believed() -> None:
    """Unless an entry insists."""
    server = ResourceServer(subscribe=False)
    async with supervised(wanting(A, WantedResource(uri=B, force=True)), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        shown = states(supervisor)

    assert reason.endswith("memo://a: the server says that it offers no subscriptions")
    assert ({A: "failed", B: "active"}, [[B]]) == (shown, server.filters)

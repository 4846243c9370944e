"""Subscriptions of the older era over servers in memory, under virtual time: what is asked for, and what is told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import anyio
import pytest
import trio.testing
from tests.supervisor.resource_wire import ResourceServer, refusal
from tests.supervisor.test_supervisor import reach, spec, supervised

from mcpvisor.supervisor.events import (
    ResourceUpdated,
    ServerNotified,
    ServerStateChanged,
    SubscriptionAsked,
    SubscriptionsRestored,
)
from mcpvisor.supervisor.spec import Era, HttpTarget, WantedResource
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.subscriptions.outcome import LIST_PAUSE, RETRY, RETRY_MAX, SLOW_RETRY
from mcpvisor.supervisor.subscriptions.per_uri import ANSWER_SECONDS, AT_ONE_TIME, OPENING_SECONDS
from mcpvisor.supervisor.subscriptions.upkeep import RESTORE_SECONDS
from mcpvisor.supervisor.subscriptions.wanted import COALESCE, RESYNC_PAUSE
from mcpvisor.supervisor.supervisor import Supervisor
from mcpvisor.supervisor.transports.push import PushState


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


pytestmark = pytest.mark.anyio

ODD = ("MiXeD://Host/Path/", "http://example.test", "notes/today", "res://x?b=2&a=1#frag", "file:///C:/My Notes/plan é.txt")


def wanting(*uris: str | WantedResource, **changes: object) -> Any:
    wanted = tuple(WantedResource(uri=uri) if isinstance(uri, str) else uri for uri in uris)
    return spec(era=Era.LEGACY, subscriptions=wanted, **changes)


def over_http(*uris: str | WantedResource) -> Any:
    return wanting(*uris, target=HttpTarget(url="http://127.0.0.1:1/mcp"))


class Updates(list[tuple[str, str]]):
    """What subscribers of the bus are told of resources: URI and reason."""

    def __init__(self, supervisor: Supervisor) -> None:
        supervisor.bus.attach(self._take)

    def _take(self, event: Any) -> None:
        if isinstance(event, ResourceUpdated):
            self.append((event.uri, event.reason))

    def take(self) -> list[tuple[str, str]]:
        """What has come since the last time."""
        told, self[:] = list(self), []
        return told


def states(supervisor: Supervisor) -> dict[str, str]:
    return {one.uri: one.state.value for one in supervisor.subscriptions("files").statuses()}


def reason_of(supervisor: Supervisor, uri: str) -> str:
    return next(one.reason for one in supervisor.subscriptions("files").statuses() if one.uri == uri)


def tries(server: ResourceServer, uri: str) -> Iterator[float]:
    return (at for method, asked, at in server.asked if (method, asked) == ("resources/subscribe", uri))


async def test_the_wanted_are_subscribed_before_the_server_is_ready() -> None:
    """Letter by letter as they are written, each once, after the lists; and each is told as one that may have changed."""
    server = ResourceServer()
    async with supervised(files=server) as supervisor:
        updates = Updates(supervisor)
        await supervisor.apply([wanting(*ODD)])
        await reach(supervisor, "files", State.READY)
        shown = supervisor.status("files")

    assert sorted(ODD) == sorted(server.subscribed)
    assert server.log.index("resources/subscribe") > server.log.index("resources/templates/list")
    assert sorted((uri, "resync") for uri in ODD) == sorted(updates)
    assert (len(ODD), len(ODD)) == (shown.subscriptions_wanted, shown.subscriptions_active)


async def test_every_new_session_is_brought_to_the_wanted_set() -> None:
    """After an end all are asked for again, and each is told once as one that may have changed."""
    server = ResourceServer()
    async with supervised(wanting("memo://a", "memo://b"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        server.end()
        await supervisor.wait_until("files", lambda status: status.subscriptions_active == 0)
        away = states(supervisor)
        await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)
        restored = [event.counts for event in supervisor.history("files") if isinstance(event, SubscriptionsRestored)]

    assert {"memo://a": "pending", "memo://b": "pending"} == away
    assert [["memo://a", "memo://b"]] * 2 == [sorted(server.subscribed[:2]), sorted(server.subscribed[2:])]
    assert [("memo://a", "resync"), ("memo://b", "resync")] == sorted(updates)
    assert [{"pending": 0, "active": 2, "failed": 0, "polled": 0}] * 2 == restored


async def test_one_that_fails_degrades_the_server_and_stops_no_other() -> None:
    """The reason names the count and the first; it is tried again with a growing delay, and then the server is ready."""
    server = ResourceServer()
    server.refusals = {"memo://b": refusal()}
    async with supervised(wanting("memo://a", "memo://b", "memo://c"), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        shown = states(supervisor)
        await anyio.sleep(2000)
        waits = list(tries(server, "memo://b"))
        server.refusals.clear()
        await anyio.sleep(RETRY_MAX + 1)
        ready, tried = supervisor.status("files"), len(list(tries(server, "memo://b")))
        await anyio.sleep(2000)
        told = [(e.uri, e.why) for e in supervisor.history("files") if isinstance(e, SubscriptionAsked)]

    assert "1 of 3 subscriptions does not work, such as memo://b: not today" == reason
    assert {"memo://a": "active", "memo://b": "failed", "memo://c": "active"} == shown
    steps = [later - earlier for earlier, later in pairwise(waits)]
    assert all(RETRY * 2**n / 2 <= step <= RETRY * 2**n + 1 for n, step in enumerate(steps[:7])), steps
    assert all(RETRY_MAX / 2 <= step <= RETRY_MAX + 1 for step in steps[8:]), steps
    assert (State.READY, "", 3) == (ready.state, ready.reason, ready.subscriptions_active)
    assert len(list(tries(server, "memo://b"))) == tried
    assert [("memo://b", "not today"), ("memo://b", "")] == told


@pytest.mark.parametrize("code", [-32602, -32002])
async def test_what_a_server_does_not_know_is_tried_again_when_its_lists_change(code: int) -> None:
    """Else slowly; and a server that announces each entry is not asked each time."""
    server = ResourceServer()
    server.refusals = {"memo://new": refusal(code, "Resource not found")}
    async with supervised(wanting("memo://new"), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        await anyio.sleep(SLOW_RETRY + 1)
        slowly = len(server.subscribed)
        for _ in range(100):
            server.notify("notifications/resources/list_changed")
            await anyio.sleep(0.01)
        await anyio.sleep(LIST_PAUSE + 1)
        after_a_storm = len(server.subscribed)
        server.refusals.clear()
        server.notify("notifications/resources/list_changed")
        await reach(supervisor, "files", State.READY)

    assert reason.endswith("memo://new: the server knows no such resource: Resource not found")
    assert (2, 3, 4) == (slowly, after_a_storm, len(server.subscribed))


async def test_a_server_that_offers_none_is_believed() -> None:
    """Nothing is asked of it, and the reason says why; an entry can insist."""
    server = ResourceServer(subscribe=False)
    forced = WantedResource(uri="memo://forced", force=True)
    async with supervised(wanting("memo://a", forced), files=server) as supervisor:
        reason = await reach(supervisor, "files", State.DEGRADED)
        shown = states(supervisor)

    assert reason.endswith("memo://a: the server says that it offers no subscriptions")
    assert {"memo://a": "failed", "memo://forced": "active"} == shown
    assert ["memo://forced"] == server.subscribed


async def test_another_configuration_is_applied_in_place() -> None:
    """What is new is subscribed, what is gone is ended, what is in both is not touched, and nothing is restarted."""
    server = ResourceServer()
    async with supervised(wanting("memo://a", "memo://b"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        [change] = await supervisor.apply([wanting("memo://b", "memo://c")])
        await anyio.sleep(1)
        shown = states(supervisor)
        server.update("memo://a")

    assert ("update", ("subscriptions",)) == (change.change.value, change.fields)
    assert {"memo://b": "active", "memo://c": "active"} == shown
    assert {("resources/unsubscribe", "memo://a"), ("resources/subscribe", "memo://c")} == {one[:2] for one in server.asked[2:]}
    assert 4 == len(server.asked)
    assert ([("memo://c", "resync")], 1) == (updates, server.opened)


async def test_a_resource_is_watched_for_as_long_as_anybody_holds_it() -> None:
    """Holders come and go, and come again; the server sees the first and the last."""
    server = ResourceServer()
    async with supervised(wanting("memo://a"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        table = supervisor.subscriptions("files")
        for _ in range(2):
            table.want("memo://b", "client 1")
        table.want("memo://a", "client 1")
        table.want("memo://b", "client 2")
        await anyio.sleep(1)
        table.drop_all("client 1")
        table.drop("memo://b", "nobody")
        await anyio.sleep(1)
        held = [(one.uri, one.holders) for one in table.statuses()]
        table.drop("memo://b", "client 2")
        await anyio.sleep(1)

    assert [("memo://a", ("config",)), ("memo://b", ("client 2",))] == held
    expected = [("resources/subscribe", "memo://a"), ("resources/subscribe", "memo://b"), ("resources/unsubscribe", "memo://b")]
    assert expected == [one[:2] for one in server.asked]


async def test_what_was_dropped_while_the_server_was_away_is_not_brought_back() -> None:
    """The next session is brought to what is wanted then."""
    server = ResourceServer()
    async with supervised(wanting("memo://a", "memo://b"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        server.end()
        await supervisor.apply([wanting("memo://b")])
        await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)

    assert ["memo://a", "memo://b", "memo://b"] == sorted(server.subscribed)


async def test_updates_of_the_wanted_are_events_and_others_are_counted() -> None:
    """A text that differs in one letter is another resource."""
    server = ResourceServer()
    async with supervised(wanting("Memo://A/"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates, others = Updates(supervisor), list[str]()
        supervisor.bus.attach(lambda event: others.append(event.method) if isinstance(event, ServerNotified) else None)
        for uri in ("memo://a/", "Memo://A", "Memo://A/"):
            server.update(uri)
        server.notify("notifications/resources/updated")
        strangers = supervisor.subscriptions("files").strangers

    assert ([("Memo://A/", "notified")], 3, []) == (updates, strangers, others)


async def test_a_flood_of_one_resource_is_a_few_updates() -> None:
    """The last one is told too."""
    server = ResourceServer()
    async with supervised(wanting("memo://a", "memo://b"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        for _ in range(1000):
            server.update("memo://a")
            await anyio.sleep(0.001)
        server.update("memo://b")
        server.update("memo://a")
        told = len(updates)
        await anyio.sleep(3 * COALESCE)

    assert 9 <= told <= 14
    assert ("memo://a", "notified") == updates[-1]


async def test_an_update_before_the_answer_is_not_lost() -> None:
    """Servers may push what they have not answered yet."""
    server = ResourceServer()
    server.answer_after = 3.0
    async with supervised(files=server) as supervisor:
        updates = Updates(supervisor)
        await supervisor.apply([wanting("memo://a")])
        await anyio.sleep(2)
        server.update("memo://a")
        await reach(supervisor, "files", State.READY)

    assert [("memo://a", "notified"), ("memo://a", "resync")] == updates


async def test_what_is_dropped_while_it_is_asked_for_is_ended() -> None:
    """Nothing is left at the server."""
    server = ResourceServer()
    async with supervised(wanting(), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        server.answer_after = 2.0
        table = supervisor.subscriptions("files")
        table.want("memo://a", "client")
        await anyio.sleep(1)
        table.drop("memo://a", "client")
        await anyio.sleep(10)

    assert [("resources/subscribe", "memo://a"), ("resources/unsubscribe", "memo://a")] == [one[:2] for one in server.asked]


async def test_what_is_wanted_again_while_it_is_ended_is_subscribed_anew() -> None:
    """And told as one that may have changed."""
    server = ResourceServer()
    async with supervised(wanting("memo://a"), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        updates = Updates(supervisor)
        server.answer_after = 2.0
        table = supervisor.subscriptions("files")
        table.drop("memo://a", "config")
        await anyio.sleep(1)
        table.want("memo://a", "client")
        await anyio.sleep(10)
        shown = states(supervisor)

    expected = ["resources/subscribe", "resources/unsubscribe", "resources/subscribe"]
    assert (expected, [("memo://a", "resync")]) == ([one[0] for one in server.asked], updates)
    assert {"memo://a": "active"} == shown


async def test_many_are_asked_for_a_few_at_a_time() -> None:
    """However many are wanted, the server has never more than eight of our requests."""
    server = ResourceServer()
    server.answer_after = 0.1
    async with supervised(wanting(*(f"memo://{n}" for n in range(100))), files=server) as supervisor:
        await reach(supervisor, "files", State.READY)
        active = supervisor.status("files").subscriptions_active

    assert (100, AT_ONE_TIME) == (active, server.most_at_one_time)


async def test_a_server_silent_to_subscriptions_holds_nothing_up_for_long() -> None:
    """It becomes degraded within seconds, and ready once it answers."""
    server = ResourceServer()
    server.silent = {"resources/subscribe"}
    async with supervised(wanting("memo://a", "memo://b"), files=server) as supervisor:
        began = anyio.current_time()
        reason = await reach(supervisor, "files", State.DEGRADED)
        took = anyio.current_time() - began
        server.silent.clear()
        await reach(supervisor, "files", State.READY)

    assert f"2 of 2 subscriptions do not work, such as memo://a: no answer within {ANSWER_SECONDS:g} s" == reason
    assert took <= RESTORE_SECONDS + 0.1


async def test_too_many_silent_ones_are_shown_as_not_answered() -> None:
    """The time for restoring is bounded as a whole."""
    server = ResourceServer()
    server.silent = {"resources/subscribe"}
    async with supervised(wanting(*(f"memo://{n}" for n in range(50))), files=server) as supervisor:
        began = anyio.current_time()
        reason = await reach(supervisor, "files", State.DEGRADED)
        took = anyio.current_time() - began

    assert reason.startswith("50 of 50 subscriptions do not work, such as memo://0: ")
    assert took == pytest.approx(RESTORE_SECONDS, abs=0.1)


class TestPushChannel:
    async def test_after_a_gap_everything_may_have_changed(self) -> None:
        """While the channel is down nothing is active; once it is back, each is told, without a new subscription."""
        server = ResourceServer(kind="http")
        async with supervised(over_http("memo://a", "memo://b"), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            updates = Updates(supervisor)
            server.set_push("retrying")
            reason = await reach(supervisor, "files", State.DEGRADED)
            down = states(supervisor)
            server.set_push("opening")
            await anyio.sleep(1)
            still = supervisor.status("files").state
            server.set_push("open")
            await reach(supervisor, "files", State.READY)

        assert {"memo://a": "pending", "memo://b": "pending"} == down
        assert reason.startswith("2 of 2 subscriptions do not work, such as memo://a: push channel: GET was answered 405")
        assert still is State.DEGRADED
        assert [("memo://a", "resync"), ("memo://b", "resync")] == sorted(updates)
        assert ["memo://a", "memo://b"] == sorted(server.subscribed)

    async def test_a_gap_is_seen_however_short_it_is(self) -> None:
        """Also while a subscription is under way that is not answered."""
        server = ResourceServer(kind="http")
        async with supervised(over_http("memo://a"), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            server.answer_after = 8.0
            supervisor.subscriptions("files").want("memo://b", "client")
            await anyio.sleep(1)
            updates = Updates(supervisor)
            server.set_push("retrying")
            await anyio.sleep(0.01)
            server.set_push("open")
            await anyio.sleep(1)

        assert [("memo://a", "resync")] == updates

    async def test_without_a_channel_a_subscription_is_worth_nothing(self) -> None:
        """The server accepts what it can never deliver: that is said, and taken back when it has a channel after all."""
        server = ResourceServer(kind="http")
        server.push = "none"
        async with supervised(over_http("memo://a"), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.DEGRADED)
            server.update("memo://a")
            updates = Updates(supervisor)
            server.update("memo://a")
            await anyio.sleep(1)
            came = updates.take()
            server.set_push("open")
            await reach(supervisor, "files", State.READY)

        assert "1 of 1 subscriptions does not work, such as memo://a: no push channel: GET was answered 405" == reason
        assert ([("memo://a", "notified")], [("memo://a", "resync")]) == (came, updates)

    @pytest.mark.parametrize("down", ["none", "retrying"])
    async def test_a_try_to_open_it_is_not_yet_a_channel(self, down: PushState) -> None:
        """The server stays degraded from try to try."""
        server = ResourceServer(kind="http")
        server.push = down
        async with supervised(over_http("memo://a"), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.DEGRADED)
            moves: list[Any] = []
            supervisor.bus.attach(lambda event: moves.append(event) if isinstance(event, ServerStateChanged) else None)
            for _ in range(3):
                server.set_push("opening")
                await anyio.sleep(1)
                server.set_push(down)
                await anyio.sleep(300)
            seen, moved = supervisor.status("files").reason, list(moves)

        assert (reason, []) == (seen, moved)

    async def test_a_channel_that_does_not_open_is_a_fault(self) -> None:
        """It is waited for before the server is ready, for a few seconds."""
        server = ResourceServer(kind="http")
        server.push = "opening"
        async with supervised(over_http("memo://a"), files=server) as supervisor:
            began = anyio.current_time()
            reason = await reach(supervisor, "files", State.DEGRADED)
            took = anyio.current_time() - began
            server.set_push("open")
            await reach(supervisor, "files", State.READY)

        assert reason.endswith(f"memo://a: the push channel is not open after {OPENING_SECONDS:g} s")
        assert took == pytest.approx(OPENING_SECONDS, abs=0.5)


class TestMissed:
    async def test_a_lost_message_may_have_been_an_update(self) -> None:
        """Everything active may have changed then; a stream of such losses is a round each ten seconds."""
        server = ResourceServer()
        async with supervised(wanting("memo://a", "memo://b"), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            updates = Updates(supervisor)
            assert server.wire is not None
            server.wire._received(b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem')
            await anyio.sleep(1)
            first = updates.take()
            for _ in range(190):
                server.wire._received(b'{"jsonrpc":"2.0","method":"notifications/resources/updated"')
                await anyio.sleep(0.1)
            await anyio.sleep(RESYNC_PAUSE + 1)

        assert [("memo://a", "resync"), ("memo://b", "resync")] == first
        assert len(updates) in (4, 6)


class TestPolling:
    POLLED = WantedResource(uri="memo://a", poll=60.0)

    async def test_where_the_server_cannot_push_the_resource_is_read(self) -> None:
        """A change is found by the content; what was before the first read is unknown."""
        server = ResourceServer(subscribe=False)
        async with supervised(files=server) as supervisor:
            updates = Updates(supervisor)
            await supervisor.apply([wanting(self.POLLED)])
            await reach(supervisor, "files", State.READY)
            began, shown = anyio.current_time(), supervisor.subscriptions("files").statuses()[0]
            first = updates.take()
            await anyio.sleep(600)
            unchanged = updates.take()
            server.texts["memo://a"] = "new"
            await anyio.sleep(70)
            reads = [at - began for method, _, at in server.asked if method == "resources/read"]

        assert ("polled", "the server says that it offers no subscriptions") == (shown.state.value, shown.reason)
        assert ([("memo://a", "resync")], [], [("memo://a", "polled")]) == (first, unchanged, updates)
        assert 10 <= len(reads) <= 13
        steps = [later - earlier for earlier, later in pairwise(reads)]
        assert all(54 <= step <= 66 for step in steps)
        assert len({round(step, 3) for step in steps}) > 1

    async def test_what_can_be_pushed_is_not_read(self) -> None:
        """Polling is for want of better, and ends when it comes."""
        server = ResourceServer(kind="http")
        server.push = "none"
        async with supervised(over_http(self.POLLED), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            await anyio.sleep(100)
            before = states(supervisor)
            updates = Updates(supervisor)
            server.set_push("open")
            await anyio.sleep(1)
            reads = server.log.count("resources/read")
            await anyio.sleep(1000)
            shown = states(supervisor)

        assert ({"memo://a": "polled"}, {"memo://a": "active"}) == (before, shown)
        assert [("memo://a", "resync")] == updates
        assert reads == server.log.count("resources/read")

    async def test_a_change_during_a_restart_is_found(self) -> None:
        """The content is compared with that of the session before; one that is the same needs no notice."""
        server = ResourceServer(subscribe=False)
        async with supervised(wanting(self.POLLED, WantedResource(uri="memo://b", poll=60.0)), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            updates = Updates(supervisor)
            server.texts["memo://b"] = "new"
            server.end()
            await supervisor.wait_until("files", lambda status: status.generation == 2 and status.state is State.READY)

        assert [("memo://b", "polled")] == updates

    async def test_a_read_that_fails_is_the_state_of_its_uri(self) -> None:
        """And no other's; it is read again at its pace."""
        server = ResourceServer(subscribe=False)
        server.refusals = {"memo://a": refusal(message="locked")}
        async with supervised(wanting(self.POLLED, WantedResource(uri="memo://b", poll=60.0)), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.DEGRADED)
            shown = states(supervisor)
            server.refusals.clear()
            await anyio.sleep(70)
            ready = supervisor.status("files").state

        assert reason.endswith("memo://a: the server says that it offers no subscriptions; reading it failed: locked")
        assert ({"memo://a": "failed", "memo://b": "polled"}, State.READY) == (shown, ready)

    async def test_a_resource_that_is_too_large_is_not_polled(self) -> None:
        """What is hashed is bounded."""
        server = ResourceServer(subscribe=False)
        server.texts["memo://a"] = "x" * (4 * 1024 * 1024)
        async with supervised(wanting(self.POLLED), files=server) as supervisor:
            reason = await reach(supervisor, "files", State.DEGRADED)

        assert "is over the 4194304 that are polled" in reason

    async def test_the_shortest_wish_counts(self) -> None:
        """Of several holders; and it ends with its holder."""
        server = ResourceServer(subscribe=False)
        async with supervised(wanting(WantedResource(uri="memo://a", poll=600.0)), files=server) as supervisor:
            await reach(supervisor, "files", State.READY)
            supervisor.subscriptions("files").want("memo://a", "handler", poll=10.0)
            await anyio.sleep(100)
            often = server.log.count("resources/read")
            supervisor.subscriptions("files").drop("memo://a", "handler")
            await anyio.sleep(100)

        assert 9 <= often <= 12
        assert server.log.count("resources/read") - often <= 1

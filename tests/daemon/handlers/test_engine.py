"""The handlers of a daemon together, in virtual time: what reaches which of them, what becomes of failures, what is kept."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
import trio.testing

from mcpvisor.daemon.handlers.contract import DeliveryFailed, EventHandler, HandlerEvent
from mcpvisor.daemon.handlers.engine import LEAVE_SECONDS, QUEUE, STOP_SECONDS, HandlerEngine
from mcpvisor.daemon.handlers.globs import Glob
from mcpvisor.daemon.handlers.ledger import DAY, Ledger
from mcpvisor.daemon.handlers.making import Surroundings
from mcpvisor.daemon.handlers.routing import Match, Route, Routing, RoutingOptions
from mcpvisor.daemon.handlers.runner import MADE_AGAIN
from mcpvisor.daemon.handlers.sources import made
from mcpvisor.daemon.handlers.specs import (
    CircuitPolicy,
    ExecOptions,
    HandlerSpec,
    HandlerType,
    LogOptions,
    RetryPolicy,
)
from mcpvisor.daemon.state.kept import KeptEvent
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import ClockJumped, Event, ResourceUpdated, ServerNotified
from mcpvisor.supervisor.host_events import HandlerCircuitClosed, HandlerCircuitOpened, HandlerGaveUp, HandlersFlooded
from mcpvisor.supervisor.spec import StdioLaunch

pytestmark = pytest.mark.anyio

EXEC = ExecOptions(launch=StdioLaunch(command="unused"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Time passes when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class Disk:
    """A store of events whose disk can be held up."""

    def __init__(self) -> None:
        self.events: dict[str, KeptEvent] = {}
        self.number = 0
        self.is_up = True
        self.free = anyio.Event()
        self.free.set()

    def kept_events(self) -> list[KeptEvent]:
        return list(self.events.values())

    def keep_event(self, kept: KeptEvent) -> int:
        self.events[kept.key] = kept
        self.number += 1
        return self.number

    def forget_event(self, key: str) -> None:
        self.events.pop(key, None)

    async def until_written(self, number: int) -> bool:
        assert number <= self.number
        if self.is_up:
            await self.free.wait()
        return self.is_up


class Counts:
    """What was counted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.removed: list[str] = []

    def handler_added(self, handler: str) -> None:
        pass

    def handler_event(self, handler: str, kind: str, outcome: str) -> None:
        del kind
        self.events.append((handler, outcome))

    def handler_queue(self, handler: str, length: int) -> None:
        pass

    def handler_took(self, handler: str, seconds: float) -> None:
        pass

    def handler_removed(self, handler: str) -> None:
        self.removed.append(handler)


class Handlers:
    """Handlers whose behaviour is a function by their name; what they were given is noted."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []
        """Handler, and the URI of what it was given."""
        self.ids: list[str] = []
        self.do: dict[str, Callable[[HandlerEvent], Any]] = {}
        self.made: list[str] = []
        self.ended: list[str] = []
        self.make: Callable[[HandlerSpec], None] = lambda _: None
        self.crash = anyio.Event()
        self.stirred = anyio.Event()

    @asynccontextmanager
    async def maker(self, spec: HandlerSpec, surroundings: Surroundings) -> AsyncGenerator[EventHandler]:
        del surroundings
        self.make(spec)
        self.made.append(spec.name)
        async with anyio.create_task_group() as tasks:
            if spec.name == "crashing":
                tasks.start_soon(self._crash)
            yield _Object(self, spec.name)
            tasks.cancel_scope.cancel()
        self.ended.append(spec.name)

    async def _crash(self) -> None:
        await self.crash.wait()
        self.crash = anyio.Event()
        raise RuntimeError("its own task has failed")

    def of(self, name: str) -> list[str]:
        return [uri for handler, uri in self.given if handler == name]

    async def until(self, look: Callable[[], bool]) -> None:
        with anyio.fail_after(100_000):
            while not look():
                await self.stirred.wait()


class _Object:
    def __init__(self, handlers: Handlers, name: str) -> None:
        self._handlers, self._name = handlers, name

    async def deliver(self, event: HandlerEvent) -> None:
        handlers = self._handlers
        handlers.given.append((self._name, str(event.data.get("uri"))))
        handlers.ids.append(event.id)
        handlers.stirred.set()
        handlers.stirred = anyio.Event()
        if (do := handlers.do.get(self._name)) is not None and (result := do(event)) is not None:
            await result


def spec(name: str, *, kept: bool = False, **keys: Any) -> HandlerSpec:
    return HandlerSpec(name=name, options=EXEC if kept else LogOptions(), **keys)


def routing(*names: str) -> Routing:
    """A URI `NAME/...` goes to that handler; `all/...` to all of them."""
    return Routing(
        routes=tuple(Route(handlers=(name,), uris=(Glob(f"{name}/**"), Glob("all/**"))) for name in names),
        options=RoutingOptions(match=Match.ALL),
    )


class Rig:
    """An engine with puppet handlers, and what it told."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.bus = EventBus()
        self.told: list[Event] = []
        self.bus.attach(self.told.append)
        self.disk = disk or Disk()
        self.counts = Counts()
        self.handlers = Handlers()
        makers = {HandlerType.LOG: self.handlers.maker, HandlerType.EXEC: self.handlers.maker}
        self.ledger = Ledger(self.disk)
        self.engine = HandlerEngine(
            self.bus,
            self.ledger,
            self.counts,
            Surroundings(instance="i", environ={}, makers=makers),
            jitter=lambda: 1.0,
        )

    def running(self, *specs: HandlerSpec) -> AbstractAsyncContextManager[HandlerEngine]:
        @asynccontextmanager
        async def run() -> AsyncGenerator[HandlerEngine]:
            async with self.engine as engine:
                self.apply(*specs)
                yield engine

        return run()

    def apply(self, *specs: HandlerSpec) -> list[tuple[str, str, tuple[str, ...]]]:
        by_name = {one.name: one for one in specs}
        changes = self.engine.apply(by_name, routing(*by_name))
        return [(change.handler, change.change.value, change.fields) for change in changes]

    def update(self, uri: str) -> None:
        self.bus.emit(ResourceUpdated(at=1.0, server="s", uri=uri, reason="notified"))

    def news(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.told if isinstance(event, kind)]


def refuse(why: str = "no", **how: Any) -> Callable[[HandlerEvent], None]:
    def do(_: HandlerEvent) -> None:
        raise DeliveryFailed(why, **how)

    return do


def hang(_: HandlerEvent) -> Any:
    return anyio.sleep_forever()


def crash(_: HandlerEvent) -> None:
    raise RuntimeError("boom")


async def test_handlers_do_not_touch_each_other() -> None:
    """Beside one that hangs, one that crashes and one that refuses, a good handler gets every event at once."""
    rig = Rig()
    rig.handlers.do = {"hanging": hang, "bad": crash, "refusing": refuse()}
    async with rig.running(*(spec(name, queue=3) for name in ("hanging", "bad", "refusing")), spec("good")):
        began = anyio.current_time()
        for number in range(20):
            rig.update(f"all/{number}")
        await rig.handlers.until(lambda: len(rig.handlers.of("good")) >= 20)
        for number in range(20, 40):
            rig.update(f"good/{number}")
            await rig.handlers.until(lambda uri=f"good/{number}": uri in rig.handlers.of("good"))

        assert anyio.current_time() - began < 1.0
        assert [f"all/{number}" for number in range(20)] == rig.handlers.of("good")[:20]
        assert 17 == rig.counts.events.count(("hanging", "overflow"))
        await rig.handlers.until(lambda: len(rig.handlers.of("hanging")) > 1)
        assert {view["name"]: view["last_error"] for view in rig.engine.views()} == {
            "bad": "RuntimeError: boom",
            "good": "",
            "hanging": "it was not done within 30 s",
            "refusing": "no",
        }


async def test_a_handler_that_comes_back_gets_everything() -> None:
    """Through an outage of hours no event is lost; the circuit is told of when it opens, and when it closes."""
    rig = Rig()
    rig.handlers.do = {"h": refuse()}
    async with rig.running(spec("h", kept=True, circuit=CircuitPolicy(failures=3, open_for=60.0))):
        for number in range(10):
            rig.update(f"h/{number}")
        await anyio.sleep(4 * 3600.0)
        tries = len(rig.handlers.given)
        rig.handlers.do = {}
        await anyio.sleep(200.0)

    (opened,), (closed,) = rig.news(HandlerCircuitOpened), rig.news(HandlerCircuitClosed)
    assert isinstance(opened, HandlerCircuitOpened)
    assert isinstance(closed, HandlerCircuitClosed)
    assert (3, "no") == (opened.failures, opened.why)
    assert tries < 4 * 60 + 10
    assert {f"h/{number}" for number in range(10)} == {uri for _, uri in rig.handlers.given[tries:]}
    assert {} == rig.disk.events


async def test_accepted_means_committed() -> None:
    """What is kept is given to its handler once it is on disk, and leaves the disk once it is handled."""
    rig = Rig()
    rig.disk.free = anyio.Event()
    async with rig.running(spec("h", kept=True), spec("g")):
        rig.update("all/1")
        await rig.handlers.until(lambda: rig.handlers.of("g") == ["all/1"])
        await anyio.sleep(10)
        held = (rig.handlers.of("h"), [kept.handler for kept in rig.disk.events.values()], rig.counts.events)
        rig.disk.free.set()
        await rig.handlers.until(lambda: bool(rig.handlers.of("h")))
        await anyio.sleep(1)

        assert ([], ["h"]) == held[:2]
        assert [("g", "accepted"), ("g", "handled"), ("h", "accepted"), ("h", "handled")] == rig.counts.events
        assert {} == rig.disk.events


async def test_a_disk_that_takes_nothing_stops_nothing() -> None:
    """While the store is degraded, events go on from memory."""
    rig = Rig()
    rig.disk.is_up = False
    async with rig.running(spec("h", kept=True)):
        rig.update("h/1")
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1"])


async def test_what_was_accepted_is_there_in_the_next_run() -> None:
    """An event that a former run has accepted is given under its id, also where the run ended while it was with the handler."""
    first = Rig()
    first.handlers.do = {"h": hang}
    with anyio.move_on_after(1):
        async with first.running(spec("h", kept=True)):
            first.update("h/1")
            first.update("h/2")
            await anyio.sleep_forever()
    second = Rig(first.disk)
    async with second.running(spec("h", kept=True)):
        await second.handlers.until(lambda: len(second.handlers.of("h")) >= 2)

    assert ["h/1", "h/2"] == second.handlers.of("h")
    assert first.handlers.ids == second.handlers.ids[:1]
    assert {} == second.disk.events


async def test_dead_letters_can_be_brought_back() -> None:
    """What was given up is kept with its reason and told of; `retry` gives it to its handler once more."""
    rig = Rig()
    rig.handlers.do = {"h": refuse("a bad day", is_final=True)}
    async with rig.running(spec("h", kept=True)):
        rig.update("h/1")
        rig.update("h/2")
        await rig.handlers.until(lambda: len(rig.handlers.given) >= 2)
        await anyio.sleep(1)
        dead = [(kept.event["data"]["uri"], kept.why, kept.tries) for kept in rig.ledger.dead_letters]
        rig.handlers.do = {}
        (one, _) = rig.ledger.dead_letters
        unknown = rig.engine.retry(["nothing"])
        first = rig.engine.retry([one.event["id"]])
        rest = rig.engine.retry(None)
        await rig.handlers.until(lambda: len(rig.handlers.given) >= 4)
        await anyio.sleep(1)

    assert [("h/1", "a bad day", 1), ("h/2", "a bad day", 1)] == dead
    assert ([], [one.event["id"]], 1) == (unknown, [view["id"] for view in first], len(rest))
    assert all(view["handler_is_there"] for view in [*first, *rest])
    assert ["h/1", "h/2"] == rig.handlers.of("h")[2:]
    assert ({}, 1) == (rig.disk.events, len(rig.news(HandlerGaveUp)))


async def test_dead_letters_can_be_dropped() -> None:
    """`drop` forgets those of some events, of a handler, or all, also on disk; what it does not mean stays."""
    rig = Rig()
    rig.handlers.do = {name: refuse(is_final=True) for name in ("a", "b")}
    async with rig.running(spec("a", kept=True), spec("b", kept=True)):
        rig.update("all/1")
        rig.update("a/2")
        rig.update("b/3")
        await rig.handlers.until(lambda: len(rig.handlers.given) >= 4)
        await anyio.sleep(1)
        by_uri = {kept.event["data"]["uri"]: kept.event["id"] for kept in rig.ledger.dead_letters}
        shared = rig.engine.drop([by_uri["all/1"]])
        left = sorted(rig.disk.events)
        of_a = rig.engine.drop(None, "a")
        unknown = rig.engine.drop(["nothing"]), rig.engine.drop(None, "c")
        rest = rig.engine.drop(None)

    assert [(by_uri["all/1"], "a"), (by_uri["all/1"], "b")] == sorted((one["id"], one["handler"]) for one in shared)
    assert [f"a/{by_uri['a/2']}", f"b/{by_uri['b/3']}"] == left
    assert ([{"id": by_uri["a/2"], "handler": "a"}], ([], [])) == (of_a, unknown)
    assert ([{"id": by_uri["b/3"], "handler": "b"}], {}) == (rest, rig.disk.events)
    assert 4 == len(rig.handlers.given)


async def test_a_full_queue_is_told() -> None:
    """What finds no room is a dead letter with that reason; what was accepted is not touched."""
    rig = Rig()
    rig.handlers.do = {"h": hang}
    async with rig.running(spec("h", kept=True, queue=2, deadline=1000.0)):
        for number in range(4):
            rig.update(f"h/{number}")
        await anyio.sleep(1)

        assert [("h/2", "its queue is full (2 events)"), ("h/3", "its queue is full (2 events)")] == [
            (kept.event["data"]["uri"], kept.why) for kept in rig.ledger.dead_letters
        ]
        assert 2 == len(rig.ledger.pending())


async def test_another_spec_is_another_handler() -> None:
    """A handler that is changed goes on with its queue; what the last one has ends there, and the next gets the rest."""
    rig = Rig()
    ends = anyio.Event()
    rig.handlers.do = {"h": lambda _: ends.wait()}
    async with rig.running(spec("h")):
        rig.update("h/1")
        rig.update("h/2")
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1"])
        same = rig.apply(spec("h"))
        changes = rig.apply(spec("h", queue=7))
        await anyio.sleep(5)
        before = (list(rig.handlers.made), list(rig.handlers.ended))
        ends.set()
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1", "h/2"])
        after = (list(rig.handlers.made), list(rig.handlers.ended))

    assert ([], [("h", "restart", ("queue",))]) == (same, changes)
    assert ((["h"], []), (["h", "h"], ["h"])) == (before, after)


async def test_changes_of_handlers_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads the log sees when a handler came, was edited and went."""
    rig = Rig()
    with caplog.at_level(logging.INFO, "mcpvisor.daemon.handlers.engine"):
        async with rig.running(spec("h")):
            rig.apply(spec("h", queue=7))
            rig.apply(spec("h", queue=7))
            rig.apply()

    assert ["handler h is there", "handler h is another one (queue)", "handler h is gone"] == caplog.messages


async def test_a_handler_that_is_removed_gets_what_waits() -> None:
    """It takes nothing more, gets what waits, and then ends; its series go with it."""
    rig = Rig()
    rig.handlers.do = {"h": lambda _: anyio.sleep(5)}
    async with rig.running(spec("h"), spec("g")):
        rig.update("h/1")
        rig.update("h/2")
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1"])
        changes = rig.apply(spec("g"))
        rig.update("h/3")
        await anyio.sleep(6)
        leaving = [(view["name"], view["state"]) for view in rig.engine.views()]
        await anyio.sleep(20)

        assert [("h", "stop", ())] == changes
        assert [("g", "running"), ("h", "leaving")] == leaving
        assert (["h/1", "h/2"], ["h"]) == (rig.handlers.of("h"), rig.counts.removed)


async def test_what_a_removed_handler_did_not_take_waits_for_its_return() -> None:
    """After its time what is kept stays kept, is shown, and is given to a handler of that name that comes later."""
    rig = Rig()
    rig.handlers.do = {"h": refuse()}
    async with rig.running(spec("h", kept=True)):
        rig.update("h/1")
        await rig.handlers.until(lambda: bool(rig.handlers.given))
        rig.apply()
        await anyio.sleep(LEAVE_SECONDS + 1)
        shown = rig.engine.views()
        rig.handlers.do = {}
        rig.handlers.given.clear()
        rig.apply(spec("h", kept=True))
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1"])

    assert [{"name": "h", "state": "absent", "waiting": 1, "dead": 0}] == shown


async def test_a_handler_that_is_wanted_again_stays() -> None:
    """One that is leaving and comes back in the configuration goes on as if nothing had been."""
    rig = Rig()
    rig.handlers.do = {"h": lambda _: anyio.sleep(5)}
    async with rig.running(spec("h")):
        rig.update("h/1")
        await rig.handlers.until(lambda: bool(rig.handlers.given))
        rig.apply()
        changes = rig.apply(spec("h"))
        rig.update("h/2")
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1", "h/2"])

        assert [("h", "start", ())] == changes
        assert (["h"], []) == (rig.handlers.made, rig.counts.removed)


async def test_a_handler_that_cannot_be_made() -> None:
    """It is shown with its reason, keeps its events, and is made once more after a while."""
    rig = Rig()

    def refuse_to_be(_: HandlerSpec) -> None:
        raise ValueError("no such module")

    rig.handlers.make = refuse_to_be
    async with rig.running(spec("h")):
        began = anyio.current_time()
        rig.update("h/1")
        await anyio.sleep(1)
        shown = rig.engine.views()[0]["last_error"]
        rig.handlers.make = lambda _: None
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1"])
        seconds = anyio.current_time() - began

    assert "it could not be made: ValueError: no such module" == shown
    assert MADE_AGAIN <= seconds < MADE_AGAIN + 30.0


async def test_a_handler_whose_own_tasks_fail_is_made_anew() -> None:
    """What was with it at that moment is given to the next one; nobody else notices."""
    rig = Rig()
    rig.handlers.do = {"crashing": lambda _: anyio.sleep(5)}
    async with rig.running(spec("crashing"), spec("good")):
        rig.update("crashing/1")
        await rig.handlers.until(lambda: bool(rig.handlers.given))
        rig.handlers.crash.set()
        await rig.handlers.until(lambda: len(rig.handlers.of("crashing")) >= 2)
        rig.update("good/1")
        await rig.handlers.until(lambda: rig.handlers.of("good") == ["good/1"])

        assert ["crashing/1", "crashing/1"] == rig.handlers.of("crashing")
        assert ["good"] == [name for name in rig.handlers.made if name != "crashing"]


async def test_what_was_with_a_crash_for_the_last_time_is_no_secret() -> None:
    """An event whose last try ends with its handler is a dead letter with that reason, and is not lost."""
    rig = Rig()
    rig.handlers.do = {"crashing": lambda _: anyio.sleep(5)}
    async with rig.running(spec("crashing", retry=RetryPolicy(attempts=1))):
        rig.update("crashing/1")
        await rig.handlers.until(lambda: bool(rig.handlers.given))
        rig.handlers.crash.set()
        rig.update("crashing/2")
        await rig.handlers.until(lambda: len(rig.handlers.of("crashing")) >= 2)

        assert ["crashing/1", "crashing/2"] == rig.handlers.of("crashing")
        assert ["crashing/1"] == [kept.event["data"]["uri"] for kept in rig.ledger.dead_letters]
        assert rig.ledger.dead_letters[0].why.startswith("it has crashed: ")
        assert [("crashing", "dead")] == [one for one in rig.counts.events if one[1] == "dead"]


async def test_trouble_is_shown_before_there_is_an_event() -> None:
    """A handler that takes nothing is shown with the reason, though nothing was ever given to it."""
    rig = Rig()

    def refuse_to_be(_: HandlerSpec) -> None:
        raise ValueError("no such module")

    rig.handlers.make = refuse_to_be
    async with rig.running(spec("h")):
        await anyio.sleep(1)
        shown = {key: rig.engine.views()[0][key] for key in ("circuit", "trouble", "last_error")}

    why = "it could not be made: ValueError: no such module"
    assert {"circuit": "closed", "trouble": why, "last_error": why} == shown


async def test_a_jump_of_the_clock_gives_nothing_up() -> None:
    """What was accepted before the clock was set years ahead is still delivered."""
    rig = Rig()
    rig.handlers.do = {"h": hang}
    async with rig.running(spec("h", kept=True, deadline=1e6)):
        rig.update("h/1")
        await anyio.sleep(1)
        (kept,) = rig.ledger.pending()
        before = rig.ledger.outdated(time.time() + 8 * DAY)
        rig.bus.emit(ClockJumped(at=1.0, seconds=8 * DAY, asleep=0.0))

        assert ([kept], []) == (before, rig.ledger.outdated(time.time() + 8 * DAY))


async def test_what_is_too_old_is_given_up() -> None:
    """An event that was accepted long ago, by whichever run, is a dead letter in the end."""
    disk = Disk()
    event = made("resource_updated", "s", {"uri": "h/1"}, 1.0)
    disk.keep_event(KeptEvent(handler="h", event=event.as_json(), accepted_at=1.0))
    rig = Rig(disk)
    async with rig.running():
        rig.engine.tidy()

    assert [(event.id, "it was not handled for too long")] == [(k.event["id"], k.why) for k in rig.ledger.dead_letters]


async def test_a_test_event_says_what_became_of_it() -> None:
    """Each way is named with its route and its outcome; what takes too long is `waiting`."""
    rig = Rig()
    rig.handlers.do = {"bad": refuse("a bad day"), "slow": hang}
    async with rig.running(spec("good"), spec("bad"), spec("slow")) as engine:
        ways = await engine.emit(made("resource_updated", "s", {"uri": "all/1"}, 1.0), 5.0)
        nowhere = await engine.emit(made("resource_updated", "s", {"uri": "x"}, 1.0), 5.0)

    assert [("good", "handled", ""), ("bad", "failed", "a bad day"), ("slow", "waiting", "")] == [
        (way["handler"], way["outcome"], way["why"]) for way in ways
    ]
    assert [] == nowhere


async def test_loud_kinds_are_not_looked_at_unless_a_route_asks() -> None:
    """Log messages and progress that no route names do not even enter the queue of events."""
    rig = Rig()
    message = ServerNotified(at=1.0, server="s", method="notifications/message", params={"level": "error", "data": "x"})
    async with rig.running(spec("h")) as engine:
        for _ in range(2 * QUEUE):
            rig.bus.emit(message)
            engine.call_progressed("s", "t", {"progressToken": 1, "progress": 0.5})
        rig.update("h/1")
        await rig.handlers.until(lambda: rig.handlers.of("h") == ["h/1"])
        wanted = Route(handlers=("h",), kinds=frozenset({"log_message", "progress"}))
        engine.apply({"h": spec("h")}, Routing(routes=(wanted,)))
        rig.bus.emit(message)
        engine.call_progressed("s", "t", {"progressToken": 1, "progress": 0.5})
        await rig.handlers.until(lambda: len(rig.handlers.given) >= 3)

    assert [] == rig.news(HandlersFlooded)


async def test_a_flood_costs_events_and_nothing_else() -> None:
    """Events that come faster than they can be routed are lost, the oldest first, and their number is told."""
    rig = Rig()
    async with rig.running(spec("h", queue=10_000)):
        for number in range(QUEUE + 100):
            rig.update(f"h/{number}")
        rig.update("h/last")
        await rig.handlers.until(lambda: "h/last" in rig.handlers.of("h"))

    assert [101] == [event.count for event in rig.news(HandlersFlooded) if isinstance(event, HandlersFlooded)]
    assert QUEUE == len(rig.handlers.given)


async def test_the_end_waits_for_what_is_nearly_done() -> None:
    """At the end of the daemon handlers have a moment for what waits, and no more than that."""
    rig = Rig()
    rig.handlers.do = {"slow": hang, "quick": lambda _: anyio.sleep(1)}
    async with rig.running(spec("slow"), spec("quick")):
        rig.update("all/1")
        await rig.handlers.until(lambda: len(rig.handlers.given) >= 2)
        began = anyio.current_time()

    assert STOP_SECONDS == anyio.current_time() - began
    assert ("quick", "handled") in rig.counts.events


async def test_retries_follow_the_policy() -> None:
    """An event that alone is refused is tried as often as its handler says, and is then given up."""
    rig = Rig()
    rig.handlers.do = {"h": lambda event: refuse()(event) if event.data["uri"] == "h/bad" else None}
    retry = RetryPolicy(attempts=3, delay=2.0)
    async with rig.running(spec("h", retry=retry)):
        began = anyio.current_time()
        rig.update("h/bad")
        await rig.handlers.until(lambda: rig.handlers.of("h").count("h/bad") == 3)
        seconds = anyio.current_time() - began
        await anyio.sleep(1)

    assert pytest.approx(6.0, abs=0.1) == seconds
    assert [("h", "accepted"), ("h", "failed"), ("h", "failed"), ("h", "dead")] == rig.counts.events

"""Versions on trial over servers in memory, under virtual time: what runs in the end, whoever does what meanwhile."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
import trio.testing
from tests.supervisor.memory_wire import MemoryServer

from mcpvisor.daemon.config.load import Basis, Loaded, load
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.config.reload import Reloader, ReloadReport
from mcpvisor.daemon.reloading import DaemonReloading
from mcpvisor.supervisor.events import ServerStateChanged
from mcpvisor.supervisor.host_events import VersionRolledBack
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.opening import Opening
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import HttpTarget, PlannedChange, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Order, Supervisor
from mcpvisor.supervisor.transports.wire import Wire, WireEnd

pytestmark = pytest.mark.anyio

EXITED = WireEnd(cause="process_exited", detail="the server exited with code 3", exit_code=3)
NONE = WireEnd(cause="no_such_program", detail="there is no program bad")
REFUSED = WireEnd(cause="connect_failed", detail="refused")
TAIL = 'start_timeout = 10\ndrain = 5\nstop = { stdin = 0, term = 0 }\nrestart = { intensity = "off" }\n'
PROGRAM = '[servers.x]\ncommand = "true"\nargs = ["{word}"]\n{more}' + TAIL
WEB = '[servers.x]\nurl = "http://127.0.0.1:1/{word}"\n{more}' + TAIL


@pytest.fixture(params=["virtual"])
def anyio_backend() -> Any:
    """Time that passes only when everybody waits."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


class OnTheSpot(Reloader):
    """Reads the files without a thread, for which virtual time would not wait."""

    async def _read(self, previous: Basis | None = None) -> Loaded | Problem:
        await anyio.lowlevel.checkpoint()
        previous = self._applied.basis if self._applied is not None else previous
        return load(self.paths, self._environ, uid=os.geteuid(), previous=previous)


def no_changes(*_: object) -> tuple[()]:
    """Stands for handlers, of which there are none."""
    return ()


def unheard(*_: object) -> None:
    """Stands for systemd, which is not there."""


class Desk:
    """A file with the entry of one server, a daemon's reloads, and servers in memory that fail by the word in their entry."""

    def __init__(self, etc: Path, environ: dict[str, str], form: str) -> None:
        self.file = etc / "mcpvisor.toml"
        self.form = form
        self.server = MemoryServer(kind="http" if form == WEB else "stdio")
        self.opened: list[str] = []
        self.reports: list[ReloadReport] = []
        self.events: list[Any] = []
        self.supervisor = Supervisor(opener=self._open, guarded=False)
        self.supervisor.bus.attach(self.events.append)
        self.reloader = OnTheSpot([etc], environ, on_report=self.reports.append)
        handlers = SimpleNamespace(apply=no_changes)
        notifier = SimpleNamespace(reloading=unheard, ready=unheard)
        self.reloading = DaemonReloading(
            self.reloader,
            self.supervisor,
            handlers=cast("Any", handlers),
            notifier=cast("Any", notifier),
            status_line=lambda: "",
            known_secrets=KnownSecrets(),
        )

    @asynccontextmanager
    async def _open(self, opening: Opening) -> AsyncGenerator[Wire]:
        target = opening.spec.target
        word = reveal(target.url).rpartition("/")[2] if isinstance(target, HttpTarget) else reveal(target.args[0])
        self.opened.append(word)
        async with self.server.open(opening) as wire:
            ends = {"exits": EXITED, "gone": REFUSED, "none": NONE}
            if word in ends:
                wire.finish(ends[word])
            if word == "hangs":
                await anyio.sleep_forever()
            yield wire

    def write(self, word: str, more: str = "") -> None:
        """Edit the entry."""
        self.file.write_text(self.form.replace("{word}", word).replace("{more}", more))
        self.file.chmod(0o644)

    async def edit(self, word: str, more: str = "") -> None:
        """Edit the entry, and have it applied."""
        self.write(word, more)
        await self.reloading.apply("watch")

    async def reach(self, state: State) -> None:
        """Wait for a state."""
        await self.supervisor.wait_until("x", lambda status: status.state is state)

    async def ready(self) -> None:
        """Wait until all is as it is wanted."""
        await self.supervisor.wait_until("x", lambda status: status.is_settled)

    @property
    def word(self) -> str:
        """The version that is wanted now."""
        spec = self.supervisor.spec("x")
        assert spec is not None
        return (
            reveal(spec.target.url).rpartition("/")[2] if isinstance(spec.target, HttpTarget) else reveal(spec.target.args[0])
        )

    @property
    def rejected(self) -> list[str]:
        """What is written and not in force."""
        return [str(problem) for problem in self.reloader.applied.rejected]

    @property
    def rolled_back(self) -> list[str]:
        """Why versions were taken back."""
        return [event.reason for event in self.events if isinstance(event, VersionRolledBack)]


@asynccontextmanager
async def at(etc: Path, environ: dict[str, str], form: str, word: str = "good") -> AsyncGenerator[Desk]:
    """A desk whose server has been started with that word."""
    desk = Desk(etc, environ, form)
    desk.write(word)
    with anyio.fail_after(100_000):
        async with desk.supervisor, anyio.create_task_group() as tasks:
            await desk.reloader.start()
            await desk.reloading.start()
            tasks.start_soon(desk.reloading.watch_trials)
            if word == "good":
                await desk.ready()
            yield desk
            tasks.cancel_scope.cancel()
    assert desk.server.opened == desk.server.closed


@pytest.fixture(params=[PROGRAM, WEB], ids=["program", "web"])
def form(request: pytest.FixtureRequest) -> str:
    """An entry of either kind."""
    text: str = request.param
    return text


@pytest.mark.parametrize("word", ["exits", "none", "gone", "hangs"])
async def test_what_does_not_become_ready_is_taken_back(etc: Path, environ: dict[str, str], form: str, word: str) -> None:
    """Within its time, or at once where nothing mends it; it says so, and it is not tried again."""
    async with at(etc, environ, form) as desk:
        began = anyio.current_time()
        await desk.edit(word)
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))
        took = anyio.current_time() - began
        tries = desk.opened.count(word)
        await anyio.sleep(10_000)

        assert took <= 15
        assert (word == "none") == (took < 1)
        assert "good" == desk.word
        assert tries == desk.opened.count(word)
        assert desk.opened.count("good") == (1 if form == WEB else 2)
        (line,) = desk.rejected
        assert f"{desk.file}:1: servers.x: rolled back at " in line
        assert desk.rolled_back[0] in line
        assert {"exits": "exited with code 3", "none": "no program", "gone": "refused", "hangs": "start_timeout"}[word] in line
        assert (False, "rollback", 1) == (desk.reports[-1].ok, desk.reports[-1].trigger, len(desk.reports[-1].rejected))
        assert State.READY is desk.supervisor.status("x").state


async def test_what_becomes_ready_stays(etc: Path, environ: dict[str, str], form: str) -> None:
    """And is what the next edit is measured by."""
    async with at(etc, environ, form) as desk:
        await desk.edit("better")
        await desk.ready()
        await desk.edit("none")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))

        assert "better" == desk.word


async def test_without_rollback_it_keeps_trying(etc: Path, environ: dict[str, str], form: str) -> None:
    """`rollback = false`, also where it is said while the version is on trial."""
    async with at(etc, environ, form) as desk:
        await desk.edit("exits", "rollback = false\n")
        await anyio.sleep(1_000)
        first = (desk.word, desk.rejected, desk.rolled_back)
        await desk.edit("good")
        await desk.ready()
        await desk.edit("exits")
        await anyio.sleep(5)
        await desk.edit("exits", "rollback = false\n")
        await anyio.sleep(1_000)

        assert ("exits", [], []) == first == (desk.word, desk.rejected, desk.rolled_back)


async def test_a_server_that_was_not_ready_has_nothing_to_return_to(etc: Path, environ: dict[str, str], form: str) -> None:
    """Neither one that never was, nor one that had gone away before the edit."""
    async with at(etc, environ, form, "exits") as desk:
        await desk.reach(State.BACKOFF)
        await desk.edit("none")
        await anyio.sleep(1_000)
        first = desk.word
        await desk.edit("good")
        await desk.ready()
        desk.server.end("probe", "silent")
        desk.server.end("probe", "silent")
        await desk.reach(State.BACKOFF)
        await desk.edit("none")
        await anyio.sleep(1_000)

        assert ("none", "none", []) == (first, desk.word, desk.rolled_back)


async def test_an_edit_during_the_trial_is_tried_in_its_place(etc: Path, environ: dict[str, str], form: str) -> None:
    """With the whole of its time, and against the version that was ready last; so is one that comes after the rollback."""
    async with at(etc, environ, form) as desk:
        await desk.edit("exits")
        await anyio.sleep(8)
        await desk.edit("gone")
        await anyio.sleep(8)
        middle = (desk.word, desk.rolled_back)
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))
        last = desk.word
        await desk.edit("better")
        await desk.ready()

        assert ("gone", []) == middle
        assert ("good", ["refused"]) == (last, [reason.partition(";")[0] for reason in desk.rolled_back])
        assert ("better", []) == (desk.word, desk.rejected)


async def test_the_former_version_written_again_ends_it(etc: Path, environ: dict[str, str], form: str) -> None:
    """There is nothing left to try, and over HTTP the session has never been another."""
    async with at(etc, environ, form) as desk:
        await desk.edit("exits")
        await desk.edit("good", "queue = 3\n")
        await desk.ready()
        await anyio.sleep(1_000)

        assert ("good", [], []) == (desk.word, desk.rejected, desk.rolled_back)
        assert (1 if form == WEB else 2) == desk.opened.count("good")


@pytest.mark.parametrize("order", [Order.STOP, Order.DISABLE])
async def test_an_operator_s_rest_wins(etc: Path, environ: dict[str, str], form: str, order: Order) -> None:
    """Nothing is started or taken back while it is at rest; when it is started, the trial goes on."""
    async with at(etc, environ, form) as desk:
        await desk.edit("exits")
        await anyio.sleep(1)
        await desk.supervisor.order("x", order, who="test")
        await anyio.sleep(1_000)
        resting = (desk.word, desk.supervisor.status("x").state.value, desk.rolled_back)
        await desk.supervisor.order("x", Order.START if order is Order.STOP else Order.ENABLE, who="test")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))

        assert ("exits", "stopped" if order is Order.STOP else "disabled", []) == resting
        assert "good" == desk.word


async def test_a_stop_while_the_former_one_comes_back_wins(etc: Path, environ: dict[str, str]) -> None:
    """The rollback has edited what is to run, and not that it is to."""
    async with at(etc, environ, PROGRAM) as desk:
        await desk.edit("none")
        with desk.supervisor.bus.subscribe() as events:
            async for event in events:
                if isinstance(event, VersionRolledBack):
                    break
        await desk.supervisor.order("x", Order.STOP, who="test")
        await anyio.sleep(1_000)

        assert ("good", State.STOPPED) == (desk.word, desk.supervisor.status("x").state)


async def test_a_removal_wins(etc: Path, environ: dict[str, str], form: str) -> None:
    """Be it during the trial, or while the former version comes back: it never comes back."""
    async with at(etc, environ, form) as desk:
        await desk.edit("exits")
        await anyio.sleep(1)
        desk.file.write_text("# none\n")
        await desk.reloading.apply("watch")
        tries = len(desk.opened)
        await anyio.sleep(1_000)
        first = (desk.supervisor.names(), desk.rejected, len(desk.opened) - tries)
        await desk.edit("good")
        await desk.ready()
        await desk.edit("none")
        with desk.supervisor.bus.subscribe() as events:
            async for event in events:
                if isinstance(event, VersionRolledBack):
                    break
        desk.file.write_text("# none\n")
        await desk.reloading.apply("watch")
        tries = len(desk.opened)
        await anyio.sleep(1_000)

        assert ([], [], 0) == first == (desk.supervisor.names(), desk.rejected, len(desk.opened) - tries)


async def test_what_is_edited_while_a_rollback_waits_for_its_turn_wins(etc: Path, environ: dict[str, str]) -> None:
    """A reload is under way when the verdict falls: what it applies is looked at first."""
    async with at(etc, environ, PROGRAM) as desk:
        await desk.edit("hangs")
        await desk.reach(State.STARTING)

        async def slow(specs: Iterable[ServerSpec]) -> list[PlannedChange]:
            await anyio.sleep(100)  # the reload holds the lock while the time of the version runs out
            return await desk.reloading.apply_servers(specs)

        desk.write("better")
        await desk.reloader.reload("watch", slow)
        await desk.ready()
        await anyio.sleep(1_000)

        assert ("better", [], []) == (desk.word, desk.rejected, desk.rolled_back)


async def test_an_operator_s_restart_tries_it_again(etc: Path, environ: dict[str, str], form: str) -> None:
    """Once more, against the same former version; it is good where what it lacked is there by then."""
    async with at(etc, environ, form) as desk:
        await desk.edit("none")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))
        await desk.supervisor.order("x", Order.RESTART, who="test")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and len(desk.rolled_back) == 2)
        again = (desk.word, desk.opened.count("none"))
        await desk.edit("none", "queue = 3\n")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and len(desk.rolled_back) == 3)

        assert ("good", 2) == again
        assert ("good", 3) == (desk.word, desk.opened.count("none"))


async def test_a_reload_that_waits_says_what_was_taken_back(etc: Path, environ: dict[str, str], form: str) -> None:
    """Not before it is known, and with what runs then; one that does not wait says until when it is on trial."""
    async with at(etc, environ, form) as desk:
        desk.write("gone")
        report = await desk.reloading.reload("command", wait=True, timeout=60)
        desk.write("exits")
        early = await desk.reloading.reload("command", wait=False, timeout=60)

        assert (False, True, [True]) == (report["ok"], report["ready"], [one["rolled_back"] for one in report["changes"]])
        assert ["x"] == [one["server"] for one in report["rejected"]]
        assert [10.0] == [one["trial"]["within"] for one in early["changes"]]
        assert (True, [False]) == (early["ok"], [one["rolled_back"] for one in early["changes"]])


async def test_a_broken_entry_keeps_the_trial_and_the_hold(etc: Path, environ: dict[str, str], form: str) -> None:
    """What is in force stays in force, and what was taken back does not come back because of it."""
    async with at(etc, environ, form) as desk:
        await desk.edit("exits")
        await desk.edit("exits", "queue = []\n")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))
        held = list(desk.rejected)
        await desk.edit("exits", "queue = false\n")
        await anyio.sleep(1_000)

        assert (2, "good") == (len(held), desk.word)
        assert 2 == len(desk.rejected)
        assert 1 == len(desk.rolled_back)


async def test_what_is_edited_in_place_is_no_trial(etc: Path, environ: dict[str, str], form: str) -> None:
    """And belongs to the version that is returned to."""
    async with at(etc, environ, form) as desk:
        await desk.edit("good", "queue = 7\n")
        await desk.edit("none", "queue = 8\n")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))
        spec = desk.supervisor.spec("x")

        assert spec is not None
        assert ("good", 7) == (desk.word, spec.queue)


async def test_the_reason_says_that_the_former_one_comes_back(etc: Path, environ: dict[str, str]) -> None:
    """Where a process has to be started again for it."""
    async with at(etc, environ, PROGRAM) as desk:
        await desk.edit("none")
        await desk.supervisor.wait_until("x", lambda status: status.is_settled and bool(desk.rolled_back))

        assert any(
            "rolled back to the version of " in event.reason for event in desk.events if isinstance(event, ServerStateChanged)
        )

"""The reloader: one reload at a time, last good state kept, honest reports."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import anyio
import pytest

from mcpvisor.daemon.config import deciding
from mcpvisor.daemon.config.look import Fingerprint
from mcpvisor.daemon.config.reload import NoConfiguration, Reloader, ReloadReport
from mcpvisor.daemon.handlers.changes import HandlerChange, changes_between
from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec, plan_changes

pytestmark = pytest.mark.anyio

Write = Callable[[Path, str], Path]

ONE = '[servers.x]\ncommand = "true"\n'


class Goal:
    """Stands for the supervisor: keeps the specs, says what changed."""

    def __init__(self) -> None:
        self.specs: dict[str, ServerSpec] = {}
        self.inside = 0
        self.most_inside = 0

    async def apply(self, specs: Iterable[ServerSpec]) -> list[PlannedChange]:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await anyio.lowlevel.checkpoint()
        new = {spec.name: spec for spec in specs}
        changes = plan_changes(self.specs, new)
        self.specs = new
        self.inside -= 1
        return changes


async def _started(etc: Path, environ: dict[str, str], **more: object) -> tuple[Reloader, Goal]:
    reloader, goal = Reloader([etc], environ, **more), Goal()  # type: ignore[arg-type]  # passed on as they are
    await goal.apply((await reloader.start()).specs.values())
    return reloader, goal


async def test_a_reload_names_what_changes(etc: Path, environ: dict[str, str], write: Write) -> None:
    """The report has one line for each server that is not simply kept, with the fields that changed."""
    write(etc / "mcpvisor.toml", ONE + '[servers.y]\ncommand = "true"\n')
    reloader, goal = await _started(etc, environ)
    write(etc / "mcpvisor.toml", ONE + 'queue = 3\n[servers.z]\ncommand = "true"\n')

    planned = await reloader.preview()
    report = await reloader.reload("command", goal.apply)

    assert (
        PlannedChange("x", Change.UPDATE, ("queue",)),
        PlannedChange("y", Change.STOP),
        PlannedChange("z", Change.START),
    ) == report.changes
    assert (True, "command", {"x", "z"}) == (report.ok, report.trigger, set(planned.specs))
    assert (await reloader.reload("command", goal.apply)).changes == ()
    assert report.as_json()["changes"][0] == {"server": "x", "change": "update", "fields": ["queue"]}


async def test_a_reload_changes_handlers_too(etc: Path, environ: dict[str, str], write: Write) -> None:
    """Handlers and routes are handed on after the servers, and what happens to them is in the report."""
    log = '[handlers.a]\ntype = "log"\n'
    write(etc / "mcpvisor.toml", ONE + log)
    reloader, goal = await _started(etc, environ)
    old = dict(reloader.applied.handlers)
    write(etc / "mcpvisor.toml", ONE + log + 'queue = 3\n[handlers.b]\ntype = "log"\n[[routes]]\nhandler = "b"\n')
    given: list[Routing] = []

    def apply_handlers(specs: Mapping[str, HandlerSpec], routing: Routing) -> tuple[HandlerChange, ...]:
        given.append(routing)
        return changes_between(old, specs)

    report = await reloader.reload("command", goal.apply, apply_handlers)

    assert ((), [("b",)], True) == (report.changes, [r.handlers for r in given[0].routes], report.routes_changed)
    assert [
        {"handler": "a", "change": "restart", "fields": ["queue"]},
        {"handler": "b", "change": "start", "fields": []},
    ] == report.as_json()["handlers"]
    assert not (await reloader.reload("command", goal.apply)).routes_changed


async def test_a_rejected_entry_is_reported(
    etc: Path, environ: dict[str, str], write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad entry is in the report, in the log and in what `status` shows, until it is mended."""
    reports: list[ReloadReport] = []
    write(etc / "mcpvisor.toml", ONE)
    reloader, goal = await _started(etc, environ, on_report=reports.append)
    write(etc / "mcpvisor.toml", ONE.replace("command", "comand"))

    with caplog.at_level(logging.ERROR):
        report = await reloader.reload("signal", goal.apply)

    where = f"{etc}/mcpvisor.toml:1:1"
    assert (report.ok, [r.trigger for r in reports], report.changes) == (False, ["start", "signal"], ())
    assert (where, True) == (reloader.applied.rejected[0].rejection()["where"], where in caplog.text)
    assert "the last good version keeps running" in reloader.applied.rejected[0].rejection()["error"]
    await reloader.reload("signal", goal.apply)
    assert 1 == caplog.text.count(where), "what the log has said is not said again at a reload of something else"
    write(etc / "mcpvisor.toml", ONE)
    assert (
        (await reloader.reload("signal", goal.apply)).ok,
        [one.rejection() for one in reloader.applied.rejected],
    ) == (True, [])


async def test_before_the_start(etc: Path, environ: dict[str, str]) -> None:
    """A reloader that has read nothing yet knows of no files and no due time, and refuses to name a state."""
    reloader = Reloader([etc], environ)

    assert (Fingerprint(), None) == (reloader.contents, reloader.recheck_at)
    with pytest.raises(RuntimeError, match=r"before start"):
        _ = reloader.applied


async def test_no_configuration_at_the_start(etc: Path, environ: dict[str, str], write: Write) -> None:
    """A main file that cannot be used is an error that holds every problem."""
    write(etc / "mcpvisor.toml", "[")

    with pytest.raises(NoConfiguration, match=r"mcpvisor.toml:1") as caught:
        await Reloader([etc], environ).start()
    assert len(caught.value.problems) == 1


async def test_reloads_wait_for_each_other(etc: Path, environ: dict[str, str], write: Write) -> None:
    """However many ask at once, one reload runs at a time and each gets its report."""
    write(etc / "mcpvisor.toml", ONE)
    reloader, goal = await _started(etc, environ)
    reports: list[ReloadReport] = []

    async def one() -> None:
        reports.append(await reloader.reload("command", goal.apply))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(one)

    assert (len(reports), goal.most_inside) == (10, 1)


async def test_a_read_that_hangs_is_given_up(etc: Path, environ: dict[str, str], write: Write, tmp_path: Path) -> None:
    """A file system that does not answer costs one reload its time, and no server anything; the next reload is served."""
    write(etc / "mcpvisor.toml", ONE)
    reloader, goal = await _started(etc, environ, read_within=0.2)
    held = reloader._load
    gate, closed = os.pipe()

    def hang(**more: object) -> object:
        os.read(gate, 1)
        return held(**more)  # type: ignore[arg-type]  # passed on as they are

    reloader._load = hang  # type: ignore[assignment]  # stands for a system call that does not return
    with anyio.fail_after(20):
        report = await reloader.reload("watch", goal.apply)
        preview, shown = await reloader.preview(), reloader.applied.rejected
    reloader._load = held
    reloader._read_within = 5.0
    after = await reloader.reload("watch", goal.apply)
    os.close(closed)
    os.close(gate)

    assert (report.ok, report.rejected[0].message) == (False, "reading the files took longer than 0.2 s")
    assert shown == preview.rejected == report.rejected, "who asks for the status, or a plan, hears of it"
    assert shown[0].since is not None
    assert (True, {"x"}, ()) == (after.ok, set(goal.specs), reloader.applied.rejected)


async def test_a_failed_apply_is_tried_again(etc: Path, environ: dict[str, str], write: Write) -> None:
    """What could not be applied is not taken as being in force."""
    write(etc / "mcpvisor.toml", ONE)
    reloader, goal = await _started(etc, environ)
    write(etc / "mcpvisor.toml", ONE + '[servers.y]\ncommand = "true"\n')

    async def refuse(specs: Iterable[ServerSpec]) -> list[PlannedChange]:
        raise OSError("no")

    with pytest.raises(OSError, match=r"no"):
        await reloader.reload("command", refuse)

    assert {"x"} == set(reloader.applied.specs)
    assert (PlannedChange("y", Change.START),) == (await reloader.reload("command", goal.apply)).changes


@pytest.mark.parametrize("trigger", ["command", "signal", "watch"])
async def test_whoever_orders_a_reload_a_file_that_is_gone_is_waited_for(
    etc: Path,
    environ: dict[str, str],
    write: Write,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    trigger: str,
) -> None:
    """A program that replaces files may be in the midst of it; what is to come can be seen, and the log tells the removal."""
    write(etc / "mcpvisor.toml", ONE)
    file = write(etc / "servers.d" / "y.toml", '[servers.y]\ncommand = "true"\n')
    reloader, goal = await _started(etc, environ)
    file.unlink()
    preview = await reloader.preview()
    expected = reloader.removals(preview)
    await reloader.reload(trigger, goal.apply)
    waited, told = set(goal.specs), f"configuration: {file} is gone, and with it y"
    early = told in caplog.text
    monkeypatch.setattr(deciding, "ABSENCE", 0.0)  # as if its time was over
    await reloader.reload("watch", goal.apply)

    assert ({"x"}, [("y", file)]) == (set(preview.specs), [(one.server, one.file) for one in expected])
    assert ({"x", "y"}, {"x"}) == (waited, set(goal.specs))
    assert (False, True) == (early, told in caplog.text)


async def test_settings_that_wait_for_a_start_are_logged_once(
    etc: Path, environ: dict[str, str], write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has edited them, and by whatever reload that was read."""
    write(etc / "mcpvisor.toml", ONE)
    reloader, goal = await _started(etc, environ)
    write(etc / "mcpvisor.toml", ONE + '[gateway]\nauth = "open"\n')
    for _ in range(2):
        await reloader.reload("watch", goal.apply)

    assert 1 == caplog.text.count("read when the daemon starts, and another by now: gateway.auth")

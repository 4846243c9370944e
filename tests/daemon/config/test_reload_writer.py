"""Loader, decision and watcher together, against a program that edits a file in all the ways editors and tools do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from mcpvisor.daemon.config.reload import Reloader, ReloadReport
from mcpvisor.daemon.config.watch import ConfigWatcher
from mcpvisor.supervisor.spec import Change, PlannedChange, ServerSpec, plan_changes

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STEPS = "in-place,rename,touch,reformat,half,recreate,broken,fixed,disable,enable,empty"


class Goal:
    """Stands for the supervisor: remembers each set of servers that it was to run, and what happened to `keep`."""

    def __init__(self) -> None:
        self.specs: dict[str, ServerSpec] = {}
        self.passed_through: list[list[str]] = []
        self.changes: list[PlannedChange] = []

    async def apply(self, specs: Iterable[ServerSpec]) -> list[PlannedChange]:
        new = {spec.name: spec for spec in specs}
        changes = [change for change in plan_changes(self.specs, new) if change.change is not Change.KEEP]
        self.specs = new
        self.changes += changes
        running = sorted(name for name, spec in new.items() if spec.enabled)
        if self.passed_through[-1:] != [running]:
            self.passed_through.append(running)
        return changes


async def test_every_way_of_writing(etc: Path, environ: dict[str, str], servers: Path) -> None:
    """Each step ends in the set it expects and passes through no other; only what was edited changes; errors show."""
    file, goal, reports = etc / "mcp.json", Goal(), list[ReloadReport]()
    command = [sys.executable, str(servers / "reload_writer.py"), str(file), "--pause", "0.8", "--only", STEPS]
    reloader = Reloader([file], environ, on_report=reports.append)

    async def reload() -> None:
        await reloader.reload("watch", goal.apply)

    expected = [["change", "keep"]]
    with anyio.fail_after(40):
        async with await anyio.open_process(command) as process, anyio.create_task_group() as group:
            assert process.stdout is not None
            lines = BufferedByteReceiveStream(process.stdout)
            assert (await lines.receive_until(b"\n", 1000)).startswith(b"READY")
            file.chmod(0o644)
            watcher = ConfigWatcher(
                [file],
                reload,
                recheck_at=lambda: reloader.recheck_at,
                seen=lambda: reloader.contents,
                gone=reloader.note_gone,
            )
            await goal.apply((await reloader.start()).specs.values())
            await group.start(watcher.run)
            for _ in STEPS.split(","):
                running = json.loads(await lines.receive_until(b"\n", 1000))["expect_running"]
                if expected[-1] != running:
                    expected.append(running)
            await process.wait()
            group.cancel_scope.cancel()

    assert expected == goal.passed_through
    assert {"change", "extra"} == {change.server for change in goal.changes[2:]}
    assert not reports[-1].ok

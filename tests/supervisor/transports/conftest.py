"""Owns the rig for wires over real processes: hooks that keep what they are told, and a wire that is run."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.stopwatch import Stopwatch

from mcpvisor.supervisor.open_calls import Origin
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.spec import StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.exchange import PeerRefusal
from mcpvisor.supervisor.transports.stdio import StdioWire, open_stdio

QUICK = StopGraces(stdin=0.3, term=0.3)
MEBI = 1024 * 1024


@dataclass
class Told:
    """All hooks of a wire and of its process; keeps what it is told. `instance` marks every process of the test."""

    instance: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex}")
    notifications: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    noises: list[bytes] = field(default_factory=list)
    dropped_noise: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)
    stderr_lines: list[str] = field(default_factory=list)
    stderr_dropped: int = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def notified(self, method: str, params: dict[str, Any], *, to_caller: bool = False, private: bool = False) -> None:
        self.notifications.append((method, params))
        self.changed.set()

    def noise_dropped(self, lines: int) -> None:
        self.dropped_noise += lines

    def noise(self, excerpt: bytes) -> None:
        self.noises.append(excerpt)

    def refused(self, reason: str, detail: str) -> None:
        self.refusals.append((reason, detail))

    async def answer(self, method: str, params: dict[str, Any], origin: Origin) -> dict[str, Any]:
        if method == "ping":
            return {}
        raise PeerRefusal(-32601, f"not supported: {method}")

    def process_started(self, pid: int) -> None:
        self.started.append(pid)

    def process_ended(self, pid: int, **how: Any) -> None:
        self.ended.append({"pid": pid, **how})

    def stderr(self, lines: tuple[str, ...], dropped: int) -> None:
        self.stderr_lines += lines
        self.stderr_dropped += dropped
        self.changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so; woken by every notification and line."""
        while not is_so():
            self.changed = anyio.Event()
            await self.changed.wait()

    def living(self) -> list[int]:
        """The processes of this test that still run."""
        return find_marked(self.instance)


Opened = Callable[..., AbstractAsyncContextManager[StdioWire]]


@pytest.fixture
def told() -> Any:
    """The hooks of the test; whatever a failed test has left behind is killed."""
    told = Told()
    yield told
    for pid in told.living():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def opened(told: Told, servers: Path) -> Opened:
    """Opens a wire to a puppet server and runs it: `opened("stdio_banner.py", "glued")`."""

    generations = itertools.count(1)

    @asynccontextmanager
    async def enter(script: str, *args: str, graces: StopGraces = QUICK, **options: Any) -> AsyncIterator[StdioWire]:
        target = StdioLaunch(command=sys.executable, args=(str(servers / script), *args), env=options.pop("env", ()))
        async with (
            open_stdio(
                target,
                told,
                options.pop("ring", None) or StderrRing(told.stderr),
                marker=Marker(told.instance, "puppet", next(generations)),
                graces=graces,
                max_message=options.pop("max_message", 32 * MEBI),
                processes=told,
            ) as wire,
            anyio.create_task_group() as tasks,
        ):
            await tasks.start(wire.run, None, None)
            yield wire
            tasks.cancel_scope.cancel()

    return enter


@pytest.fixture
def handshake() -> Callable[[StdioWire], Any]:
    """The handshake of the older era, by hand."""

    async def shake(wire: StdioWire) -> dict[str, Any]:
        info = {"name": "test", "version": "1"}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        result = await wire.request("initialize", asked, cancellable=False)
        await wire.notify("notifications/initialized", None)
        return result

    return shake


class LagMeter:
    """How late the loop was at worst, measured by a task that wants to run every 5 ms; what else runs does not count."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def run(self) -> None:
        watch = Stopwatch()
        while True:
            watch.start()
            await anyio.sleep(0.005)
            self.worst = max(self.worst, watch.seconds() - 0.005)


@pytest.fixture
def lag() -> LagMeter:
    gc.collect()  # what other tests have left is not what is measured
    return LagMeter()

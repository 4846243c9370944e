"""Owns what the tests of the state store share: a store in this process, and one in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpvisor.daemon.state.kept import Limits, StoreHealth
from mcpvisor.daemon.state.store import StateStore

RIG = Path(__file__).with_name("rig.py")


class Opened(StateStore):
    """A store that remembers what it told, and can be waited for."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        super().__init__(path, limits)
        self.told: list[StoreHealth] = []
        self.emptied: list[tuple[Path | None, str]] = []
        self._changed = anyio.Event()
        self.on_health = self._tell
        self.on_emptied = self._tell_emptied

    def _tell(self, health: StoreHealth) -> None:
        self.told.append(health)
        self._changed.set()
        self._changed = anyio.Event()

    def _tell_emptied(self, aside: Path | None, reason: str) -> None:
        self.emptied.append((aside, reason))
        self.rewrite(self.past)

    async def until(self, *, up: bool) -> str:
        """The reason, once the store is up or down."""
        with anyio.fail_after(20):
            while self.health.up is not up:
                await self._changed.wait()
        return self.health.reason


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Any]:
    """Opens stores on the same file, one after another: `async with opened() as store`."""

    @asynccontextmanager
    async def opened(limits: Limits | None = None) -> AsyncIterator[Opened]:
        store = Opened(tmp_path / "state.db", limits)
        await store.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.watch)
            yield store
            tasks.cancel_scope.cancel()
        await store.close()

    return opened


class Rig:
    """A store in a process of its own, in a mount namespace of its own where `prepare` is given."""

    def __init__(self, folder: Path, prepare: str = "") -> None:
        inner = [sys.executable, str(RIG), str(folder)]
        outer = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{prepare} && exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*(outer if prepare else []), *inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder.parent
        )
        self.began = self._answer()

    def ask(self, *words: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the rig ended with {self.process.wait(20)}"
        return json.loads(line)

    def until(self, *, up: bool, seconds: float = 30) -> str:
        deadline = time.monotonic() + seconds
        while (health := self.ask("health"))["up"] is not up:
            assert time.monotonic() < deadline, health
            time.sleep(0.05)
        return health["reason"]

    def mount(self, *arguments: str) -> None:
        """Change a mount in the namespace of the rig."""
        subprocess.run(["nsenter", "--target", str(self.process.pid), "--mount", "mount", *arguments], check=True)

    def end(self) -> int:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Starts stores as programs on one folder; whatever a test leaves of them is killed."""
    running: list[Rig] = []

    def start(prepare: str = "") -> Rig:
        running.append(Rig(tmp_path / "state", prepare.format(folder=tmp_path / "state")))
        return running[-1]

    (tmp_path / "state").mkdir(mode=0o700)
    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait(20)
        for pipe in (one.process.stdin, one.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

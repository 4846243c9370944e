"""Owns a watcher under test: what it has called, and when it is at rest again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcpvisor.daemon.config.look import Fingerprint, fingerprint
from mcpvisor.daemon.config.watch import ConfigWatcher

QUIET = 0.08


class Watched(ConfigWatcher):
    """A watcher that counts its calls and its rounds, and lets a test wait for either.

    Each call reads the files, as a reload does, unless `is_reading` is unset.
    """

    def __init__(self, *paths: Path, secrets: Sequence[Path] = (), **more: Any) -> None:
        options: dict[str, Any] = {"quiet": QUIET, "interval": 60.0, "gone": self._note, **more}
        super().__init__(paths, self._reload, seen=lambda: self.seen, **options)
        self.secrets = list(secrets)
        self.read()
        self.calls = 0
        """As of the last time at rest."""
        self.rounds = 0
        self.is_reading = True
        self._called = 0
        self.gone: list[Mapping[Path, float]] = []
        self.on_change: Callable[[], object] = lambda: None
        self._moved = anyio.Event()

    def read(self) -> None:
        """Have the files read, as anybody may who asks for a reload."""
        self.seen: Fingerprint = fingerprint(self._paths, self.secrets)

    async def until(self, calls: int) -> None:
        """Wait for so many calls in all, and until the watcher is at rest after the last."""
        await self._wait(lambda: self.calls >= calls)
        assert calls == self.calls

    async def until_at_rest(self) -> None:
        """Wait until it has looked for the first time."""
        await self._wait(lambda: self.rounds > 0)

    async def until_looked(self) -> None:
        """Wait until it has looked once more, and is at rest again."""
        rounds = self.rounds
        await self._wait(lambda: self.rounds > rounds)

    async def _wait(self, look: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not look():
                await self._moved.wait()

    async def _reload(self) -> None:
        self._called += 1
        if self.is_reading:
            self.read()
        self.on_change()

    def _note(self, since: Mapping[Path, float]) -> None:
        self.gone.append(since)

    async def _stir(self) -> None:
        self.calls = self._called
        self.rounds += 1
        self._moved.set()
        self._moved = anyio.Event()
        await super()._stir()


@asynccontextmanager
async def watching(*paths: Path, **more: Any) -> AsyncGenerator[Watched]:
    """A watcher that runs, and is at rest."""
    watched = Watched(*paths, **more)
    async with started(watched):
        yield watched


@asynccontextmanager
async def started(watched: Watched) -> AsyncGenerator[None]:
    """Run a watcher, and go on when it is at rest."""
    async with anyio.create_task_group() as group:
        await group.start(watched.run)
        await watched.until_at_rest()
        yield
        group.cancel_scope.cancel()


async def edit(watched: Watched, file: Path) -> None:
    """Prove that the watcher still sees, and that nothing else comes: one real edit is exactly one more call."""
    calls = watched.calls
    file.write_text(f"# {calls} {watched.rounds}\n")
    await watched.until(calls + 1)

"""Owns the stores that a fault run is repeated over: whatever becomes of what is kept, all else must hold."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import anyio

from mcpvisor.daemon.state.kept import Limits
from mcpvisor.daemon.state.schema import MIGRATIONS, VERSION
from mcpvisor.daemon.state.store import StateStore
from mcpvisor.supervisor.store import MemoryStore, Store

Making = Callable[[Path], AbstractAsyncContextManager[Store]]
"""Makes a store in a folder of its own, for as long as its context lasts."""

FILE = "state.db"


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Store]:
    """What a library has: nothing outlives the process."""
    yield MemoryStore()


@asynccontextmanager
async def disk(folder: Path) -> AsyncIterator[Store]:
    """A sound file on a sound disk, which takes all of it."""
    async with opened(folder / FILE) as store:
        yield store
        assert store.health.up, store.health.reason
        assert await store.flush()


@asynccontextmanager
async def corrupt(folder: Path) -> AsyncIterator[Store]:
    """A file that is no database: another one is begun beside it."""
    (folder / FILE).write_bytes(b"no database at all" * 500)
    async with disk(folder) as store:
        yield store


@asynccontextmanager
async def older(folder: Path) -> AsyncIterator[Store]:
    """A file as the first version left it: it is brought up."""
    made(folder / FILE, 1, 1001)
    async with disk(folder) as store:
        yield store


@asynccontextmanager
async def newer(folder: Path) -> AsyncIterator[Store]:
    """A file as the version after this one may leave it: it is used as it is."""
    made(folder / FILE, len(MIGRATIONS), VERSION + 1)
    async with disk(folder) as store:
        yield store


@asynccontextmanager
async def wedged(folder: Path) -> AsyncIterator[Store]:
    """A disk on which every write hangs from the first moment to the last."""
    async with disk(folder):
        pass
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with opened(folder / FILE) as store:
            yield store
            assert not store.health.up
            other.execute("ROLLBACK")


@asynccontextmanager
async def unwritable(folder: Path) -> AsyncIterator[Store]:
    """A place where no file can be made, whoever asks."""
    async with opened(Path("/proc/self") / FILE) as store:
        yield store
        assert not store.health.up


@asynccontextmanager
async def full(folder: Path) -> AsyncIterator[Store]:
    """A disk on which others have taken all the room."""
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs") as there:
        with (there / "others").open("wb", buffering=0) as others, suppress(OSError):
            while others.write(b"x" * 4096):
                pass
        async with opened(there / FILE) as store:
            yield store
            assert "there is no room left for it" in store.health.reason


@asynccontextmanager
async def read_only(folder: Path) -> AsyncIterator[Store]:
    """A disk that can only be read, with what was kept before."""
    async with disk(folder):
        pass
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs") as there:
        shutil.copyfile(folder / FILE, there / FILE)
        subprocess.run(["mount", "-o", "remount,ro", str(there)], check=True)
        async with opened(there / FILE) as store:
            yield store
            assert "read-only" in store.health.reason.lower()


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """Another disk at a folder. Not in a name space of its own: SQLite would follow the way into it back out."""
    folder.mkdir()
    subprocess.run(["mount", *options, str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def made(path: Path, steps: int, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (statement for step in MIGRATIONS[:steps] for statement in step):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[StateStore]:
    store = StateStore(path, Limits(slow_write=1.0))
    await store.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.watch)
        yield store
        tasks.cancel_scope.cancel()
    await store.close()


STORES: dict[str, Making] = {one.__name__: one for one in (memory, disk, corrupt, older, newer, wedged, unwritable)}
MOUNTED: dict[str, Making] = {one.__name__: one for one in (full, read_only)}
"""Those that only root can make."""

"""Owns the stores that a fault run is repeated over: whatever becomes of what is kept, all else must hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from mcpvisor.supervisor.store import MemoryStore, Store

Making = Callable[[Path], AbstractAsyncContextManager[Store]]
"""Makes a store in a folder of its own, for as long as its context lasts."""


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[Store]:
    """What a library has: nothing outlives the process."""
    yield MemoryStore()


STORES: dict[str, Making] = {"memory": memory}

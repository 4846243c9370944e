"""Owns that forms are read and answers checked one by one: each takes a while, and servers may send many at one time."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio


class Pace:
    """One step at a time, whoever has many to do; after each the others have the loop for as long as it has taken."""

    def __init__(self) -> None:
        self._turn = anyio.Lock()
        self._free_at = 0.0

    @asynccontextmanager
    async def step(self) -> AsyncGenerator[None]:
        """Wait for the turn of a step, which is what is done within the context, without waiting for anything else."""
        async with self._turn:
            await anyio.sleep_until(self._free_at)
            began = time.perf_counter()
            try:
                yield
            finally:
                self._free_at = anyio.current_time() + time.perf_counter() - began

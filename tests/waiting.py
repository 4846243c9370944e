"""Owns the wait for what gives no event: looking again until it is so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio


async def until(look: Callable[[], Any], seconds: float = 30.0) -> None:
    """Return once it is so. Raises TimeoutError when that takes longer than `seconds`, which only end a test that hangs."""
    with anyio.fail_after(seconds):
        while not look():
            await anyio.sleep(0.01)

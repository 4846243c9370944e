"""Owns the regular look at what the processes of all servers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.sampling import Usage, sample

INTERVAL: Final = 15.0
"""Seconds between two looks."""

Running = Callable[[], Mapping[Marker, int]]
"""The pid of each running process of a server, under its mark."""

Sampled = Callable[[Marker, Usage], None]
"""Takes what the processes under a mark use together."""


async def sample_usage(instance: str, running: Running, sampled: Sampled, *, interval: float = INTERVAL) -> None:
    """Tell what each server uses, every `interval` seconds, until cancelled. The pass over /proc is made in a worker thread."""
    while True:
        await anyio.sleep(interval)
        marked = running()
        pids = {marker.label: pid for marker, pid in marked.items()}
        usages = await anyio.to_thread.run_sync(partial(sample, instance, pids)) if pids else {}
        for marker in marked:
            usage = usages.get(marker.label)
            if usage is not None:
                sampled(marker, usage)

"""Owns the regular look at what the processes of all servers use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.events import ProcessesSampled
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.sampling import sample

INTERVAL: Final = 15.0
"""Seconds between two looks."""

Running = Callable[[], Mapping[Marker, int]]
"""The pid of the running process under the mark of each server that has one."""


async def sample_usage(bus: EventBus, instance: str, running: Running) -> None:
    """Tell what each server uses, every 15 s, until cancelled. The pass over /proc is made in a worker thread."""
    while True:
        await anyio.sleep(INTERVAL)
        marked = running()
        pids = {marker.label: pid for marker, pid in marked.items()}
        usages = await anyio.to_thread.run_sync(partial(sample, instance, pids)) if pids else {}
        for marker in marked:
            usage = usages.get(marker.label)
            if usage is not None:
                bus.emit(
                    ProcessesSampled(
                        at=time.time(),
                        server=marker.server,
                        processes=usage.processes,
                        resident_bytes=usage.resident_bytes,
                        cpu_seconds=usage.cpu_seconds,
                    )
                )

"""Owns the measuring of time beside other programs: what a thread waits for a processor is the machine's doing, not its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class Stopwatch:
    """Measures what some threads need together, without the time that they waited for a CPU: other programs run here too."""

    def __init__(self, *threads: int) -> None:
        """`threads` are their numbers; without any it is the one that measures."""
        self._threads = threads or (threading.get_native_id(),)
        self._began = self._queued = 0.0

    def start(self) -> None:
        """Measure from now on."""
        self._queued = self._sum()
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Since `start`."""
        took = time.perf_counter() - self._began
        return max(0.0, took - (self._sum() - self._queued))

    def _sum(self) -> float:
        return sum(queued_for_a_cpu(thread) for thread in self._threads)


def queued_for_a_cpu(thread: int) -> float:
    """Seconds for which a thread was ready to run and had no CPU."""
    return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1]) / 1e9

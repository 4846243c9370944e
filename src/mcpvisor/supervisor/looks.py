"""Owns how often the supervisor looks at what tells nobody by itself: the memory of processes, and the clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcpvisor.supervisor.clocks import Reading, read_clocks
from mcpvisor.supervisor.usage import INTERVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Seconds between two looks, and where the clocks are read."""

    usage_interval: float = INTERVAL
    clock_interval: float = 2.0
    clocks: Callable[[], Reading] = read_clocks


LOOKS: Final = Looks()

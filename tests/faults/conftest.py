"""Owns the means of a fault run: its pace, its number of faults and its seed."""

from __future__ import annotations

import faulthandler
import os
import random

import pytest
from tests.faults.pace import Pace

SECONDS = 0.4
"""What a fault may take, of all twenty servers at one time."""


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """All that is faster in a fault run than in life; see the class for each value."""
    pace = Pace()
    pace.apply(monkeypatch)
    return pace


@pytest.fixture
def faults() -> int:
    """How many faults: `MCPVISOR_FAULTS`, or 1,000. The time that a test may take grows with them."""
    count = int(os.environ.get("MCPVISOR_FAULTS") or 1000)
    faulthandler.dump_traceback_later(max(300.0, count * SECONDS), exit=True)  # in place of the one that pytest has set
    return count


@pytest.fixture
def seed() -> int:
    """The number that a run follows from: `MCPVISOR_FAULT_SEED`, or a new one; shown with any failure."""
    seed = int(os.environ.get("MCPVISOR_FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"MCPVISOR_FAULT_SEED={seed}")
    return seed

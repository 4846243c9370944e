"""What the daemon costs: how soon many servers are ready, and how much memory it takes to have them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.e2e.running import RunningDaemon, puppet

pytestmark = pytest.mark.alone

SERVERS = 50
READY_SECONDS = 3.0
MEMORY = 25 * 1024 * 1024


def test_fifty_servers_are_ready_in_three_seconds_and_cost_little_memory(
    daemon: Callable[..., RunningDaemon], servers: Path
) -> None:
    """From the start of the daemon's process on; its memory is at most 25 MB above that of its imports alone."""
    running = daemon("".join(puppet(f"s{number}", servers / "lite.py") for number in range(SERVERS)))
    servers_told = running.until_ready()["servers"]
    took = max(one["since"] for one in servers_told) - psutil.Process(running.pid).create_time()
    memory = psutil.Process(running.pid).memory_info().rss
    script = "import mcpvisor.daemon.run, psutil; print(psutil.Process().memory_info().rss)"
    imports = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

    assert ["ready"] * SERVERS == [one["state"] for one in servers_told]
    assert memory - imports <= MEMORY
    print(f"{SERVERS} servers were ready after {took:.2f} s")
    assert 0 < took < READY_SECONDS

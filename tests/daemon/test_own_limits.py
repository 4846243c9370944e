"""The limits that the daemon sets for its own process."""

from __future__ import annotations

import subprocess
import sys

LARGE_MESSAGES = """
import resource
from mcpvisor.daemon.own_limits import give_back_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

assert give_back_memory()
before, kept = resident(), []
bytes(30_000_000)
for _ in range(3):
    large = []
    for number in range(20):
        large.append(b"x" * (20_000_000 + number))
        kept += [bytearray(2000) for _ in range(50)]  # what stays, behind what goes
    del large
print(resident() - before)
"""


def test_the_memory_of_large_messages_is_given_back():
    """Whatever small stays behind them, nothing of four hundred megabytes that were let go of is kept."""
    ran = subprocess.run([sys.executable, "-c", LARGE_MESSAGES], capture_output=True, text=True, timeout=60, check=True)

    assert int(ran.stdout) < 50_000_000

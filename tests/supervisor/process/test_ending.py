"""Ending processes where orphans come to us: no zombie may stay, and nobody else's child may be taken."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PARENT = """
import ctypes, json, os, signal, subprocess, sys
from pathlib import Path
import anyio
from mcpvisor.supervisor.process.ending import end_process
from mcpvisor.supervisor.process.environment import Marker, child_environment
from mcpvisor.supervisor.process.launch import launch
from mcpvisor.supervisor.spec import StdioLaunch, StopGraces

assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER: as the init of a container has it
marker = Marker("test-subreaper-%d" % os.getpid(), "s", 1)
script = "sleep 60 & setsid sleep 60 & sleep 0.1; kill -9 $$"
spec = StdioLaunch(command="sh", args=("-c", script))

async def main():
    others = subprocess.Popen(["false"])
    for _ in range(5):
        process = launch(spec, child_environment(spec, marker, os.environ))
        await process.wait()
        await end_process(process, marker, StopGraces())
    children = Path("/proc/self/task/%d/children" % os.getpid()).read_text().split()
    print(json.dumps({"others": others.wait(), "left": [c for c in children if c != str(others.pid)]}))

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_orphans_that_come_to_us_are_reaped(backend):
    """As init of a container no zombie of a server's tree is left, and the exit status of another child is not stolen."""
    run = subprocess.run([sys.executable, "-c", PARENT, backend], capture_output=True, text=True, timeout=90)

    assert "" == run.stderr
    assert {"others": 1, "left": []} == json.loads(run.stdout)

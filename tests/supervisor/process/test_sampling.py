"""What servers' processes use."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

from mcpvisor.supervisor.process.sampling import Usage, sample
from mcpvisor.supervisor.process.sweep import INSTANCE_VARIABLE, SERVER_VARIABLE, kill_marked


def test_tree_is_sampled_with_what_has_left_its_session():
    """A server's processes are counted whether in its session or only under its mark; another server's are not."""
    instance = f"test-{uuid.uuid4().hex}"
    script = (
        "import subprocess, time\n"
        "here = subprocess.Popen(['sleep', '60'], env={})\n"
        "away = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "end = time.process_time() + 0.1\n"
        "while time.process_time() < end: pass\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    environment = {INSTANCE_VARIABLE: instance, SERVER_VARIABLE: "a:1", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, start_new_session=True, stdout=subprocess.PIPE
    ) as process:
        try:
            process.stdout.readline()
            began = time.thread_time()
            usages = sample(instance, {"a:1": process.pid, "b:1": 999_999_999})
            seconds = time.thread_time() - began
        finally:
            kill_marked(instance, "a:1", process.pid)
            process.kill()

    assert 3 == usages["a:1"].processes
    assert usages["a:1"].resident_bytes > 5_000_000
    assert usages["a:1"].cpu_seconds >= 0.1
    assert Usage() == usages["b:1"]
    assert seconds < 0.1

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

COMMAND = str(Path(sys.executable).with_name("mcpvisor"))


@pytest.fixture
def environ(tmp_path):
    """An environment in which nobody else's daemon is found."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPVISOR_")}
    return {**kept, "MCPVISOR_SOCKET": str(tmp_path / "control.sock"), "TMPDIR": str(tmp_path)}


def read_until(process, pattern):
    """What a process says up to a line that fits; it ends the process's output when nothing does."""
    said = ""
    for line in process.stdout:
        said += line
        if re.search(pattern, line):
            return said
    raise AssertionError(f"{pattern!r} was never said:\n{said}")


def test_the_demonstration_is_as_its_tour_says(environ, tmp_path):
    """`mcpvisor demo` shows its tour, and each step of it works as it is printed; Ctrl-C leaves no process and no file."""
    with subprocess.Popen([COMMAND, "demo"], env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        tour = read_until(demo, r"^3\.")
        call = re.search(r"Call a tool: +(.*)", tour)[1].replace('"seconds": 3', '"seconds": 1')
        called = subprocess.run(shlex.split(call), env=environ, capture_output=True, text=True, timeout=60)
        status = subprocess.run([COMMAND, "status"], env=environ, capture_output=True, text=True, timeout=60)
        victim = int(re.search(r"kill -9 (\d+)", tour)[1])
        os.kill(victim, signal.SIGKILL)
        after = read_until(demo, r"flaky +restoring -> ready")
        family = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        demo.wait(30)
    _, alive = psutil.wait_procs(family, timeout=60)

    assert (0, "lift-off\n") == (called.returncode, called.stdout)
    assert (0, "3/3 ready") == (status.returncode, status.stdout.splitlines()[0])
    assert f"pid {victim} ended by signal 9" in after
    assert 0 == demo.returncode
    assert [] == alive
    assert [] == list(tmp_path.iterdir())

"""The state folder on disks that cannot be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.faults.stores import mounted

from mcpvisor.daemon.state_dir import SecondInstance, taken

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]).returncode != 0,
    reason="needs to mount",
)


@pytest.mark.parametrize("was_used", [True, False])
def test_a_disk_that_is_read_only_keeps_nobody_down(tmp_path: Path, *, was_used: bool) -> None:
    """The folder is used as it is, what was known of the run before is read, and a second daemon is refused all the same."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs") as there:
        before = None
        if was_used:
            with taken(there) as state:
                state.remember()
                before = state.instance
        subprocess.run(["mount", "-o", "remount,ro", str(there)], check=True)
        with taken(there) as state:
            state.remember()
            with pytest.raises(SecondInstance), taken(there):
                pass

    assert (before, f"{there} cannot be written (Read-only file system)") == (state.previous, state.read_only)

"""Which control groups are ours: what is read of the system, and what is done with a subtree that was delegated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcpvisor.supervisor.process.delegation import NotDelegated, Subtree, group_folder

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "folder"),
    [
        ("0::/system.slice/mcpvisor.service\n", UNIFIED, "/sys/fs/cgroup/system.slice/mcpvisor.service"),
        ("5:memory:/x\n1:name=systemd:/y\n0::/z\n", HYBRID, "/sys/fs/cgroup/unified/z"),
        ("0::/\n", UNIFIED, "/sys/fs/cgroup"),
        ("0::/pod/box/in\n", "9 1 0:26 /pod/box /c\\040g rw - cgroup2 none rw\n", "/c g/in"),
        ("0::/a:b\n", "9 1 0:26 /other /o rw - cgroup2 none rw\n" + UNIFIED, "/sys/fs/cgroup/a:b"),
    ],
)
def test_our_group_is_found_below_its_mount(groups, mounts, folder):
    """The folder of our group is found on version 2 alone, beside version 1, in a container and below a bind mount."""
    assert Path(folder) == group_folder(groups, mounts)


@pytest.mark.parametrize(
    ("groups", "mounts", "why"),
    [
        ("5:memory:/x\n", HYBRID, "version 1 only"),
        ("0::/x\n", "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", "no cgroup2 file system is mounted"),
        ("0::/../x\n", "9 1 0:26 /pod /o rw - cgroup2 none rw\n", "not below what is mounted"),
        ("0::/podium\n", "9 1 0:26 /pod /o rw - cgroup2 none rw\n", "not below what is mounted"),
    ],
)
def test_a_group_that_cannot_be_had_says_why(groups, mounts, why):
    """Version 1, nothing mounted, and a group outside of the mount are each told in words."""
    with pytest.raises(NotDelegated, match=why):
        group_folder(groups, mounts)


@pytest.mark.parametrize(
    ("name", "groups", "is_held"),
    [
        ("/a/unit", "0::/a/unit/git-1\n", True),
        ("/a/unit", "5:memory:/x\n0::/a/unit/git-hub_2-17/below\n", True),
        ("/a/unit", "0::/a/unit/supervisor\n", False),
        ("/a/unit", "0::/a/unit\n", False),
        ("/a/unit", "0::/a/unit-2/git-1\n", False),
        ("/a/unit", "0::/git-1\n", False),
        ("/a/unit", "5:memory:/a/unit/git-1\n", False),
        ("", "0::/git-1\n", True),
        ("", "0::/../git-1\n", False),
        ("", "0::/\n", False),
    ],
)
def test_a_process_of_a_server_is_known_by_its_group(name, groups, is_held):
    """What is in a server's group, or below it, is a server's; our own leaf and everything outside is not."""
    assert is_held is Subtree(path=Path("/c"), name=name).holds(groups)
    assert not Subtree(name=name, why_not="nobody gave us one").holds(groups)


TAKER = """
import json, os, sys
from pathlib import Path
from mcpvisor.supervisor.process.delegation import take_subtree

Path(sys.argv[1], "cgroup.procs").write_text("0")
takes = [take_subtree() for _ in range(int(sys.argv[2]))]
own = Path("/proc/self/cgroup").read_text().splitlines()[-1]
print(json.dumps({"paths": [str(one.path) for one in takes], "why": takes[-1].why_not, "own": own.rpartition("/")[2],
                  "controllers": sorted(takes[-1].controllers)}))
"""


def take(folder: Path, times: int = 1) -> dict:
    """What a program finds that is started in a group and takes the subtree."""
    run = subprocess.run([sys.executable, "-c", TAKER, folder, str(times)], capture_output=True, text=True, timeout=60)
    assert "" == run.stderr
    return json.loads(run.stdout)


@pytest.mark.cgroup
def test_a_delegated_subtree_is_taken_and_what_was_left_in_it_is_ended(group):
    """The process moves into its leaf, once and for all; the group of a former run goes with its process, foreign ones stay."""
    os.setxattr(group, "user.delegate", b"1")
    (group / "files-3").mkdir()
    (group / ".control").mkdir()
    left = subprocess.Popen(["sleep", "60"])
    (group / "files-3" / "cgroup.procs").write_text(str(left.pid))

    taken = take(group, times=2)
    enabled = (group / "cgroup.subtree_control").read_text().split()

    assert {"paths": [str(group)] * 2, "why": "", "own": "supervisor"} == {k: taken[k] for k in ("paths", "why", "own")}
    assert sorted({"memory", "pids", "cpu"} & set(enabled)) == taken["controllers"]
    assert -9 == left.wait(timeout=20)
    assert [".control", "supervisor"] == sorted(child.name for child in group.iterdir() if child.is_dir())


@pytest.mark.cgroup
def test_a_group_that_was_not_delegated_is_left_alone(group):
    """Root could write every group; without the mark of a delegation nothing is made, and the reason names the remedy."""
    taken = take(group)

    assert "Delegate=yes" in taken["why"]
    assert group.name == taken["own"]
    assert [] == [child for child in group.iterdir() if child.is_dir()]


@pytest.mark.cgroup
def test_a_group_with_others_in_it_is_left_alone(group):
    """A terminal's group, where the shell is too, is not ours, delegated or not."""
    os.setxattr(group, "user.delegate", b"1")
    with subprocess.Popen(["sleep", "60"]) as other:
        (group / "cgroup.procs").write_text(str(other.pid))
        taken = take(group)
        other.kill()

    assert f"other processes are in our control group {group}, the first of 1 is {other.pid}" == taken["why"]
    assert [] == [child for child in group.iterdir() if child.is_dir()]

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mcpvisor.daemon.control.peer import why_refused
from mcpvisor.daemon.peers import Peer
from mcpvisor.daemon.unix_socket import group_id

OWN = os.geteuid()


@pytest.fixture
def process():
    """Starts processes that live until the test ends; each is its parent's child, and has the environment that is given."""
    running = []

    def start(**environ):
        code = "import sys; sys.stdin.read()"
        one = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env={**os.environ, **environ})
        running.append(one)
        return one.pid

    yield start
    for one in running:
        one.stdin.close()
        one.wait(5)


def refusal(uid=OWN, pid=0, groups=(), group=None):
    return why_refused(Peer(pid=pid, uid=uid, groups=frozenset(groups)), instance="ours", group=group)


def test_root_and_the_daemons_user_may():
    """Root and the daemon's own user may give orders."""
    assert None is refusal(uid=0)
    assert None is refusal(uid=OWN)


def test_another_user_may_not():
    """Any other user may not, and the refusal names the uid."""
    assert "uid 12345" in refusal(uid=12345)
    assert "uid 12345" in refusal(uid=12345, groups=[7], group=8)


def test_a_member_of_the_group_may():
    """A user may who has the group among its own."""
    assert None is refusal(uid=12345, groups=[7, 8], group=8)


def test_a_servers_process_may_not(process):
    """A process that carries the daemon's mark may not, whoever it runs as."""
    pid = process(MCPVISOR_INSTANCE="ours")

    assert f"pid {pid}" in refusal(pid=pid)
    assert f"pid {pid}" in refusal(pid=pid, uid=12345, groups=[8], group=8)


def test_a_process_that_is_gone_may_not(process):
    """A process that has ended cannot be told from a server's, and may not."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(5)

    assert f"pid {gone.pid}" in refusal(pid=gone.pid)
    assert f"pid {gone.pid}" in refusal(pid=gone.pid, uid=12345, groups=[8], group=8)


def test_a_group_that_is_missing_is_none():
    """A group that the system does not have opens the socket to nobody."""
    assert None is group_id("no-such-group-anywhere")

from __future__ import annotations

import os
import subprocess
import sys

import anyio
import pytest

from mcpvisor.daemon.control import protocol, server
from mcpvisor.daemon.control.peer import why_refused
from mcpvisor.daemon.peers import Peer
from mcpvisor.daemon.unix_socket import group_id

OWN = os.geteuid()


@pytest.fixture
def anyio_backend():
    return "asyncio"


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
        one.wait(20)


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
    gone.wait(20)

    assert f"pid {gone.pid}" in refusal(pid=gone.pid)
    assert f"pid {gone.pid}" in refusal(pid=gone.pid, uid=12345, groups=[8], group=8)


def test_a_group_that_is_missing_is_none():
    """A group that the system does not have opens the socket to nobody."""
    assert None is group_id("no-such-group-anywhere")


@pytest.mark.anyio
async def test_refused_peers_take_no_place(api, monkeypatch):
    """Peers that may not give orders are told so and closed, however many they are; those who may are served."""
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(protocol, "MAX_REFUSED", 2)
    refused = {"left": 3}

    def why_refused(peer, **_):
        refused["left"] -= 1
        return "a test says so" if refused["left"] >= 0 else None

    monkeypatch.setattr(server, "why_refused", why_refused)
    async with api.served():
        streams = [await anyio.connect_unix(api.path) for _ in range(3)]
        async with api.client() as client:
            answer = await client.get("/v1/status")
        with anyio.fail_after(20):
            await streams[0].send(b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n")
            told = await until_closed(streams[0])
            at_once = await until_closed(streams[2])
        for stream in streams:
            await stream.aclose()

    assert answer.status_code == 200
    assert told.startswith(b"HTTP/1.1 403 ")
    assert at_once == b""


@pytest.mark.anyio
async def test_a_request_has_a_deadline(api, monkeypatch):
    """A request that does not come to its end in time is closed, and so is a connection without one."""
    monkeypatch.setattr(protocol, "REQUEST_SECONDS", 0.05)
    async with api.served():
        for sent in (b"", b"GET /v1/status HTTP/1.1\r\nhost:", b"POST /v1/reload HTTP/1.1\r\ncontent-length: 9\r\n\r\n"):
            async with await anyio.connect_unix(api.path) as stream:
                if sent:
                    await stream.send(sent)
                with anyio.fail_after(20):
                    assert await until_closed(stream) == b""


async def until_closed(stream):
    """Everything that comes until the other side closes."""
    received = b""
    try:
        while True:
            received += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return received

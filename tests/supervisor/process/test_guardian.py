"""The guardian: what happens to servers when the daemon dies, and to the guardian itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from tests.processes import is_alive

from mcpvisor.supervisor.process import sweep
from mcpvisor.supervisor.process.guardian import Guardian
from mcpvisor.supervisor.process.sweep import INSTANCE_VARIABLE, SERVER_VARIABLE, find_marked, kill_marked, kill_once

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def instance():
    instance = f"test-{uuid.uuid4().hex}"
    yield instance
    kill_marked(instance)


@contextmanager
def parent(servers: Path, instance: str, backend: str):
    command = [sys.executable, str(servers / "guarded_parent.py"), instance, backend]
    command += ["stdio_scripted.py", "stdio_stubborn_tree.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def within(seconds: float, is_so) -> bool:
    """Look again until it is so, or the time is over."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def ignores_sigterm(proc: Path) -> bool:
    return bool(int(_status(proc)["SigIgn"], 16) & 1 << signal.SIGTERM - 1)


def test_killed_daemon_leaves_no_child(servers, instance, anyio_backend):
    """After SIGKILL of the daemon no server is left, launcher trees and sessions of their own included."""
    with parent(servers, instance, anyio_backend) as (process, ready):
        before = find_marked(instance)
        process.kill()
        process.wait()

        assert within(20.0, lambda: not find_marked(instance))
    assert 4 == len(before)
    assert within(20.0, lambda: not is_alive(ready["guardian"]))


def test_signals_to_the_group_of_the_daemon_spare_the_guardian(servers, instance, anyio_backend):
    """SIGTERM, SIGINT and SIGHUP to the daemon's group, and to the guardian itself, do not end it before its work is done."""
    with parent(servers, instance, anyio_backend) as (process, ready):
        assert within(20.0, lambda: ignores_sigterm(Path(f"/proc/{ready['guardian']}")))  # as it does once Python has begun
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(ready["guardian"], number)
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()

        assert within(20.0, lambda: not find_marked(instance))
    assert within(20.0, lambda: not is_alive(ready["guardian"]))


def test_daemon_that_ends_in_good_order_takes_the_guardian_along(servers, instance, anyio_backend):
    """After an orderly end there is neither a server nor a guardian."""
    with parent(servers, instance, anyio_backend) as (process, ready):
        process.stdin.close()
        code = process.wait(timeout=30)

    assert 0 == code
    assert [] == find_marked(instance)
    assert not is_alive(ready["guardian"])


async def test_guardian_holds_nothing_of_the_daemon(instance):
    """The guardian has its pipe and /dev/null, a session of its own, an empty environment, and less than 12 MB."""
    with anyio.fail_after(20):
        read, write = os.pipe()
        os.set_inheritable(read, True)
        async with Guardian(instance) as guardian:
            proc = Path(f"/proc/{guardian.pid}")
            while b"sweep.py" not in (proc / "cmdline").read_bytes() or not ignores_sigterm(proc):
                await anyio.sleep(0.01)
            targets = sorted(os.readlink(fd).split(":")[0] for fd in (proc / "fd").iterdir())
            environment = (proc / "environ").read_bytes()
            leads_its_session = os.getsid(guardian.pid) == guardian.pid
            resident = int(_status(proc)["VmRSS"].split()[0])
        os.close(read)
        os.close(write)

    assert ["/dev/null", "/dev/null", "pipe"] == targets
    assert b"" == environment
    assert leads_its_session
    assert resident < 12 * 1024


def _status(proc: Path) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)


async def test_guardian_that_dies_is_started_again(instance, monkeypatch):
    """A killed guardian is told of, and replaced by another that does the same."""
    monkeypatch.setattr("mcpvisor.supervisor.process.guardian._FIRST_DELAY", 0.01)
    with anyio.fail_after(20):
        lost = anyio.Event()
        async with Guardian(instance, lost=lost.set) as guardian:
            first = guardian.pid
            os.kill(first, signal.SIGKILL)
            await lost.wait()
            while guardian.pid is None:
                await anyio.sleep(0.01)
            second = guardian.pid

    assert first != second
    assert not is_alive(second)


async def test_error_of_the_body_leaves_the_guardian_as_it_was(instance):
    """An error within the context comes out as itself, not in a group."""
    with pytest.raises(KeyError), anyio.fail_after(20):
        async with Guardian(instance):
            raise KeyError


def marked(instance: str, server: str = "a:1", **options) -> subprocess.Popen:
    return subprocess.Popen(
        ["/bin/sleep", "60"], env={INSTANCE_VARIABLE: instance, SERVER_VARIABLE: server}, start_new_session=True, **options
    )


def test_sweep_kills_by_the_whole_mark_only(instance):
    """The sweep of one server's generation spares its other generation, and an instance whose id merely begins the same."""
    with marked(instance, "a:1") as mine, marked(instance, "a:11") as other, marked(instance + "x") as stranger:
        killed = kill_marked(instance, "a:1")
        mine.wait(20)
        spared = [other.poll(), stranger.poll()]
        killed_later = kill_marked(instance)
        other.wait(20)
        stranger.kill()

    assert [mine.pid] == killed
    assert [None, None] == spared
    assert [other.pid] == killed_later


def test_a_process_in_the_midst_of_an_exec_is_looked_at_again(instance, monkeypatch):
    """For a moment of an exec a process has no environment at all, and would be taken for nobody's."""
    looks, look = [], sweep._environment

    def in_the_midst(pid: int) -> bytes | None:
        if pid == mine.pid and not looks:
            looks.append(pid)
            return b""  # that moment cannot be met at will
        return look(pid)

    monkeypatch.setattr(sweep, "_environment", in_the_midst)
    with marked(instance) as mine:
        killed = kill_marked(instance)
        mine.kill()

    assert ([mine.pid], [mine.pid]) == (looks, killed)


def test_processes_without_an_environment_do_not_hold_a_sweep_up(instance):
    """Whoever was started with none is looked at a few times more, and left alone."""
    with subprocess.Popen(["/bin/sleep", "60"], env={}, start_new_session=True) as bare:
        began = time.monotonic()
        killed = kill_marked(instance)
        took, state = time.monotonic() - began, bare.poll()
        bare.kill()

    assert ([], None) == (killed, state)
    assert took < 5


def test_sweep_finds_nothing_twice(instance):
    """A pass over a clean machine kills nothing, and the process that sweeps is never its own victim."""
    assert [] == kill_once(instance)
    assert [] == find_marked(instance)


def test_sweep_kills_a_session(instance):
    """Members of the leader's session die although they carry no mark and have left its group; the leader is spared."""
    script = "set -m; sleep 60 & echo $!; wait"
    with subprocess.Popen(["/bin/bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True, env={}) as leader:
        member = int(leader.stdout.readline())
        group = os.getpgid(member)
        killed = kill_marked(instance, "a:1", leader.pid)
        leader.kill()

    assert group == member
    assert [member] == killed

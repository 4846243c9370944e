"""What others let the daemon wait for: a log that nobody reads, a journal that is stopped, names that nobody resolves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.running import entry, puppet
from tests.e2e.siege import MAX_HELD, Besieged, Gauges, besieged
from tests.stopwatch import Stopwatch

from mcpvisor.supervisor.transports.resolver import LOOKUP_SECONDS

SERVERS = Path(__file__).parents[1] / "servers"
CALLS = 300
END_SECONDS = 20.0
"""A daemon that something hangs on ends all the same, in about the time its servers are given."""

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="needs to mount in a namespace of its own",
)

CHATTER = "".join(puppet(f"chatter{number}", SERVERS / "hostile.py", "--chatter") for number in range(4))
QUIET = puppet("quiet", SERVERS / "lite.py")


@contextlib.contextmanager
def unmoved(daemon: Besieged, seconds: float) -> Iterator[None]:
    """For at least so long, and while the block lasts, no call, no probe and no status takes as much as 250 ms."""
    slowest_status, watch = 0.0, Stopwatch(daemon.pid, threading.get_native_id())
    neighbour = daemon.neighbour
    with Gauges(daemon) as gauges, neighbour.phase("stalled", least=CALLS):
        yield
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            watch.start()
            daemon.status()
            slowest_status = max(slowest_status, watch.seconds())
            time.sleep(0.05)

    assert gauges.held < MAX_HELD
    assert gauges.lag < MAX_HELD
    assert neighbour.slowest("stalled") < MAX_HELD
    assert slowest_status < MAX_HELD


def dropped(daemon: Besieged) -> float:
    """How many records of the log were lost."""
    return sum(float(count) for count in re.findall(r"^mcpvisor_log_dropped_total\S* (\S+)", daemon.metrics(), re.MULTILINE))


def written(daemon: Besieged) -> float:
    """How many lines of stderr the servers have written."""
    return sum(float(n) for n in re.findall(r"^mcpvisor_server_stderr_lines_total\S* (\S+)", daemon.metrics(), re.MULTILINE))


def end(daemon: Besieged) -> None:
    """Tell the daemon to end, which whatever hangs must not hinder."""
    began = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(END_SECONDS) == 0, time.monotonic() - began


READER = "import os, time\nwhile os.read(0, 65536): pass"


@pytest.mark.alone
def test_stopped_reader_of_the_log(tmp_path: Path):
    """While whoever reads the log is stopped nothing stalls; when it goes on, so does the log."""
    with subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        ready = ("quiet", *(f"chatter{number}" for number in range(4)))
        try:
            with besieged(tmp_path, CHATTER + QUIET, stderr=reader.stdin.fileno(), ready=ready) as daemon:
                reader.send_signal(signal.SIGSTOP)
                before = written(daemon)
                with unmoved(daemon, seconds=2):
                    pass
                heard = written(daemon) - before
                full = _in_pipe(reader.stdin.fileno())
                reader.send_signal(signal.SIGCONT)
                daemon.until(lambda: _in_pipe(reader.stdin.fileno()) < full, "the log to go on")
        finally:
            reader.send_signal(signal.SIGCONT)
            reader.stdin.close()

    assert heard > 500
    assert full > 32 * 1024


def _in_pipe(descriptor: int) -> int:
    """Bytes that wait in a pipe to be read."""
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0])


def test_end_with_a_full_pipe(tmp_path: Path):
    """A daemon whose log can never be written any more ends in time."""
    reading, writing = os.pipe()
    try:
        with besieged(tmp_path, CHATTER + QUIET, stderr=writing, ready=("quiet",)) as daemon:
            daemon.until(lambda: _in_pipe(reading) > 32 * 1024, "a full pipe")
            end(daemon)
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.alone
@needs_namespaces
def test_stopped_journal(tmp_path: Path):
    """While journald is stopped nothing stalls; what its socket cannot take is dropped, and counted, only after all memory."""
    journal = tmp_path / "journal"
    journal.mkdir()
    mount = f'mkdir -p /run/systemd/journal && mount --bind {journal} /run/systemd/journal && exec "$@"'
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(journal / "socket"))
        environ = {"MCPVISOR_LOG__FORMAT": "journal"}
        with besieged(tmp_path / "d", CHATTER + QUIET, prefix=prefix, env=environ, ready=("quiet",)) as daemon:
            first = journald.recv(65536)
            before = written(daemon)
            with unmoved(daemon, seconds=2):
                pass
            heard = written(daemon) - before
            journald.settimeout(20)
            later = [journald.recv(65536) for _ in range(200)]

    assert b"MESSAGE" in first
    assert heard > 500
    assert any(b"MCP_SERVER=chatter" in one for one in later)


RESOLV = "nameserver 127.77.77.77\noptions timeout:30 attempts:2\n"
"""A name server that never answers: a lookup hangs for a minute."""


@pytest.mark.slow
@needs_namespaces
def test_black_hole_for_dns(tmp_path: Path):
    """While no name is resolved nothing stalls, and the servers that need one say so; a known name is of use at once."""
    (tmp_path / "resolv.conf").write_text(RESOLV)
    (tmp_path / "hosts").write_text("127.0.0.1 localhost known.test\n")
    mount = f'for f in resolv.conf hosts; do mount --bind {tmp_path}/$f /etc/$f || exit 1; done; exec "$@"'
    prefix = ("unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh")
    holes = "".join(entry(f"hole{number}", url=f"http://hole{number}.example/mcp") for number in range(8))
    known = subprocess.Popen([sys.executable, SERVERS / "hostile.py", "--http"], stdout=subprocess.PIPE)
    assert known.stdout is not None
    url = known.stdout.readline().decode().strip().replace("127.0.0.1", "known.test")
    try:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody,
            besieged(tmp_path / "d", holes + QUIET, prefix=prefix, ready=("quiet",)) as daemon,
        ):
            nobody.bind(("127.77.77.77", 53))
            asked: set[bytes] = set()
            daemon.until(lambda: len(_asked_now(nobody, asked)) >= 8, "every hole to be looked up")
            told: set[str] = set()
            began = time.monotonic()
            daemon.write("later.toml", entry("known", url=url))
            with unmoved(daemon, seconds=6):
                daemon.until(lambda: "known" in _ready(daemon), "the server whose name is known", LOOKUP_SECONDS)
            took = time.monotonic() - began
            daemon.until(lambda: not _silent(daemon, told), "every hole to say what is wrong")
            end(daemon)
    finally:
        known.kill()
        known.wait()
        known.stdout.close()

    assert took > 6


def _asked_now(nobody: socket.socket, asked: set[bytes]) -> set[bytes]:
    """The holes that the name server has been asked for: those known before and those that its socket holds by now."""
    nobody.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            asked.update(re.findall(rb"hole\d", nobody.recv(4096)))
    return asked


def _silent(daemon: Besieged, told: set[str]) -> set[str]:
    """The holes of which no status has said yet what is wrong; between its tries a server says so, not within them."""
    for one in daemon.status()["servers"]:
        if f"the address of '{one['name']}.example' cannot be found: no answer within 5 s" in one["reason"]:
            told.add(one["name"])
    return {f"hole{number}" for number in range(8)} - told


def _ready(daemon: Besieged) -> list[str]:
    return [one["name"] for one in daemon.status()["servers"] if one["state"] == "ready"]

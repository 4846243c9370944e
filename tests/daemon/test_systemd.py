"""What systemd is told and what it handed over, over real datagram sockets."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
import trio
import trio.testing
from tests.stopwatch import Stopwatch

from mcpvisor.daemon.systemd import CredentialMissing, Notifier, Watchdog, credential, extend_stop, take_handover

UNITS = Path(__file__).parents[2] / "systemd"


class Systemd:
    """The other end of a notify socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """Every datagram so far."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(65536).decode())
            except BlockingIOError:
                return messages


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path):
    """A notify socket of either kind."""
    other = Systemd(str(tmp_path / "notify") if request.param == "path" else f"@mcpvisor-test-{os.getpid()}")
    yield other
    other.socket.close()


@pytest.fixture
def notifier(systemd):
    """A notifier that talks to it."""
    talking = Notifier(systemd.address)
    yield talking
    talking.close()


def test_each_turn_of_the_daemons_life_is_one_datagram(systemd, notifier):
    """READY, STATUS, WATCHDOG, EXTEND_TIMEOUT_USEC and STOPPING arrive as systemd reads them."""
    notifier.ready("2/3 servers ready")
    notifier.status("3/3 servers ready")
    notifier.watchdog()
    notifier.extend_timeout(2.5)
    notifier.stopping("draining")

    expected = [
        "READY=1\nSTATUS=2/3 servers ready",
        "STATUS=3/3 servers ready",
        "WATCHDOG=1",
        "EXTEND_TIMEOUT_USEC=2500000",
        "STOPPING=1\nSTATUS=draining",
    ]
    assert expected == systemd.heard()


def test_reloading_carries_its_time_in_the_same_datagram(systemd, notifier):
    """RELOADING=1 and MONOTONIC_USEC are one datagram, with the time of the monotonic clock."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    [message] = systemd.heard()
    first, second = message.split("\n")
    assert "RELOADING=1" == first
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= after


def test_a_status_cannot_smuggle_an_assignment(systemd, notifier):
    """A line break in a status, which may quote a server, begins no assignment of its own."""
    notifier.status("docs: failed\nSTOPPING=1\r\nMAINPID=1")

    assert ["STATUS=docs: failed STOPPING=1 MAINPID=1"] == systemd.heard()


def test_without_a_socket_nothing_happens():
    """Outside systemd every message is quietly not sent."""
    notifier = Notifier(None)

    assert [False] * 4 == [notifier.ready(), notifier.status("x"), notifier.watchdog(), notifier.stopping()]


@pytest.mark.parametrize("address", ["/nowhere/at/all", "vsock:2:1234", "relative"])
def test_a_socket_that_is_not_there_hurts_nobody(address, caplog):
    """A notify socket that cannot be reached is one warning, not an error and not a stream of warnings."""
    notifier = Notifier(address)
    results = [notifier.ready(), notifier.watchdog(), notifier.watchdog()]
    notifier.close()

    assert [False, False, False] == results
    assert 1 == len(caplog.records)


def test_a_full_socket_neither_waits_nor_loses_readiness(systemd, notifier):
    """When nobody reads, sending returns at once; what was owed goes out first once somebody reads again."""
    while notifier.watchdog():
        pass
    watch = Stopwatch()
    watch.start()
    taken = notifier.ready("up")
    took = watch.seconds()
    systemd.heard()
    notifier.watchdog()

    assert (False, True) == (taken, took < 0.1)
    assert ["READY=1\nSTATUS=up", "WATCHDOG=1"] == systemd.heard()


def test_a_newer_turn_replaces_one_that_was_never_heard(systemd, notifier):
    """A READY that was lost is not told after STOPPING."""
    while notifier.watchdog():
        pass
    notifier.ready()
    systemd.heard()
    notifier.stopping()
    notifier.status("draining")

    assert ["STOPPING=1", "STATUS=draining"] == systemd.heard()


def test_what_was_handed_over_is_taken_out_of_the_environment():
    """The variables are read once and removed, so that no child believes they are meant for it."""
    environ = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77", "HOME": "/"}
    handover = take_handover(environ, pid=77)

    assert ("@x", 30.0) == (handover.notify_socket, handover.watchdog_seconds)
    assert {"HOME": "/"} == environ


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "78"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "junk"}, None),
    ],
)
def test_the_watchdog_is_for_the_process_it_names(environ, seconds):
    """A watchdog of another process, or none, asks for no pings."""
    assert seconds == take_handover(environ, pid=77).watchdog_seconds


def test_listening_sockets_come_by_name(tmp_path):
    """Sockets of a socket unit are found under the names their unit gave them, and are not inherited further."""
    script = (
        "import os, json\n"
        "from mcpvisor.daemon.systemd import take_handover\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "fds = take_handover().listen_fds\n"
        "print(json.dumps([fds, [os.get_inheritable(3), os.get_inheritable(4)], 'LISTEN_FDS' in os.environ]))\n"
    )
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        wrapper = f'exec 3<&{one.fileno()} 4<&{two.fileno()}; exec "$PYTHON" -c "$SCRIPT"'
        done = subprocess.run(
            ["/bin/bash", "-c", wrapper],
            env={
                "PYTHON": sys.executable,
                "SCRIPT": script,
                "LISTEN_FDS": "2",
                "LISTEN_FDNAMES": "control",
            },
            pass_fds=(one.fileno(), two.fileno()),
            capture_output=True,
            text=True,
            timeout=20,
        )

    assert '[{"control": [3], "unknown": [4]}, [false, false], false]\n' == done.stdout, done.stderr


def test_a_credential_is_a_secret_without_its_newline(tmp_path):
    """A credential's value is read without one newline at its end, and never prints."""
    (tmp_path / "token").write_text("s3cret\n")
    value = credential("token", {"CREDENTIALS_DIRECTORY": str(tmp_path)})

    assert ("s3cret", "***") == (value.reveal(), str(value))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absent", "LoadCredential=absent:PATH"),
        ("../token", "plain file name"),
        ("", "plain file name"),
        ("binary", "not UTF-8"),
    ],
)
def test_a_credential_that_is_not_there_says_what_to_do(tmp_path, name, told):
    """The error names the credential and the remedy, and never its value."""
    (tmp_path / "binary").write_bytes(b"canary\xff")
    with pytest.raises(CredentialMissing, match=told) as caught:
        credential(name, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert "canary" not in str(caught.value)


def test_without_credentials_the_error_names_the_unit():
    """Outside systemd a credential is one clear error."""
    with pytest.raises(CredentialMissing, match="LoadCredential="):
        credential("token", {})


@pytest.mark.anyio
async def test_the_watchdog_pings_at_a_third_and_only_while_fresh(tmp_path):
    """Pings come at a third of the interval, and stop when the supervisor's ticks are stale."""
    systemd = Systemd(str(tmp_path / "notify"))
    notifier = Notifier(systemd.address)
    asked: list[float] = []
    enough = anyio.Event()

    def fresh() -> bool:
        asked.append(time.monotonic())
        if len(asked) == 5:
            enough.set()
        return len(asked) != 2

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Watchdog(notifier, 0.15, fresh).run)
            await enough.wait()
            tasks.cancel_scope.cancel()
    notifier.close()

    assert ["WATCHDOG=1"] * 4 == systemd.heard()
    assert asked[-1] - asked[0] >= 4 * 0.05
    systemd.socket.close()


class TestInVirtualTime:
    """What happens at certain times."""

    @pytest.fixture
    def anyio_backend(self):
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}

    @pytest.mark.anyio
    async def test_a_long_stop_asks_for_more_time_and_comes_to_an_end(self, tmp_path):
        """Time is asked for again well before it is over, and never beyond what the stop may take in all."""
        systemd = Systemd(str(tmp_path / "notify"))
        notifier = Notifier(systemd.address)
        began = anyio.current_time()
        await extend_stop(notifier, 22)
        took = anyio.current_time() - began
        notifier.close()

        assert [f"EXTEND_TIMEOUT_USEC={seconds}000000" for seconds in (15, 15, 12, 7, 2)] == systemd.heard()
        assert 22 <= took <= 25
        systemd.socket.close()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_passes_systemds_own_checks(tmp_path):
    """The shipped unit has no unknown or malformed setting, and an exposure below 2.0."""
    unit = (UNITS / "mcpvisor.service").read_text()
    checked = tmp_path / "mcpvisor.service"
    checked.write_text(unit.replace("/opt/mcpvisor/bin/mcpvisor", "/bin/true"))  # verify wants a program that exists

    verify = subprocess.run(["systemd-analyze", "verify", str(checked)], capture_output=True, text=True, timeout=60)
    assert (0, "") == (verify.returncode, verify.stderr)
    security = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(checked)]
    exposure = subprocess.run(security, capture_output=True, text=True, timeout=60)
    assert 0 == exposure.returncode, exposure.stdout[-300:]


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
def test_the_user_of_the_unit_is_declared():
    """systemd-sysusers can read the declaration of the user that the unit names."""
    done = subprocess.run(
        ["systemd-sysusers", "--dry-run", str(UNITS / "mcpvisor.sysusers.conf")],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert 0 == done.returncode, done.stderr
    assert "User=mcpvisor" in (UNITS / "mcpvisor.service").read_text()

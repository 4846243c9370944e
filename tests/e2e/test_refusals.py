"""Starts that cannot be: one line that names the place and the remedy, the promised exit code, and nothing left behind."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import nursery
from tests.e2e.running import RunningDaemon
from tests.faults.stores import mounted

from mcpvisor.supervisor.process.sweep import find_marked

PAGE = os.sysconf("SC_PAGESIZE")


class Attempt:
    """A daemon that is expected not to come up."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.state = Path(settings.get("state_dir", str(folder / "state")))
        values = {
            "daemon.state_dir": str(self.state),
            "gateway.listen": settings.get("gateway", "127.0.0.1:0"),
            "control.listen": settings.get("control", f"unix:{folder}/c.sock"),
            "metrics.listen": settings.get("metrics", "127.0.0.1:0"),
        }
        text = "".join(f'[{key.split(".")[0]}]\n{key.split(".")[1]} = "{value}"\n' for key, value in values.items())
        text += f'[servers.one]\ncommand = "{sys.executable}"\nargs = ["-c", "input()"]\n'
        (folder / "mcpvisor.toml").write_text(text)

    def run(self) -> tuple[int, str]:
        done = nursery.run(["run", "--config", self.folder], timeout=30)
        complaints = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        instance = self.state / "instance"
        if instance.exists():
            assert find_marked(instance.read_text().strip()) == []
        return done.returncode, "\n".join(complaints)


@pytest.fixture
def taken() -> tuple[str, socket.socket]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    yield f"127.0.0.1:{sock.getsockname()[1]}"
    sock.close()


def test_a_taken_port_of_the_gateway(tmp_path: Path, taken: str) -> None:
    """The key and the address are named; 78, since only an edit helps."""
    code, said = Attempt(tmp_path, gateway=taken).run()

    assert (code, said) == (78, f"mcpvisor: gateway.listen: {taken}: Address already in use; another program has it")


def test_a_taken_port_of_the_metrics(tmp_path: Path, taken: str) -> None:
    """The same for the metrics."""
    code, said = Attempt(tmp_path, metrics=taken).run()

    assert (code, said) == (78, f"mcpvisor: metrics.listen: {taken}: Address already in use; another program has it")


def test_the_socket_and_the_folder_of_another_daemon(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    """A second daemon is temporary bad luck: 75, and the first goes on."""
    first = daemon("")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    by_socket = Attempt(tmp_path / "a", control=f"unix:{first.socket}").run()
    by_folder = Attempt(tmp_path / "b", state_dir=str(first.folder / "state")).run()

    assert by_socket[0] == 75
    assert f"another daemon listens on {first.socket}: stop it, or give this one another control.listen" in by_socket[1]
    assert by_folder == (75, f"mcpvisor: another daemon uses {first.folder}/state (see `mcpvisor status`)")
    assert first.status()["healthy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount")
@pytest.mark.parametrize("free", [0, 2])
def test_a_disk_that_is_full_at_the_first_start(tmp_path: Path, free: int) -> None:
    """Whatever cannot be written first, of the folder's files or the gateway's: 75, for the disk will have room again."""
    (tmp_path / "a").mkdir()
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={16 * PAGE},mode=700", "tmpfs") as there:
        (there / "filler").write_bytes(bytes((16 - free) * PAGE))
        code, said = Attempt(tmp_path / "a", state_dir=str(there / "state")).run()

    assert code == 75
    assert re.fullmatch(r"mcpvisor: .*/disk/state/\S+ .*cannot be written \(No space left on device\).*", said)


def test_a_token_that_is_none(tmp_path: Path) -> None:
    """An empty token file is not taken for an empty token."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "gateway.token").touch(0o600)
    code, said = Attempt(tmp_path).run()

    assert (code, said) == (78, f"mcpvisor: {tmp_path}/state/gateway.token: holds no token; remove it to have a new one minted")


def test_a_token_that_is_no_file(tmp_path: Path) -> None:
    """A pipe in the token's place does not hold up the start."""
    (tmp_path / "state").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "state" / "gateway.token", 0o600)
    code, said = Attempt(tmp_path).run()

    assert (code, "is no file" in said) == (78, True)


def test_a_state_folder_that_everybody_can_write(tmp_path: Path) -> None:
    """Who could write there could be the daemon; the remedy is named."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    code, said = Attempt(tmp_path).run()

    assert code == 78
    assert (
        said == f"mcpvisor: daemon.state_dir: not used: everybody may write {tmp_path}/state; run: chmod o-w {tmp_path}/state"
    )


def test_a_link_in_the_place_of_our_file(tmp_path: Path) -> None:
    """What a link in the state folder points to is not written through."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "instance.new").symlink_to(victim)
    (tmp_path / "state" / "gateway.token").touch(0o600)  # so that the start ends by itself, after the file was written
    Attempt(tmp_path).run()

    assert victim.read_text() == "precious"

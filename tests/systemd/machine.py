"""Owns a machine for tests: a real systemd as process 1 of namespaces of its own, on a throw-away copy of this system."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conftest import cgroup_mount

BOOT = Path(__file__).parent / "boot"
BOOT_SECONDS = 60.0
COMMAND_SECONDS = 90.0

_NAMESPACES = ("--mount", "--pid", "--cgroup", "--net", "--uts", "--ipc")
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
_GROUPS = "mcpvisor-tests-"
_ENTER = 'echo 0 > "$0/cgroup.procs" && exec "$@"'


class Machine:
    """Up while its context lasts, and gone with it, or with this process, whatever happens inside.

    `root` is its file system as seen from here, its /proc included: the numbers of processes there are the machine's own.
    """

    def __init__(self, folder: Path) -> None:
        mounted_on = cgroup_mount()
        assert mounted_on is not None, "tests that need systemd are left out where there are no control groups"
        self._folder = folder
        self._cgroup = mounted_on / f"{_GROUPS}{os.getpid()}"
        self._log = folder.with_name(f"{folder.name}.log")
        self._unshare: subprocess.Popen[bytes]
        self.pid = 0
        """Its process 1, by the number it has here."""

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        for former in self._cgroup.parent.glob(f"{_GROUPS}*"):  # of a run that was killed: empty, but there
            if not Path("/proc", former.name.removeprefix(_GROUPS)).exists():
                _remove(former)
        self._cgroup.mkdir()
        # The group is entered first: it is to be the root of the machine's own name space of groups. It all dies with us.
        unshare = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--propagation", "private", str(BOOT), str(self._folder)]
        command = ["sh", "-c", _ENTER, str(self._cgroup), "setpriv", "--pdeathsig", "KILL", *unshare]
        with self._log.open("wb") as log:
            self._unshare = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            self._await_boot()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._end()

    def run(self, *command: str | Path, user: str | None = None, check: bool = True, timeout: float = COMMAND_SECONDS) -> str:
        """What a command in the machine prints on stdout. Raises AssertionError with all it said where it fails."""
        done = self.try_run(*command, user=user, timeout=timeout)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def try_run(
        self, *command: str | Path, user: str | None = None, timeout: float = COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the machine to its end, as root or as a user with that user's groups."""
        return subprocess.run(
            self.entering(*command, user=user),
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def entering(self, *command: str | Path, user: str | None = None) -> list[str]:
        """The command line that runs a command in the machine."""
        as_user: Sequence[str] = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--") if user else ()
        return ["nsenter", f"--target={self.pid}", "--all", "--", *as_user, *map(str, command)]

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the machine, whole or not at all."""
        there = self.root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        draft = there.with_name(f".{there.name}.new")
        draft.write_text(text)
        draft.chmod(mode)
        draft.replace(there)

    def copy(self, source: Path, path: str) -> None:
        """Put a copy of a file or folder of ours into the machine, with its times and modes."""
        there = self.root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, there, dirs_exist_ok=True)
        else:
            shutil.copy2(source, there)

    def _await_boot(self) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while True:
            self.pid = self.pid or self._process_1()
            if self.pid and self.run("systemctl", "is-system-running", check=False).strip() in ("running", "degraded"):
                return
            if self._unshare.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"systemd did not boot:\n{self._log.read_text('utf-8', 'replace')}")
            time.sleep(0.05)

    def _process_1(self) -> int:
        """The number of systemd; 0 while what will be it still prepares the mounts."""
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            with suppress(FileNotFoundError):
                if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return int(pid)
        return 0

    def _end(self) -> None:
        self._unshare.kill()  # its child, process 1, goes with it, and everything in the machine with that
        self._unshare.wait(COMMAND_SECONDS)
        deadline = time.monotonic() + COMMAND_SECONDS
        while self._cgroup.exists():
            _remove(self._cgroup)
            if time.monotonic() > deadline:
                raise AssertionError(f"processes of the machine are left in {self._cgroup}")
            time.sleep(0.01)


def _remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):  # something in it is still on its way out
            os.rmdir(folder)

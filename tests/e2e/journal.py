"""Owns a stand-in for journald, and a daemon that logs to it: every datagram with its fields, and what goes to stderr."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from tests.e2e.running import RunningDaemon

SOCKET: Final = "TEST_JOURNAL_SOCKET"
"""Tells `journalled.py` where the stand-in listens: journald's own place is not ours to take."""

_MOST: Final = 1024 * 1024


class Journal:
    """Takes records in journald's native form, as datagrams or as sealed memory files, until it is closed."""

    def __init__(self, path: Path) -> None:
        self.records: list[dict[str, bytes]] = []
        self.files = 0
        """How many records came as memory files."""
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _MOST)
        self._socket.bind(str(path))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Take what has come so far, and no more."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.sendto(b"END", str(self.path))
        self._thread.join()
        self._socket.close()

    def text(self) -> str:
        """All fields of all records."""
        lines = (f"{name}={value.decode('utf-8', 'replace')}" for one in self.records for name, value in one.items())
        return "\n".join(lines)

    def _run(self) -> None:
        while True:
            data, files, _, _ = socket.recv_fds(self._socket, _MOST, 1)
            if data == b"END":
                return
            for file in files:
                assert data == b""
                self.files += 1
                data = os.pread(file, _MOST, 0)
                os.close(file)
            self.records.append(_fields(data))


def _fields(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, has_value, value = line.partition(b"=")
        if not has_value:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        found[name.decode()] = value
        data = rest
    return found


class JournalledDaemon(RunningDaemon):
    """A daemon whose stderr is connected to a journal, as a service's is. It is started as users start it."""

    def __init__(self, folder: Path, servers: str, **options: Any) -> None:
        """See `RunningDaemon`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(folder / "journal.sock")
        super().__init__(folder, servers, **options)

    def start(self) -> subprocess.Popen[bytes]:
        """See `RunningDaemon`."""
        ours, theirs = socket.socketpair()
        info = os.fstat(theirs.fileno())
        env = {**os.environ, **self._env, SOCKET: str(self.journal.path), "JOURNAL_STREAM": f"{info.st_dev}:{info.st_ino}"}
        program = [sys.executable, "-m", "tests.e2e.journalled", "run", "--config", str(self.folder / "config")]
        with theirs:
            self.process = subprocess.Popen(
                program, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env, cwd=Path(__file__).parents[2]
            )
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()
        return self.process

    def _read(self, ours: socket.socket) -> None:
        with ours, self.log.open("ab") as log:
            while data := ours.recv(65536):
                log.write(data)

    def clear(self) -> list[int]:
        """See `RunningDaemon`; the journal is read to its end."""
        left = super().clear()
        self.journal.close()
        self._reader.join()
        return left

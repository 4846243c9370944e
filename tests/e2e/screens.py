"""Owns terminals in which verbs run that go on until they are interrupted, and all that is written in them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading
from collections.abc import Mapping
from typing import Final

from tests import nursery

COLUMNS: Final = 70
LINES: Final = 60
PATIENCE: Final = 30.0

_CONTROL: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Screen:
    """A verb in a narrow terminal of its own, until `end`."""

    def __init__(self, words: str, env: Mapping[str, str]) -> None:
        self.words = words
        self._data = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        with os.fdopen(theirs, "r+b", buffering=0) as terminal:
            self._process = nursery.start(
                words.split(), stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, **env, "TERM": "xterm"}
            )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # which says that nobody has the other end any more
            while piece := os.read(self._ours, 65536):
                self._data += piece

    def end(self) -> tuple[str, int]:
        """Interrupt the verb; all that was written, as it came and without what steers the terminal, and the exit code."""
        self._process.send_signal(signal.SIGINT)
        code: int = self._process.wait(PATIENCE)
        self._thread.join()
        os.close(self._ours)
        raw = self._data.decode("utf-8", "replace").replace("\r\n", "\n")
        return f"{raw}\n{_CONTROL.sub('', raw)}", code

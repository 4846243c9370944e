"""Owns a terminal that a test looks at: a command runs in it, keys are typed, and what is written is waited for."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Self

PATIENCE = 30.0


class Terminal:
    """A pseudo terminal of so many columns and lines, with a command in it; leave it as a context."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], columns: int = 100, lines: int = 30) -> None:
        self._ours, theirs = pty.openpty()
        self._resize(theirs, columns, lines)
        # A shell that runs the tests in its background has SIGINT ignored, and what is ignored is inherited.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.process = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=dict(environ),
                process_group=0,  # of its own, with a parent outside of it: so it can be stopped
            )
        finally:
            signal.signal(signal.SIGINT, before)
        os.close(theirs)
        self.written = ""
        """All that was written so far."""
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(20)
        os.close(self._ours)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make it another size, and tell the command, as the kernel tells whoever has it for a controlling terminal."""
        self._resize(self._ours, columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def until(self, text: str) -> str:
        """What was written up to the text, and with it, since the last time; fails when it does not come."""
        found = self.within(PATIENCE, text)
        assert found is not None, f"{text!r} was not written: {self.written[self._seen :]!r}"
        return found

    def within(self, seconds: float, text: str) -> str | None:
        """The same, or None when it does not come in time."""
        deadline = time.monotonic() + seconds
        while (found := self.written.find(text, self._seen)) < 0:
            if not self._read(deadline - time.monotonic()):
                return None
        since, self._seen = self._seen, found + len(text)
        return self.written[since : self._seen]

    def end(self) -> str:
        """What was written since the last time, once the command has ended."""
        while self._read(PATIENCE):
            pass
        self.process.wait(20)
        since, self._seen = self._seen, len(self.written)
        return self.written[since:]

    def _read(self, seconds: float) -> bool:
        if seconds <= 0 or not select.select([self._ours], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:  # how a terminal ends
            return False
        self.written += chunk.decode("utf-8", "replace")
        return bool(chunk)

    @staticmethod
    def _resize(descriptor: int, columns: int, lines: int) -> None:
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

"""Owns what wakes a watcher of the status: a server that has changed its state, another size of the screen, or the time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import Final, Literal

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError

Cause = Literal["daemon", "screen", "time"]

_TOGETHER: Final = 0.1
"""Seconds for which changes are gathered, so that a storm of them is one look."""


class News:
    """Waits for what may make the status another. The daemon's events are read in a thread that ends with the process.

    Every signal wakes the wait, through a pipe: one that came just before the wait began would be slept through otherwise.
    """

    def __init__(self, client: ControlClient, server: str | None) -> None:
        self._client = client
        # The newest one that is known comes at once, and leads to a look: what happened before the stream began is not missed.
        self._query = {"kind": "server_state_changed", "server": server, "backlog": 1}
        self._awake, self._wake = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._has_changed = False
        self._is_resized = False
        self._listening: threading.Thread | None = None

    def screen_changed(self) -> None:
        """To be called by the handler of a signal."""
        self._is_resized = True

    def wait(self, seconds: float, *, listen: bool) -> Cause:
        """Return when there is news, or after so many seconds; with `listen` the daemon's events are news."""
        if listen and (self._listening is None or not self._listening.is_alive()):
            self._listening = threading.Thread(target=self._listen, daemon=True)
            self._listening.start()
        if not select.select([self._awake], [], [], seconds)[0]:
            return "time"
        time.sleep(_TOGETHER)
        with contextlib.suppress(BlockingIOError):
            os.read(self._awake, 65536)
        has_changed, is_resized = self._has_changed, self._is_resized
        self._has_changed = self._is_resized = False
        return "screen" if is_resized and not has_changed else "daemon"

    def _listen(self) -> None:
        """Until the daemon ends the stream or is gone, of which the look that follows tells."""
        with contextlib.suppress(CliError):
            for _ in self._client.follow("/v1/events", self._query):
                self._changed()
        self._changed()

    def _changed(self) -> None:
        self._has_changed = True
        with contextlib.suppress(BlockingIOError):  # it is full of news that were not looked at yet
            os.write(self._wake, b"!")

"""Owns what wakes a watcher of the status: a server that has changed its state, another size of the screen, or the time."""

from __future__ import annotations

import queue
import threading
import time
from typing import Final, Literal

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError

Cause = Literal["daemon", "screen", "time"]

_TOGETHER: Final = 0.1
"""Seconds for which changes are gathered, so that a storm of them is one look."""


class News:
    """Waits for what may make the status another. The daemon's events are read in a thread that ends with the process."""

    def __init__(self, client: ControlClient, server: str | None) -> None:
        self._client = client
        self._query = {"kind": "server_state_changed", "server": server}
        self._causes: queue.SimpleQueue[Cause] = queue.SimpleQueue()
        self._listening: threading.Thread | None = None

    def screen_changed(self) -> None:
        """To be called by the handler of a signal."""
        self._causes.put("screen")

    def wait(self, seconds: float, *, listen: bool) -> Cause:
        """Return when there is news, or after so many seconds; with `listen` the daemon's events are news."""
        if listen and (self._listening is None or not self._listening.is_alive()):
            self._listening = threading.Thread(target=self._listen, daemon=True)
            self._listening.start()
        try:
            found = {self._causes.get(timeout=seconds)}
        except queue.Empty:
            return "time"
        time.sleep(_TOGETHER)
        while not self._causes.empty():
            found.add(self._causes.get())
        return "daemon" if "daemon" in found else "screen"

    def _listen(self) -> None:
        """Until the daemon ends the stream or is gone, of which the look that follows tells."""
        try:
            for _ in self._client.follow("/v1/events", self._query):
                self._causes.put("daemon")
        except CliError:
            pass
        self._causes.put("daemon")

"""Owns which requests in flight have asked for a server's log messages on their own stream, as 2026-07-28 has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from mcpvisor.daemon.gateway.loglevels import admits

JsonObject = dict[str, Any]
Sink = Callable[[JsonObject], None]


class LogTaps:
    """The open taps, by server."""

    def __init__(self) -> None:
        self._open: defaultdict[str, dict[object, tuple[str, Sink]]] = defaultdict(dict)

    def __bool__(self) -> bool:
        return bool(self._open)

    @contextmanager
    def tap(self, server: str, level: str, sink: Sink) -> Generator[None]:
        """Hand the server's log messages of `level` and above to `sink` for a while."""
        key = object()
        self._open[server][key] = (level, sink)
        try:
            yield
        finally:
            del self._open[server][key]
            if not self._open[server]:
                del self._open[server]

    def deliver(self, server: str, params: JsonObject) -> None:
        """A log message of the server, already named."""
        for level, sink in list(self._open.get(server, {}).values()):
            if admits(level, params.get("level")):
                sink(params)

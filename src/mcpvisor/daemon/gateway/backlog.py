"""Owns what waits for a slow reader: messages bounded in number and bytes, of which the oldest go first."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from mcpvisor.supervisor.transports.codec import encode

JsonObject = dict[str, Any]
Waiting = tuple[str, JsonObject]

MAX_BYTES: Final = 1024 * 1024
"""Bytes of JSON that wait for one reader."""

MAX_MESSAGE: Final = 256 * 1024
"""Bytes of one message that nobody has asked for by itself; a larger one is dropped."""


def size_of(params: JsonObject) -> int | None:
    """Bytes of a message's params as JSON; None where JSON cannot carry them."""
    try:
        return len(encode(params))
    except ValueError:
        return None


class Backlog:
    """A queue of notifications that never waits for its reader and never grows beyond its bounds."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._queue: deque[tuple[Waiting, int]] = deque()
        self._bytes = 0
        self.dropped = 0
        """How many messages were lost: too large by themselves, or too old when there was no more room."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    def put(self, method: str, params: JsonObject, size: int | None) -> None:
        """Take a message of `size` bytes, and make room for it."""
        if size is None or size > MAX_MESSAGE:
            self.dropped += 1
            return
        self._queue.append(((method, params), size))
        self._bytes += size
        while len(self._queue) > self._messages or self._bytes > MAX_BYTES:
            self.pop()
            self.dropped += 1

    def pop(self) -> Waiting:
        """The oldest message. Raises IndexError where there is none."""
        waiting, size = self._queue.popleft()
        self._bytes -= size
        return waiting

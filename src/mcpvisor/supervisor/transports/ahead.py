"""Owns the reading of messages so large that their checks and their parsing, in one go, would hold up everybody else."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread

from mcpvisor.supervisor.transports.codec import Unreadable, decode_messages

LARGE: Final = 1024 * 1024
"""Bytes from which on a message is read in a thread: below that handing it over costs more than it saves."""

_Read = tuple[list[Any], bool]


class AheadReader:
    """Reads the messages of one wire. Large ones are read ahead, beside the loop, by whoever takes them off the wire next."""

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._ahead: tuple[bytes, _Read | Unreadable] | None = None
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def ahead(self, data: bytes) -> None:
        """Read a text that is large; `messages` has to be asked for it before anything else is awaited."""
        if len(data) >= LARGE:
            read = partial(_judged, data, self._max_message)
            found = await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._one_at_a_time)
            self._ahead = data, found

    def messages(self, data: bytes) -> _Read:
        """See `decode_messages`. Raises `Unreadable`."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] is not data:
            return decode_messages(data, max_bytes=self._max_message)
        if isinstance(ahead[1], Unreadable):
            raise ahead[1]
        return ahead[1]


def _judged(data: bytes, max_message: int) -> _Read | Unreadable:
    try:
        return decode_messages(data, max_bytes=max_message)
    except Unreadable as error:
        return error

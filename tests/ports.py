"""Owns the TCP ports of servers that are started, or started again, at an address that a test names."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


class KeptPort:
    """A port of 127.0.0.1 that nobody else is given as long as it is kept, whether or not a server listens on it.

    It is bound here and never listened on: a server that sets SO_REUSEADDR, as all of ours do, can take it, and a connection to
    it is refused while none does.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Keep it no longer."""
        self._socket.close()


@contextmanager
def kept_port() -> Iterator[int]:
    """The number of a port that is kept while the block lasts."""
    port = KeptPort()
    try:
        yield port.number
    finally:
        port.close()

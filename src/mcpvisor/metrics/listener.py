"""Owns the sockets on which `/metrics` is listened for, apart from the event loop, so that a stuck loop can be seen."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry

from mcpvisor.metrics.exposition import Exposition
from mcpvisor.metrics.scrapers import Scrapers


def parse_listen(listen: str) -> tuple[str, int]:
    """The host and port of `HOST:PORT` or `[IPV6]:PORT`. Raises ValueError with the remedy in its text."""
    host, colon, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed) or not port.isascii() or not port.isdigit():
        raise ValueError(f"[metrics] listen: {listen!r} is not HOST:PORT; write 127.0.0.1:9433 or [::1]:9433")
    if int(port) > 65535:
        raise ValueError(f"[metrics] listen: {listen!r}: a port is at most 65535; 0 takes a free one")
    return host.strip("[]"), int(port)


class MetricsListener:
    """One listening address. `start` binds it, `stop` ends it within a second; both are for the owner's thread."""

    def __init__(self, exposition: Exposition, listen: str) -> None:
        self._host, self._port = parse_listen(listen)
        self._scrapers = Scrapers(exposition)
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address that is listened on, with the port taken where 0 was asked for."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def start(self) -> None:
        """Listen from now on. Raises OSError with key, address and remedy in its text."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
            listening.listen(64)
        except OSError as error:
            listening.close()
            hint = "another program has it" if error.errno == errno.EADDRINUSE else "choose another address"
            raise OSError(error.errno, f"metrics.listen: {self.address}: {error.strerror}; {hint}") from error
        self._port = listening.getsockname()[1]
        self._socket = listening
        self._thread = threading.Thread(target=self._scrapers.run, args=(listening,), name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End listening and whatever is being served. A listener that never started is no error."""
        if self._socket is None or self._thread is None:
            return
        self._scrapers.stop(self._socket)
        self._thread.join(timeout=1.0)
        self._socket.close()
        self._socket = None


class MetricsServer:
    """`/metrics` of one registry on all its listening addresses; either all of them are listened on or none.

    `listen` are addresses as `parse_listen` reads them, `hosts` further names that scrapers know us by. `on_refused` is
    told `host` for every request that names neither, on the thread of that request.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        listen: Sequence[str],
        hosts: Iterable[str] = (),
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        exposition = Exposition(registry, [*hosts, *(parse_listen(address)[0] for address in listen)], on_refused)
        self._listeners = [MetricsListener(exposition, address) for address in listen]

    @property
    def addresses(self) -> list[str]:
        """What is listened on, with the ports taken."""
        return [listener.address for listener in self._listeners]

    def start(self) -> None:
        """Listen on all addresses. Raises OSError, with none of them bound, when one cannot be had."""
        try:
            for listener in self._listeners:
                listener.start()
        except OSError:
            self.stop()
            raise

    def stop(self) -> None:
        """End within about a second."""
        for listener in self._listeners:
            listener.stop()

"""Owns the threads and sockets that serve `/metrics`, apart from the event loop, so that a stuck loop can be seen."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry

from mcpvisor.metrics.exposition import Exposition, refusal

_log = logging.getLogger(__name__)

SCRAPES_AT_ONCE: Final = 8
HEAD_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 15.0


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
    """One listening address. `start` binds it, `stop` ends it within a second; both are for the owner's thread.

    Scrapes are served on threads of their own, at most `SCRAPES_AT_ONCE`; further ones get 503 at once. Each has
    `HEAD_SECONDS` to say what it wants and `WRITE_SECONDS` to take it, in all, so that no reader is worth waiting for.
    """

    def __init__(self, exposition: Exposition, listen: str) -> None:
        self._exposition = exposition
        self._host, self._port = parse_listen(listen)
        self._socket: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._slots = threading.BoundedSemaphore(SCRAPES_AT_ONCE)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    @property
    def address(self) -> str:
        """The address that is listened on, with the port taken where 0 was asked for."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def start(self) -> None:
        """Listen from now on. Raises OSError with the address in its text."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
            listening.listen(64)
        except OSError as error:
            listening.close()
            raise OSError(error.errno, f"[metrics] listen {self.address}: {error.strerror}") from error
        self._port = listening.getsockname()[1]
        self._socket = listening
        self._acceptor = threading.Thread(target=self._accept, args=(listening,), name="metrics", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """End listening and whatever is being served. A listener that never started is no error."""
        if self._socket is None or self._acceptor is None:
            return
        with self._lock:
            self._stopping.set()
            for connection in self._open:
                _shut(connection)
        _shut(self._socket)  # wakes the acceptor, which a mere close would not
        self._acceptor.join(timeout=1.0)
        self._socket.close()
        self._socket = None

    def _accept(self, listening: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = listening.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                _log.warning("metrics: cannot accept a connection: %s", error)
                time.sleep(0.1)  # no free descriptor: there will be one, and a spinning thread would not help
                continue
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), name="metrics scrape", daemon=True).start()
            else:
                _turn_away(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                with self._lock:
                    if self._stopping.is_set():
                        return
                    self._open.add(connection)
                try:
                    self._answer(connection)
                finally:
                    with self._lock:
                        self._open.discard(connection)
        except OSError as error:  # the reader went away or was too slow: its loss, and no news for an operator
            _log.debug("metrics: a scrape ended early: %s", error)
        except Exception:  # noqa: BLE001  # the last frame of a thread: what is not logged here is lost
            _log.exception("metrics: a scrape failed")
        finally:
            self._slots.release()

    def _answer(self, connection: socket.socket) -> None:
        head = _read_head(connection)
        if head is None:
            response = refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {HEAD_BYTES} bytes")
        elif not head:
            return
        else:
            response = self._exposition.respond(head)
        _write(connection, response)


def _read_head(connection: socket.socket) -> bytes | None:
    """The head without its empty line; empty when the peer left before its end, None when it is too long."""
    deadline = time.monotonic() + HEAD_SECONDS
    received = b""
    while b"\r\n\r\n" not in received:
        if len(received) > HEAD_BYTES:
            return None
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        data = connection.recv(4096)
        if not data:
            return b""
        received += data
    return received.partition(b"\r\n\r\n")[0]


def _write(connection: socket.socket, response: bytes) -> None:
    connection.settimeout(WRITE_SECONDS)
    connection.sendall(response)  # its timeout covers all of the data, not each piece of it
    connection.shutdown(socket.SHUT_WR)


def _turn_away(connection: socket.socket) -> None:
    """Say 503 without waiting for anything."""
    with connection:
        connection.setblocking(False)
        try:
            connection.send(refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapes at once", ("Retry-After: 5",)))
        except OSError as error:
            _log.debug("metrics: a scraper that was turned away had gone already: %s", error)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _log.debug("metrics: a socket was closed already: %s", error)


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

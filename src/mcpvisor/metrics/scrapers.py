"""Owns the connections of scrapers: which have not asked yet, which are answered, and which gives way to a newer one."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from mcpvisor.metrics.exposition import Exposition, refusal

_log = logging.getLogger(__name__)

SCRAPES_AT_ONCE: Final = 8
WAITING_AT_ONCE: Final = 32
HEAD_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 15.0
STALLED_SECONDS: Final = 0.5
"""A reader that has taken nothing for this long gives way to one that has just asked."""
TOLD_SECONDS: Final = 60.0
"""A shortage of room is logged when it begins, and then once in this time."""

_PIECE: Final = 256 * 1024
_END: Final = b"\r\n\r\n"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A connection that has not asked yet; `received` is what has come of its head."""

    connection: socket.socket
    since: float
    received: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Take what has arrived; whether nothing more is to be waited for. Raises OSError."""
        while not self.is_asking:
            try:
                data = self.connection.recv(4096)
            except BlockingIOError:
                return False
            if not data:
                return True
            self.received += data
        return True

    @property
    def is_asking(self) -> bool:
        return _END in self.received or len(self.received) > HEAD_BYTES

    @property
    def head(self) -> bytes | None:
        """The head without its empty line; None when it is too long."""
        head, end, _ = self.received.partition(_END)
        return bytes(head) if end else None


@dataclass(slots=True, eq=False)
class _Reader:
    """A connection that is answered; `taken_at` is when it last took something of it, None before there is an answer."""

    connection: socket.socket
    taken_at: float | None = None


class Shortage:
    """Counts what was closed or refused for want of room, and says it once in a while. Times are a monotonic clock's."""

    def __init__(self) -> None:
        self._gave_way = 0
        self._refused = 0
        self.due_at: float | None = None
        """When there is something to tell; None while there is nothing."""
        self._told_at: float | None = None

    def gave_way(self, now: float) -> None:
        """A connection was closed in favour of a newer one."""
        self._gave_way += 1
        self._count(now)

    def refused(self, now: float) -> None:
        """A scrape was refused, all places being taken by others that are answered."""
        self._refused += 1
        self._count(now)

    def tell(self, now: float) -> str:
        """What is to be logged now, empty where nothing is."""
        if self.due_at is None or now < self.due_at:
            return ""
        parts = [
            f"{self._gave_way} connections that asked nothing, or took no answer, were closed for newer ones",
            f"{self._refused} scrapes were refused",
        ]
        told = " and ".join(part for part, count in zip(parts, (self._gave_way, self._refused), strict=True) if count)
        self._gave_way = self._refused = 0
        self._told_at, self.due_at = now, None
        return f"metrics: too many connections at once: {told}; look who else connects to this address"

    def _count(self, now: float) -> None:
        if self.due_at is None:
            self.due_at = now if self._told_at is None else max(now, self._told_at + TOLD_SECONDS)


class Scrapers:
    """The connections to one listening socket, served until `stop`; `run` is for a thread of its own.

    At most `WAITING_AT_ONCE` connections have not asked yet, for `HEAD_SECONDS` each: a further one takes the place of the
    one that came first, unless that has asked by then. At most `SCRAPES_AT_ONCE` are answered, each on a thread of its own
    and for `WRITE_SECONDS` in all: a further one takes the place of the reader that has taken nothing for longest, or gets
    503 where all of them take what they asked for. So nobody keeps others out by being connected.
    """

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._selector = selectors.DefaultSelector()
        self._waiting: dict[socket.socket, _Waiting] = {}  # in the order in which they came; of the thread of `run` alone
        self._readers: set[_Reader] = set()
        self._lock = threading.Lock()  # of the readers
        self._shortage = Shortage()
        self._stopping = threading.Event()

    def stop(self, listening: socket.socket) -> None:
        """Make `run` return, and end every answer that is on its way."""
        with self._lock:
            self._stopping.set()
            for reader in self._readers:
                _shut(reader.connection)
        _shut(listening)  # wakes the selector, which a mere close would not

    def run(self, listening: socket.socket) -> None:
        """Take connections and serve them until `stop`."""
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)
        while not self._stopping.is_set():
            ready = [key.fileobj for key, _ in self._selector.select(self._patience(time.monotonic()))]
            for one in [self._waiting[each] for each in ready if isinstance(each, socket.socket) and each in self._waiting]:
                self._look(one)
            if listening in ready:
                self._accept(listening)
            self._drop_overdue(time.monotonic())
            if told := self._shortage.tell(time.monotonic()):
                _log.warning("%s", told)
        for one in [*self._waiting.values()]:
            self._forget(one).close()
        self._selector.close()

    def _patience(self, now: float) -> float | None:
        """Seconds until something is due by itself."""
        first = next(iter(self._waiting.values()), None)
        due = [first.since + HEAD_SECONDS] if first is not None else []
        if self._shortage.due_at is not None:
            due.append(self._shortage.due_at)
        return max(0.0, min(due) - now) if due else None

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # it has left again
        except OSError as error:
            if not self._stopping.is_set():
                _log.warning("metrics: cannot accept a connection: %s", error)
                time.sleep(0.1)  # no free descriptor: there will be one, and a spinning thread would not help
            return
        if len(self._waiting) >= WAITING_AT_ONCE:
            self._make_room()
        connection.setblocking(False)
        one = self._waiting[connection] = _Waiting(connection, time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)
        self._look(one)

    def _make_room(self) -> None:
        first = next(iter(self._waiting.values()))
        self._look(first)  # what has arrived whole meanwhile is served
        if first.connection in self._waiting:
            self._shortage.gave_way(time.monotonic())
            self._forget(first).close()

    def _look(self, one: _Waiting) -> None:
        """Serve it when it has asked, and let it go when it has left."""
        try:
            if not one.read():
                return
        except OSError as error:
            _log.debug("metrics: a connection was lost: %s", error)
        connection = self._forget(one)
        if one.is_asking:
            self._serve(_Reader(connection), one.head)
        else:
            connection.close()

    def _forget(self, one: _Waiting) -> socket.socket:
        self._selector.unregister(one.connection)
        return self._waiting.pop(one.connection).connection

    def _drop_overdue(self, now: float) -> None:
        for one in [*self._waiting.values()]:
            if now < one.since + HEAD_SECONDS:
                return
            self._forget(one).close()

    def _serve(self, reader: _Reader, head: bytes | None) -> None:
        now = time.monotonic()
        with self._lock:
            if self._stopping.is_set():
                reader.connection.close()
                return
            if len(self._readers) >= SCRAPES_AT_ONCE:
                slowest = slowest_of(self._readers, now)
                if slowest is None:
                    self._shortage.refused(now)
                    _turn_away(reader.connection)
                    return
                self._shortage.gave_way(now)
                self._readers.discard(slowest)
                _shut(slowest.connection)
            self._readers.add(reader)
        threading.Thread(target=self._answer, args=(reader, head), name="metrics scrape", daemon=True).start()

    def _answer(self, reader: _Reader, head: bytes | None) -> None:
        try:
            with reader.connection:
                try:
                    self._write(reader, self._response(head))
                finally:
                    with self._lock:
                        self._readers.discard(reader)
        except OSError as error:  # the reader went away or was too slow: its loss, and no news for an operator
            _log.debug("metrics: a scrape ended early: %s", error)
        except Exception:  # noqa: BLE001  # the last frame of a thread: what is not logged here is lost
            _log.exception("metrics: a scrape failed")

    def _response(self, head: bytes | None) -> bytes:
        if head is None:
            return refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {HEAD_BYTES} bytes")
        return self._exposition.respond(head)

    def _write(self, reader: _Reader, response: bytes) -> None:
        deadline = time.monotonic() + WRITE_SECONDS
        left = memoryview(response)
        while left:
            now = reader.taken_at = time.monotonic()
            reader.connection.settimeout(max(0.001, deadline - now))
            left = left[reader.connection.send(left[:_PIECE]) :]
        reader.connection.shutdown(socket.SHUT_WR)


def slowest_of(readers: set[_Reader], now: float) -> _Reader | None:
    """The reader that has taken nothing for longest, of those that have not for `STALLED_SECONDS`; None where all do."""
    stalled = [(one.taken_at, one) for one in readers if one.taken_at is not None and now - one.taken_at > STALLED_SECONDS]
    return min(stalled, key=lambda found: found[0])[1] if stalled else None


def _turn_away(connection: socket.socket) -> None:
    """Say 503 without waiting for anything."""
    with connection:
        connection.setblocking(False)
        try:
            connection.send(refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapes at once", ("Retry-After: 5",)))
        except OSError as error:
            _log.debug("metrics: a scraper that was turned away had gone already: %s", error)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # it was closed already
        connection.shutdown(socket.SHUT_RDWR)

"""Owns the looking up of host names: on threads of its own, one flight for each host, the last good answer kept."""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
import anyio.from_thread
from anyio.lowlevel import EventLoopToken, current_token

LOOKUP_SECONDS: Final = 5.0
FRESH_SECONDS: Final = 5.0
"""How long an answer is used without asking again: one burst of connections makes one lookup."""

WORKERS: Final = 64
"""Threads at most: one for each host whose lookup hangs, so that the others' lookups find one free."""
_IDLE_SECONDS: Final = 30.0

Lookup = Callable[[str], list[str]]


class Addresses(Protocol):
    """Looks up the addresses of hosts."""

    async def addresses(self, host: str) -> list[str]:
        """The numeric addresses of a host, in order of preference. Raises LookupFailed."""
        ...


class LookupFailed(OSError):
    """A host name has no address, as far as is known within the deadline."""


def system_lookup(host: str) -> list[str]:
    """The addresses the system knows for a host, in its order; an IPv6 scope is kept. Blocks. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    texts = [socket.getnameinfo(entry[4], socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0] for entry in found]
    return list(dict.fromkeys(texts))


@dataclass(slots=True, eq=False)
class _Flight:
    host: str
    waiting: list[tuple[EventLoopToken, anyio.Event]] = field(default_factory=list[tuple[EventLoopToken, anyio.Event]])
    error: str = ""


class Resolver:
    """Looks up host names without ever blocking a loop.

    A lookup that hangs holds one of `workers` threads until the system gives up on it, and no caller for longer than
    `deadline` seconds. Meant to be shared by all servers of a process; every method may be called from any loop.
    """

    def __init__(self, lookup: Lookup = system_lookup, *, deadline: float = LOOKUP_SECONDS, workers: int = WORKERS) -> None:
        self._lookup = lookup
        self._deadline = deadline
        self._most_workers = workers
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Flight] = queue.SimpleQueue()
        self._workers = 0
        self._flights: dict[str, _Flight] = {}
        self._good: dict[str, tuple[float, list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """The numeric addresses of a host, in order of preference. Raises LookupFailed."""
        if _is_numeric(host):
            return [host]
        if host == "localhost" or host.endswith(".localhost"):
            return ["127.0.0.1", "::1"]  # RFC 6761; many hosts files know one of them only
        answered = anyio.Event()
        entry = (current_token(), answered)
        with self._lock:
            known = self._good.get(host)
            if known is not None and time.monotonic() - known[0] < FRESH_SECONDS:
                return known[1]
            flight = self._flights.get(host) or self._take_off(host)
            flight.waiting.append(entry)
        try:
            with anyio.move_on_after(self._deadline):
                await answered.wait()
        finally:
            with self._lock:
                # A loop that nobody waits in any more must not be called into: it may be gone.
                if entry in flight.waiting:
                    flight.waiting.remove(entry)
                known = self._good.get(host)
        if known is not None:
            return known[1]
        why = flight.error or f"no answer within {self._deadline:g} s"
        raise LookupFailed(f"the address of {host!r} cannot be found: {why}")

    def _take_off(self, host: str) -> _Flight:
        flight = self._flights[host] = _Flight(host)
        self._jobs.put(flight)
        if self._workers < min(len(self._flights), self._most_workers):
            self._workers += 1
            # A daemon thread: a lookup that hangs must not hold the end of the process.
            threading.Thread(target=self._work, name="mcpvisor-resolver", daemon=True).start()
        return flight

    def _work(self) -> None:
        while True:
            try:
                flight: _Flight | None = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                flight = None
            if flight is not None:
                self._fly(flight)
                continue
            with self._lock:
                if self._jobs.empty():
                    self._workers -= 1
                    return

    def _fly(self, flight: _Flight) -> None:
        found: list[str] = []
        try:
            found = self._lookup(flight.host)
        except (OSError, ValueError) as error:
            flight.error = str(error)
        with self._lock:
            if found:
                self._good[flight.host] = (time.monotonic(), found)
            del self._flights[flight.host]
            waiting, flight.waiting = flight.waiting, []
        for token, answered in waiting:
            try:
                anyio.from_thread.run_sync(answered.set, token=token)
            except anyio.RunFinishedError:
                continue  # that loop has ended, and its callers with it


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


SHARED: Final = Resolver()
"""The resolver of this process: its bound on threads only holds when it is one for all servers."""

"""Owns the conversation with systemd: what it handed over at start, and what it is told over the notify socket."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from mcpvisor.supervisor.errors import McpvisorError
from mcpvisor.supervisor.secret import Secret

_log = logging.getLogger(__name__)

FIRST_LISTEN_FD: Final = 3
CREDENTIAL_BYTES: Final = 1024 * 1024
"""The most that systemd itself lets a unit have in credentials."""

EXTENSION_SECONDS: Final = 15.0
"""How much time is asked for at once while the daemon stops: a daemon that hangs is killed when that is over."""


class CredentialMissing(McpvisorError):
    """A credential that systemd did not hand over, or that cannot be read; the text names the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What systemd handed over at start; all of it absent when something else started us."""

    notify_socket: str | None = None
    watchdog_seconds: float | None = None
    """How long systemd waits for a ping before it kills us."""
    listen_fds: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Sockets that listen already, by the name their unit gave them (`unknown` without one)."""


def take_handover(environ: MutableMapping[str, str] = os.environ, pid: int | None = None) -> Handover:
    """Read what is meant for this process, and remove it from `environ`, so that no child takes it for its own.

    `$CREDENTIALS_DIRECTORY` stays: it is a path that every reload reads anew, and the supervisor keeps it from children.
    """
    pid = os.getpid() if pid is None else pid
    notify = environ.pop("NOTIFY_SOCKET", None)
    watchdog, watchdog_pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", str(pid))
    names = environ.pop("LISTEN_FDNAMES", "")
    count, listen_pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_PIDFDID", None)
    for_us = watchdog.isdigit() and int(watchdog) > 0 and watchdog_pid == str(pid)
    return Handover(
        notify_socket=notify or None,
        watchdog_seconds=int(watchdog) / 1e6 if for_us else None,
        listen_fds=_listen_fds(int(count), names) if count.isdigit() and listen_pid == str(pid) else {},
    )


def _listen_fds(count: int, names: str) -> dict[str, tuple[int, ...]]:
    given = names.split(":") if names else []
    found: dict[str, tuple[int, ...]] = {}
    for index in range(count):
        name = given[index] if index < len(given) else "unknown"
        descriptor = FIRST_LISTEN_FD + index
        os.set_inheritable(descriptor, False)  # whoever hands a socket over leaves it inheritable
        found[name] = (*found.get(name, ()), descriptor)
    return found


def credential(name: str, environ: Mapping[str, str] = os.environ) -> Secret:
    """The credential of that name, without one newline at its end.

    Raises CredentialMissing when there is none, when the name is no plain file name, or when it is not UTF-8.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise CredentialMissing(f"credential {name!r}: $CREDENTIALS_DIRECTORY is not set; LoadCredential= of the unit does")
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise CredentialMissing(f"credential {name!r}: a credential's name is a plain file name")
    try:
        with (Path(folder) / name).open("rb") as file:
            value = file.read(CREDENTIAL_BYTES + 1)
    except OSError as error:
        raise CredentialMissing(f"credential {name!r}: {error.strerror}; add LoadCredential={name}:PATH to the unit") from error
    if len(value) > CREDENTIAL_BYTES:
        raise CredentialMissing(f"credential {name!r}: more than {CREDENTIAL_BYTES} bytes")
    try:
        return Secret(value.decode().removesuffix("\n"))
    except UnicodeDecodeError as error:
        raise CredentialMissing(f"credential {name!r}: not UTF-8 at byte {error.start}") from None


class Notifier:
    """Tells systemd what the daemon does; without a notify socket every method does nothing.

    No method waits or raises. A datagram that the socket does not take now is lost when a later one says the same better
    (status, pings); READY, RELOADING and STOPPING are kept, the newest of them, and go out before the next message.
    Each method says whether its message was taken.
    """

    def __init__(self, address: str | None) -> None:
        self._address = ""
        self._socket: socket.socket | None = None
        self._owed: bytes | None = None
        self._complained = False
        if address is None:
            return
        if address[0] not in "/@":
            _log.warning("systemd: NOTIFY_SOCKET %r is neither a path nor an abstract name; it is told nothing", address)
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._address = "\0" + address[1:] if address[0] == "@" else address

    def ready(self, status: str = "") -> bool:
        """Start-up, or a reload, is over. The configuration is loaded and the sockets listen; servers may still start."""
        return self._tell("READY=1", *_status(status), keep=True)

    def reloading(self, status: str = "") -> bool:
        """A reload begins; `ready` must follow, also when it fails."""
        stamp = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._tell("RELOADING=1", f"MONOTONIC_USEC={stamp}", *_status(status), keep=True)

    def stopping(self, status: str = "") -> bool:
        """The daemon's end has begun."""
        return self._tell("STOPPING=1", *_status(status), keep=True)

    def status(self, text: str) -> bool:
        """One line for `systemctl status`."""
        return self._tell(*_status(text))

    def watchdog(self) -> bool:
        """The daemon is alive."""
        return self._tell("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> bool:
        """The start, reload or stop under way needs up to `seconds` from now on."""
        return self._tell(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def close(self) -> None:
        """Tell nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *assignments: str, keep: bool = False) -> bool:
        if self._socket is None or not assignments:
            return False
        message = "\n".join(assignments).encode("utf-8", "replace")
        if keep:
            self._owed = None  # a newer turn of the daemon's life replaces one that was never heard of
        elif self._owed is not None and self._send(self._owed):
            self._owed = None
        taken = self._send(message)
        if keep and not taken:
            self._owed = message
        return taken

    def _send(self, message: bytes) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendto(message, self._address)
        except OSError as error:
            if not self._complained:  # the first time only: pings would repeat it for ever
                _log.warning("systemd: the notify socket does not take messages: %s", error)
                self._complained = True
            return False
        self._complained = False
        return True


def _status(text: str) -> tuple[str, ...]:
    """The STATUS assignment. A line break in it would begin another assignment, and the text may quote a server."""
    return (f"STATUS={' '.join(text.split())}",) if text else ()


class Watchdog:
    """Pings at a third of systemd's interval, but only while `fresh` says that the supervisor's own ticks are fresh.

    It runs on the event loop and never on a thread, which would go on pinging for a loop that is stuck.
    """

    def __init__(self, notifier: Notifier, seconds: float, fresh: Callable[[], bool]) -> None:
        self._notifier = notifier
        self._seconds = seconds
        self._fresh = fresh

    async def run(self) -> None:
        """Ping until cancelled."""
        while True:
            if self._fresh():
                self._notifier.watchdog()
            else:
                _log.warning("systemd: no watchdog ping: the supervisor's ticks are stale")
            await anyio.sleep(self._seconds / 3)


async def extend_stop(notifier: Notifier, seconds: float) -> None:
    """Keep systemd waiting for a stop that may take longer than TimeoutStopSec=, for at most `seconds`.

    It runs on the event loop: once that is stuck, or the time is over, systemd ends the daemon as its unit says.
    """
    end = anyio.current_time() + seconds
    while (left := end - anyio.current_time()) > 0:
        notifier.extend_timeout(min(EXTENSION_SECONDS, left))
        await anyio.sleep(EXTENSION_SECONDS / 3)

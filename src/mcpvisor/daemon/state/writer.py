"""Owns the thread that writes the state file: when it writes, what it does about each failure, and when it tries again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcpvisor.daemon.state.database import Database, Loaded
from mcpvisor.daemon.state.faults import FaultKind, StoreFault
from mcpvisor.daemon.state.kept import Limits
from mcpvisor.daemon.state.opening import is_empty, load_read_only, move_aside, open_database, release_reserve
from mcpvisor.daemon.state.pending import Pending

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
RETRY_MAX: Final = 15.0
TIDY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The first try to open the file is over; `loaded` is what could be read."""

    loaded: Loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Every change up to `number` is in the file."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The file takes nothing now."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """The file is a new one, so that all that is in memory has to be written.

    `aside` is where the damaged one is, None where there was none any more; `reason` is what was wrong.
    """

    aside: Path | None
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The thread is over."""


Report = Opened | Written | Failed | Emptied | Ended


class Writer:
    """The one thread that touches the state file. `report` is called in it, and must hand over to where it is read."""

    def __init__(self, path: Path, pending: Pending, limits: Limits, report: Callable[[Report], None]) -> None:
        self._path = path
        self._pending = pending
        self._limits = limits
        self._report = report
        self._database: Database | None = None
        self._had_file = False
        """Whether this run has had the file open, and so knows what is in it."""
        self._delay = 0.0
        """Seconds until the next try after a failure; 0 while there is none."""
        self._tidied_at = 0.0
        self._busy_since: float | None = None

    def start(self) -> None:
        """Begin. The thread does not keep the process: one that hangs on a disk could not be ended by anybody."""
        threading.Thread(target=self._run, name="state-store", daemon=True).start()

    @property
    def busy_seconds(self) -> float:
        """For how long the work at hand has been going on; 0 where there is none. For any thread."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    # In the thread

    def _run(self) -> None:
        try:
            self._begin()
            is_last = False
            while not is_last:
                self._pending.wait(self._delay or TIDY_SECONDS, gather=not self._delay)
                is_last = self._pending.is_closed
                self._attempt()
            self._close()
        except Exception:  # noqa: BLE001 - a fault of ours must cost the file only, and be seen
            _log.exception("the thread of the state store has failed; what is new is kept in memory only from now on")
            self._report(Failed(reason="its thread has failed, see the log"))
        finally:
            self._report(Ended())

    def _begin(self) -> None:
        self._busy_since = time.monotonic()
        was_emptied = is_empty(self._path)
        try:
            loaded = self._opened().load()
            if was_emptied:
                self._report(Emptied(aside=None, reason=f"{self._path} was empty (0 bytes)"))
        except StoreFault as fault:
            loaded = self._saved(fault)
        self._report(Opened(loaded=loaded))
        self._attempt()

    def _saved(self, fault: StoreFault) -> Loaded:
        """What can be had of a file that cannot be opened as it should be."""
        if fault.kind is not FaultKind.CORRUPT:
            return load_read_only(self._path) if fault.kind is not FaultKind.REFUSED else Loaded()
        self._close()
        try:
            self._start_afresh(fault)
        except StoreFault as second:
            self._failed(second)
        return Loaded()

    def _attempt(self) -> None:
        """Write what waits."""
        self._busy_since = time.monotonic()
        try:
            self._bring()
        except StoreFault as fault:
            self._failed(fault)
        else:
            self._delay = 0.0
        finally:
            self._busy_since = None

    def _bring(self) -> None:
        try:
            database = self._opened()
        except StoreFault as fault:
            if fault.kind is not FaultKind.CORRUPT:
                raise
            self._close()
            self._start_afresh(fault)  # all that is in memory comes to be written by the next batch
            return
        batch = self._pending.take()
        try:
            try:
                database.write(batch)
            except StoreFault as fault:
                if fault.kind is not FaultKind.FULL or not (self._delay == 0.0 or database.is_at_cap):
                    raise  # history is given up once for a disk that others have filled, and not again at each try
                database.make_room()
                database.write(batch)
            if time.monotonic() - self._tidied_at > TIDY_SECONDS:
                self._tidied_at = time.monotonic()
                database.tidy(time.time())
        except StoreFault as fault:
            self._pending.give_back(batch)
            if fault.kind is not FaultKind.CORRUPT:
                raise
            self._close()
            self._start_afresh(fault)
        else:
            self._report(Written(number=batch.number))

    def _opened(self) -> Database:
        """The file, opened again where it was replaced or removed behind our back. Raises StoreFault, also where it was cut."""
        if self._database is not None and not self._database.is_in_place:
            self._close()
        elif self._database is not None and self._database.was_cut:
            self._database.examine()
        if self._database is None:
            self._database = self._open()
            if self._database.is_fresh and self._had_file:
                self._report(Emptied(aside=None, reason=f"{self._path} was removed"))
            self._had_file = True
        return self._database

    def _open(self) -> Database:
        try:
            return open_database(self._path, self._limits)
        except StoreFault as fault:
            if fault.kind is not FaultKind.FULL:
                raise
            release_reserve(self._path)  # SQLite needs a little room to look into a file
            return open_database(self._path, self._limits)

    def _start_afresh(self, fault: StoreFault) -> None:
        aside = move_aside(self._path)
        self._database = open_database(self._path, self._limits)
        self._had_file = True
        self._report(Emptied(aside=aside, reason=fault.reason))

    def _failed(self, fault: StoreFault) -> None:
        self._delay = min(self._delay * 2, RETRY_MAX) if self._delay else RETRY_SECONDS
        if fault.kind is not FaultKind.FULL:
            self._close()  # whatever is wrong with it, it is looked at anew the next time
        self._report(Failed(reason=fault.reason))

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is None:
            return
        try:
            database.close()
        except StoreFault as fault:
            _log.debug("the state file could not be closed: %s", fault.reason)

"""Owns the knowledge that the files of the configuration have changed: hints from the system, and a look of its own.

Folders are watched, not files: a watched file is lost with its first atomic rename. Any hint leads to a quiet moment and
then to a comparison of contents, and so does the passing of time, since some file systems give no hints at all, and
whatever is above the watched folders gives none here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from mcpvisor.daemon.config.absences import Absences
from mcpvisor.daemon.config.folder_events import FolderEvent, FolderEvents
from mcpvisor.daemon.config.look import Fingerprint, Folder, Look, identified, look
from mcpvisor.daemon.config.open_writers import OpenWriters

_log = logging.getLogger(__name__)

QUIET: Final = 0.2
"""Seconds without a further hint before the files are looked at."""
LONGEST_STIR: Final = 5.0
"""Seconds after which they are looked at although the hints do not stop."""
LONGEST_WRITE: Final = 10.0
"""Seconds after which a file counts as it is, although somebody has written to it and not closed it."""
INTERVAL: Final = 10.0
"""Seconds between looks without any hint."""
INTERVAL_WITHOUT_HINTS: Final = 2.0
"""The same where the system refuses to give hints."""
LOOK_WITHIN: Final = 30.0
"""Seconds that one look may take; what a dead file system holds is then unreadable."""

_FOLDERS: Final = 2.0
"""Seconds between looks whether the watched folders are still the same ones."""
_GATHER: Final = 0.05
"""Seconds between reads of a queue that is never empty."""


class ConfigWatcher:
    """Calls `changed` when the content of the configuration is another than at the last call."""

    def __init__(
        self,
        paths: Sequence[Path],
        changed: Callable[[], Awaitable[object]],
        *,
        seen: Callable[[], Fingerprint],
        gone: Callable[[Mapping[Path, float]], None] = lambda _: None,
        absent: Callable[[Mapping[Path, float]], None] = lambda _: None,
        recheck_at: Callable[[], float | None] = lambda: None,
        quiet: float = QUIET,
        interval: float = INTERVAL,
    ) -> None:
        """`seen` is what was in the files right before they were last read, whoever had them read.

        `gone` is told before each call of `changed` which drop-ins are absent, and since when on the clock of
        `anyio.current_time`, and `absent` the same after every look. `recheck_at` tells when to call `changed` even though
        nothing was edited.
        """
        self._paths = tuple(paths)
        self._changed = changed
        self._seen = seen
        self._gone = gone
        self._absent = absent
        self._recheck_at = recheck_at
        self._quiet = quiet
        self._interval = interval
        self._unread: tuple[Fingerprint, Fingerprint] | None = None
        """What was read last, and what the last call was made for, where nothing could be read in it."""
        self._absences = Absences()
        self._events: FolderEvents | None = None
        self._is_refused = False
        self._writers = OpenWriters()
        self._folders: tuple[Folder, ...] = ()
        """What is watched now; empty where that has to be done anew."""
        self._matters: set[str] = set()
        """Paths of which any event is a hint; of others only that they come and go."""
        self._workers = anyio.CapacityLimiter(4)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        try:
            now = await self._settled()
            task_status.started()
            while True:
                if self._is_news(now.contents):
                    before = self._seen()
                    self._gone(self._absences.since)
                    await self._changed()
                    self._unread = (before, now.contents) if self._seen() is before else None
                else:
                    await self._stir()
                now = await self._settled()
        finally:
            if self._events is not None:
                self._events.close()

    def _is_news(self, now: Fingerprint) -> bool:
        time, due = anyio.current_time(), self._recheck_at()
        is_news = self._absences.is_news(self._seen(), now, time)
        self._absent(self._absences.since)
        if self._unread is not None and self._unread[0] is self._seen():
            # It is not tried again and again; what can be read again has to be read, be it as it was.
            return now != self._unread[1]
        return is_news or (due is not None and due <= time)

    # Waiting

    async def _stir(self) -> None:
        """Return after a hint and the quiet that follows it, or when a look is due without one."""
        interval = min(self._interval, INTERVAL_WITHOUT_HINTS) if self._is_refused else self._interval
        now = anyio.current_time()
        due = [time for time in (self._recheck_at(), self._absences.due) if time is not None and time > now]
        until = min([now + interval, *due])
        while (left := until - anyio.current_time()) > 0:
            if await self._hinted(min(left, _FOLDERS)):
                await self._calm()
                return
            if await self._has_other_folders():
                return

    async def _calm(self) -> None:
        latest = anyio.current_time() + LONGEST_STIR
        while await self._hinted(self._quiet) and anyio.current_time() < latest:  # noqa: ASYNC110 - it waits in `_hinted`
            await anyio.sleep(min(_GATHER, self._quiet))

    async def _hinted(self, within: float) -> bool:
        """Wait for a hint; False when none came in that many seconds."""
        with anyio.move_on_after(within):
            if self._events is None:
                await anyio.sleep_forever()
                return False
            while True:
                hints = [self._take(event) for event in await self._events.some()]
                if any(hints):
                    return True
                await anyio.sleep(_GATHER)
        return False

    def _take(self, event: FolderEvent) -> bool:
        """Take note of an event; whether it is a hint."""
        self._writers.took(event)
        if not event.is_entry:
            return event.path in self._matters
        if event.path in {folder for folder, _ in self._folders}:
            # A folder that is made anew may look like the old one, inode and all; the old watch is deaf to it.
            self._folders = ()
        self._matters.add(event.path)
        return True

    # Looking

    async def _settled(self) -> Look:
        """One look at files that nobody is writing, with a watch on their folders that stood before it."""
        latest = anyio.current_time() + LONGEST_WRITE
        while True:
            now = await self._look()
            self._matters = {*now.paths, *(folder for folder, _ in now.folders)}
            is_late = anyio.current_time() >= latest
            if await self._watch(now.folders) and not is_late:
                continue  # what happened before the watch stood gave no hint
            if is_late or not self._writers.are_at(now.paths, now.empty):
                return now
            if await self._hinted(latest - anyio.current_time()):
                await self._calm()

    async def _look(self) -> Look:
        read = partial(look, self._paths, [Path(path) for path, _ in self._seen().secrets])
        with anyio.move_on_after(LOOK_WITHIN):
            return await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._workers)
        unread = Fingerprint((("", f"not read within {LOOK_WITHIN:g} s"),))
        return Look(unread, self._folders, frozenset(), frozenset())

    async def _has_other_folders(self) -> bool:
        """Whether a path of a folder leads elsewhere by now: nobody tells of what happens above it."""
        again = partial(identified, [folder for folder, _ in self._folders])
        with anyio.move_on_after(LOOK_WITHIN):
            return self._folders != await anyio.to_thread.run_sync(again, abandon_on_cancel=True, limiter=self._workers)
        return False

    async def _watch(self, folders: tuple[Folder, ...]) -> bool:
        """Watch these folders where they are others than before, or were refused. Whether a new watch stands."""
        if folders == self._folders and not self._is_refused:
            return False
        is_other, was_refused = folders != self._folders, self._is_refused
        there = [folder for folder, identity in folders if identity is not None]
        try:
            self._events = self._events or FolderEvents()
            refused = list(
                (
                    await anyio.to_thread.run_sync(self._events.watch, there, abandon_on_cancel=True, limiter=self._workers)
                ).values()
            )
        except OSError as error:
            refused = [error]
        if is_other:
            self._folders, self._writers = folders, OpenWriters()
        self._is_refused = bool(refused)
        if refused and not was_refused:
            _log.warning("no hints of changed files (%s): looking every %g s", refused[0], INTERVAL_WITHOUT_HINTS)
        elif was_refused and not refused:
            _log.info("the system gives hints of changed files again")
        return is_other or was_refused != self._is_refused

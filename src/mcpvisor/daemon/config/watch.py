"""Owns the knowledge that the files of the configuration have changed: hints from the system, and a look of its own.

Folders are watched, not files: a watched file is lost with its first atomic rename. Any hint, whatever it says, leads
to a quiet moment and then to a comparison of contents, and so does the passing of time, since links, new folders and
some file systems give no hints at all.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
import watchfiles

from mcpvisor.daemon.config.config_file import MAX_BYTES
from mcpvisor.daemon.config.discovery import DROP_INS, discover

_log = logging.getLogger(__name__)

QUIET: Final = 0.2
"""Seconds without a further hint before the files are looked at."""
LONGEST_STIR: Final = 5.0
"""Seconds after which they are looked at although the hints do not stop."""
INTERVAL: Final = 10.0
"""Seconds between looks without any hint."""
INTERVAL_WITHOUT_HINTS: Final = 2.0
"""The same where the system refuses to give hints."""

_FOLDERS: Final = 2.0
"""Seconds between looks whether the watched folders are still the same ones."""
_FIRST_LOOK: Final = 0.25
"""Seconds that a new watch is given to stand, before the look for what happened until then."""

_Folder = tuple[str, int, int]
"""A folder with the device and inode that tell it from another of the same path."""

Digests = tuple[tuple[str, str], ...]
"""Files, each with the digest of its content or with the reason why it has none."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a configuration contains at one moment: its own files, and the secrets that are put into its entries."""

    files: Digests
    secrets: Digests


def fingerprint(paths: Sequence[Path], secrets: Iterable[Path] = ()) -> Fingerprint:
    """What the files of a configuration, and `secrets` beside them, contain now. Times and modes count for nothing."""
    found = discover(paths)
    files = [(str(file.path), _digest(file.path)) for file in found.files]
    files += [(str(folder), "listed") for folder in found.listed]
    return Fingerprint(tuple(files), tuple((str(path), _digest(path)) for path in sorted(set(secrets))))


def _digest(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                return f"no file to read: {stat.S_IFMT(info.st_mode)}, {info.st_size}"
            digest = hashlib.sha256()
            while piece := os.read(descriptor, 1 << 20):
                digest.update(piece)
            return digest.hexdigest()
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        return f"unreadable: {error}"


class ConfigWatcher:
    """Calls `changed` when the content of the configuration is another than at the last call."""

    def __init__(
        self,
        paths: Sequence[Path],
        changed: Callable[[], Awaitable[object]],
        *,
        secret_files: Callable[[], Iterable[Path]] = tuple,
        recheck_at: Callable[[], float | None] = lambda: None,
        quiet: float = QUIET,
        interval: float = INTERVAL,
        seen: Fingerprint | None = None,
    ) -> None:
        """`recheck_at` tells when to call `changed` even though nothing was edited.

        `seen` is what the files contained before they were first loaded, so that no edit falls between; without it, what
        they contain when `run` begins counts as known.
        """
        self._paths = tuple(paths)
        self._changed = changed
        self._secret_files = secret_files
        self._recheck_at = recheck_at
        self._quiet = quiet
        self._interval = interval
        self._hint = anyio.Event()
        self._moved = anyio.Event()
        self._has_hints = True
        self._seen = seen
        self._workers = anyio.CapacityLimiter(4)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled; what was seen before, or else what is there now, is what later contents are compared with."""
        now = await self._look()
        seen = Fingerprint(self._seen.files, now.secrets) if self._seen is not None else now
        async with anyio.create_task_group() as group:
            await group.start(self._hints)
            task_status.started()
            while True:
                await self._wait()
                now = await self._look()
                due = self._recheck_at()
                if now != seen or (due is not None and due <= anyio.current_time()):
                    await self._changed()
                    # Of the files what was seen before the reload counts, so that an edit during it is found by the
                    # next look; of secrets also those that the reload has brought in.
                    known = dict(now.secrets)
                    later = await self._look()
                    secrets = tuple((path, known.get(path, digest)) for path, digest in later.secrets)
                    seen = Fingerprint(now.files, secrets)

    async def _look(self) -> Fingerprint:
        look = partial(fingerprint, self._paths, tuple(self._secret_files()))
        return await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._workers)

    async def _wait(self) -> None:
        """Return after a hint and the quiet that follows it, or when a look is due without one."""
        interval = self._interval if self._has_hints else min(self._interval, INTERVAL_WITHOUT_HINTS)
        due = self._recheck_at()
        if due is not None:
            interval = min(interval, max(0.0, due - anyio.current_time()))
        with anyio.move_on_after(interval):
            await self._hint.wait()
        with anyio.move_on_after(LONGEST_STIR):
            while self._hint.is_set():
                self._hint = anyio.Event()
                with anyio.move_on_after(self._quiet):
                    await self._hint.wait()

    async def _hints(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Keep a watch on the folders that exist, and a new one when they are others than before."""
        folders = await self._folders()
        task_status.started()
        while True:
            stop = anyio.Event()
            async with anyio.create_task_group() as group:
                if folders:
                    group.start_soon(self._listen, [path for path, _, _ in folders], stop)
                try:
                    folders = await self._other_folders(folders)
                finally:
                    # The thread that waits for hints cannot be cancelled; it looks at this.
                    stop.set()

    async def _other_folders(self, before: list[_Folder]) -> list[_Folder]:
        """Return the folders when they are not these any more, or when one of them was touched itself."""
        await anyio.sleep(_FIRST_LOOK)
        # What happened before the watch stood gave no hint: one look for it.
        self._hint.set()
        while not self._moved.is_set() and await self._folders() == before:
            # Nobody tells of a folder made anew where its parent is not watched.
            with anyio.move_on_after(_FOLDERS):
                await self._moved.wait()
        self._moved = anyio.Event()
        return await self._folders()

    async def _folders(self) -> list[_Folder]:
        return await anyio.to_thread.run_sync(_existing_folders, self._paths, abandon_on_cancel=True, limiter=self._workers)

    async def _listen(self, folders: list[str], stop: anyio.Event) -> None:
        try:
            # Our own settle time follows; theirs is only to gather what comes at once.
            watching = watchfiles.awatch(*folders, watch_filter=None, debounce=100, step=100, recursive=False, stop_event=stop)
            async for changes in watching:
                self._has_hints = True
                self._hint.set()
                # A folder that is made anew may look like the old one, inode and all; the old watch is deaf to it.
                if any(path in folders or path.endswith(f"/{DROP_INS}") for _, path in changes):
                    self._moved.set()
        except Exception as error:  # noqa: BLE001 - as for a name that is no UTF-8; nothing in a folder may end the daemon
            if self._has_hints:
                self._has_hints = False
                _log.warning("no hints of changed files (%s): looking every %g s", error, INTERVAL_WITHOUT_HINTS)


def _existing_folders(paths: Sequence[Path]) -> list[_Folder]:
    """The folders to watch with their identities: a folder that was made anew is another one."""
    found: list[_Folder] = []
    for folder in discover(paths).folders:
        try:
            info = folder.stat()
        except OSError:
            continue
        found.append((str(folder), info.st_dev, info.st_ino))
    return found

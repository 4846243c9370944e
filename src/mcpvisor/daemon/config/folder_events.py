"""Owns the queue in which the system says what happens to the entries of folders: inotify, and nothing made of it."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import anyio

# Bits of linux/inotify.h.
_MODIFY: Final = 0x2
_ATTRIB: Final = 0x4
_CLOSE_WRITE: Final = 0x8
_MOVED: Final = 0xC0
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_OVERFLOW: Final = 0x4000
_ONLYDIR: Final = 0x1000000
_ISDIR: Final = 0x40000000

_WANTED: Final = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
"""Nothing about reading: our own would else be news."""
_OF_CONTENTS: Final = _MODIFY | _ATTRIB | _CLOSE_WRITE

_HEAD: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 16

_REMEDIES: Final = {
    errno.EMFILE: "raise fs.inotify.max_user_instances, or the limit of open files",
    errno.ENOSPC: "raise fs.inotify.max_user_watches",
}


@dataclass(frozen=True, slots=True)
class FolderEvent:
    """Something has happened to an entry of a folder, or to the folder itself: to contents and modes, unless it says more."""

    path: str
    """Empty where the system has lost count of what happened."""
    is_entry: bool = False
    """An entry came, went or was replaced, and another may now be reached through it."""
    is_new: bool = False
    """It is a file that was just made, and may be open to be written."""
    is_write: bool = False
    """A file was written to, and its writer has it open."""
    is_close: bool = False
    """A writer has closed it."""


class FolderEvents:
    """One queue of the system. Raises OSError where it gives none; to be closed."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._queue < 0:
            raise _refusal("")
        self._folders: dict[int, list[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def watch(self, folders: Iterable[str]) -> dict[str, OSError]:
        """Watch these folders, as they are now, and no others. Returns those that the system refuses to watch.

        A folder that is not there is none of them: whoever watches what is above it is told when it comes.
        """
        watched: dict[int, list[str]] = {}
        refused: dict[str, OSError] = {}
        for folder in folders:
            number = self._libc.inotify_add_watch(self._queue, os.fsencode(folder), _WANTED)
            if number >= 0:
                watched.setdefault(number, []).append(folder)  # two paths may be one folder
                continue
            error = _refusal(folder)
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                refused[folder] = error
        for number in self._folders.keys() - watched.keys():
            self._libc.inotify_rm_watch(self._queue, number)  # of a folder that is gone the system knows already
        self._folders = watched
        return refused

    async def some(self) -> list[FolderEvent]:
        """What has happened, as soon as anything has. None of it is lost when the wait is cancelled."""
        await anyio.wait_readable(self._queue)
        try:
            raw = os.read(self._queue, _READ_BYTES)
        except BlockingIOError:
            return []
        return list(events_in(raw, self._folders))

    def close(self) -> None:
        """Give the queue back; a second time is nothing."""
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1


def events_in(raw: bytes, folders: Mapping[int, list[str]]) -> Iterator[FolderEvent]:
    """What bytes of the queue say, where the numbers of watches stand for these folders."""
    at = 0
    while at < len(raw):
        number, mask, _, length = _HEAD.unpack_from(raw, at)
        name = os.fsdecode(raw[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
        at += _HEAD.size + length
        if mask & _OVERFLOW:
            yield FolderEvent("", is_entry=True)
        for folder in folders.get(number, ()):
            path = f"{folder.rstrip('/')}/{name}" if name else folder
            yield FolderEvent(
                path,
                is_entry=not mask & _OF_CONTENTS,
                is_new=bool(mask & _CREATE) and not mask & _ISDIR,
                is_write=bool(mask & _MODIFY),
                is_close=bool(mask & _CLOSE_WRITE),
            )


def _refusal(folder: str) -> OSError:
    number = ctypes.get_errno()
    text = os.strerror(number).lower()
    if number in _REMEDIES:
        text += f": {_REMEDIES[number]}"
    return OSError(number, text, folder) if folder else OSError(number, text)

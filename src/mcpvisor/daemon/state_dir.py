"""Owns the state folder: that one daemon at a time uses it, and which instance it was."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.trust import distrust
from mcpvisor.supervisor.errors import McpvisorError

_LOCK: Final = "lock"
_INSTANCE: Final = "instance"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class StateDirUnusable(McpvisorError):
    """The state folder cannot be used; the text names the folder and the remedy."""


class SecondInstance(McpvisorError):
    """Another daemon uses the state folder; exit code 75."""


class StateDir:
    """The folder while it is ours. `instance` is this run's id, `previous` that of the run before, if one is known.

    `read_only` says why nothing is written there, empty where all is: the servers run all the same.
    """

    def __init__(self, path: Path, instance: str, previous: str | None, read_only: str = "") -> None:
        self.path = path
        self.instance = instance
        self.previous = previous
        self.read_only = read_only

    def remember(self) -> None:
        """Write down this run's id, so that the next one can sweep what we might leave behind."""
        if not self.read_only:
            _write_whole(self.path / _INSTANCE, self.instance)


@contextmanager
def taken(path: Path) -> Generator[StateDir]:
    """The state folder, made (0700) where it is missing, and locked for as long as the context lasts.

    On a disk that is read-only it is used as it is: a disk that failed must not keep the servers down.
    Raises SecondInstance when another daemon holds it, StateDirUnusable when it cannot be written for another reason.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        distrusted = distrust(path, os.geteuid())
        if distrusted:
            raise StateDirUnusable(f"daemon.state_dir: {distrusted}")
        descriptor, read_only = _opened(path)
    except OSError as error:
        raise StateDirUnusable(
            f"daemon.state_dir: {path} cannot be written ({error.strerror}); make it writable or name another folder"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SecondInstance(f"another daemon uses {path} (see `mcpvisor status`)") from error
        yield StateDir(path, secrets.token_hex(8), _read(path / _INSTANCE), read_only)
    finally:
        os.close(descriptor)


def _opened(path: Path) -> tuple[int, str]:
    """What is locked, open, and why nothing can be written there: the lock's file, or the folder where it cannot be made."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | flags, 0o600), ""
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        why = f"{path} cannot be written ({error.strerror})"
    try:
        return os.open(path / _LOCK, os.O_RDONLY | flags), why
    except FileNotFoundError:  # then no daemon that holds it can be, but one that came here as we did
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | flags), why


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(65).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):  # the sweep of what a former run left is an extra, not a condition
        return None
    return text if text.isalnum() and len(text) <= 64 else None


def _overwritten(path: Path, text: str) -> bool:
    """Write over what is there, for which a full disk has room: a start must not fail for the want of a few bytes."""
    try:
        path.with_suffix(".new").unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.pwrite(descriptor, f"{text}\n".encode("ascii"), 0) == len(text) + 1
        finally:
            os.close(descriptor)
    except OSError:  # the first error is the one to tell of
        return False


def _write_whole(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    try:
        beside.unlink(missing_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
        beside.replace(path)
    except OSError as error:
        if error.errno in _NO_ROOM and _overwritten(path, text):
            return
        raise StateDirUnusable(f"daemon.state_dir: {path} cannot be written ({error.strerror})") from error

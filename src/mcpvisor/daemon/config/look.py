"""Owns one look at the files of a configuration: what they contain, and which folders would tell of another content."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.config_file import MAX_BYTES
from mcpvisor.daemon.config.discovery import Discovery, discover
from mcpvisor.daemon.config.trust import Replaced, distrust

_PIECE: Final = 1 << 20
EMPTY: Final = hashlib.sha256().hexdigest()
"""The digest of a file that holds nothing."""

Digests = tuple[tuple[str, str], ...]
"""Files, each with the digest of its content or with the reason why it has none."""

Folder = tuple[str, tuple[int, int] | None]
"""A folder with the device and inode that tell it from another of the same path; None while it is not there."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a configuration contains at one moment: its own files, and the secrets that are put into its entries."""

    files: Digests = ()
    listed: tuple[str, ...] = ()
    """Folders of drop-ins that could be listed: of these alone an absent file is gone."""
    secrets: Digests = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, and where to look for news of it."""

    contents: Fingerprint
    folders: tuple[Folder, ...]
    """The folders of the files, of the files that links among them lead to, and of the secrets."""
    paths: frozenset[str]
    """Each file as it is written and as its links lead to."""
    empty: frozenset[str]
    """Those of them that hold nothing."""


def fingerprint(paths: Sequence[Path], secrets: Iterable[Path] = (), *, uid: int | None = None) -> Fingerprint:
    """What the files of a configuration, and `secrets` beside them, contain now."""
    return look(paths, secrets, uid=uid).contents


def look(paths: Sequence[Path], secrets: Iterable[Path] = (), *, uid: int | None = None) -> Look:
    """Read all files once. Times count for nothing, and modes only where they say who else may write a file."""
    found = discover(paths)
    digest = Digester(uid)
    contents = contents_of(found, digest)
    contents = replace(contents, secrets=tuple((str(path), digest(path)) for path in secrets))
    folders = {str(folder): None for folder in found.folders}
    known: set[str] = set()
    empty: set[str] = set()
    for path, seen in (*contents.files, *contents.secrets):
        ways = {path, _target(path) or path}
        folders.update((str(Path(way).parent), None) for way in ways)
        known |= ways
        if seen == EMPTY:
            empty |= ways
    return Look(contents, identified(folders), frozenset(known), frozenset(empty))


def contents_of(found: Discovery, digest: Digester) -> Fingerprint:
    """What the files that were found contain now, without secrets."""
    files = tuple((str(file.path), digest(file.path)) for file in found.files)
    unreachable = tuple((str(path), "unreachable") for path in found.unreachable)
    loose = tuple((str(folder), f"not read: {', '.join(names)}") for folder, names in found.loose)
    return Fingerprint(files + unreachable + loose, tuple(map(str, found.listed)))


def identified(folders: Iterable[str]) -> tuple[Folder, ...]:
    """The folders as they are now."""
    return tuple((folder, _identity(folder)) for folder in folders)


def _target(path: Path | str) -> str:
    """Where a link leads to in the end, there or not; empty for what is no link."""
    try:
        Path(path).readlink()
    except (OSError, ValueError):
        return ""
    return os.path.realpath(path)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        info = Path(folder).stat()
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino


class Digester:
    """Makes the digests of one look; what it has found out of folders holds for that long."""

    def __init__(self, uid: int | None = None) -> None:
        self._uid = os.geteuid() if uid is None else uid
        self._distrusted: dict[tuple[object, ...], bool] = {}

    def __call__(self, path: Path) -> str:
        """The digest of a file; of one that cannot be read, the reason."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                    return f"no file to read: {stat.S_IFMT(info.st_mode)}, {info.st_size}"
                content = _digest(descriptor)
                return f"distrusted: {content}" if self._is_distrusted(path, info) else content
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            return f"unreadable: {(error.strerror if isinstance(error, OSError) else None) or error}"

    def _is_distrusted(self, path: Path, info: os.stat_result) -> bool:
        """Whether it is not believed: once it was, a chmod that mends it is an edit like any other."""
        key = (path.parent, Path(_target(path)).parent, info.st_uid, info.st_gid, info.st_mode)
        if key not in self._distrusted:
            try:
                self._distrusted[key] = bool(distrust(path, self._uid, info))
            except Replaced:
                return True  # the next look has another file to judge
        return self._distrusted[key]


def _digest(descriptor: int) -> str:
    digest = hashlib.sha256()
    left = MAX_BYTES  # it may grow while it is read
    while left > 0 and (piece := os.read(descriptor, _PIECE)):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()

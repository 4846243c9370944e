"""Owns the rule of whose files are believed: whoever can write the configuration runs programs as the daemon."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_LINKS: Final = 40
"""Symbolic links on one way, as the kernel has it."""

_ACL: Final = "system.posix_acl_access"
_ACL_VERSION_BYTES: Final = 4
_ACL_ENTRY: Final = "<HHI"
_ACL_USER, _ACL_GROUP, _ACL_MASK = 0x02, 0x08, 0x10
_ACL_WRITE: Final = 2


class Replaced(Exception):
    """Another file is at the path by now than the one that was opened; a second look settles it."""


def distrust(file: Path, uid: int, opened: os.stat_result | None = None) -> str:
    """Why a file is not believed, with the remedy; empty when it is.

    The file, every folder through which its path leads and every symbolic link on the way, followed step by step, must belong
    to root or `uid`, and be closed to writes by others. A folder with the sticky bit may be open, since there nobody replaces
    others' files. A group may write where it is root's, or its owner's alone.

    `opened` is what the file was found to be when it was opened: it is judged by that, and Replaced is raised where the way
    leads to another one. Raises OSError where the way cannot be followed.
    """
    last: os.stat_result | None = None
    for path, info in _way(file):
        last = info
        reason = _reason(path, info, uid)
        if reason:
            return reason
    if opened is not None and last is not None and (last.st_dev, last.st_ino) != (opened.st_dev, opened.st_ino):
        raise Replaced(file)
    return _reason(file, opened, uid) if opened is not None else ""


def _way(file: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link through which a path leads, and the file at its end, each as it is itself."""
    here = Path("/")
    yield here, here.stat()
    steps = deque(file.absolute().parts[1:])
    links = 0
    while steps:
        step = steps.popleft()
        if step == "..":
            here = here.parent
            continue
        path = here / step
        info = path.lstat()
        yield path, info
        if not stat.S_ISLNK(info.st_mode):
            here = path
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))
        target = path.readlink()
        if target.is_absolute():
            here = Path("/")
        steps.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))


def _reason(path: Path, info: os.stat_result, uid: int) -> str:
    shown = shlex.quote(str(path))
    is_link = stat.S_ISLNK(info.st_mode)
    if info.st_uid not in {0, uid}:
        remedy = f"chown {'-h ' if is_link else ''}{uid} {shown}"
        return f"not used: {path} belongs to uid {info.st_uid}, neither root nor the daemon; run: {remedy}"
    if is_link or (stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX):
        return ""
    if info.st_mode & stat.S_IWOTH:
        return f"not used: everybody may write {path}; run: chmod o-w {shown}"
    if not info.st_mode & stat.S_IWGRP:
        return ""  # nor can an access control list give anybody more than this bit says
    if info.st_gid != 0 and not _is_private(info):
        return f"not used: a group may write {path}; run: chmod g-w {shown}"
    if _is_listed(path, uid):
        return f"not used: its access control list lets others write {path}; run: chmod g-w {shown}"
    return ""


def _is_private(info: os.stat_result) -> bool:
    """Whether the group is its owner's own, with nobody else in it, as many systems give to each user."""
    try:
        owner, group = pwd.getpwuid(info.st_uid).pw_name, grp.getgrgid(info.st_gid)
    except KeyError:
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}


def _is_listed(path: Path, uid: int) -> bool:
    """Whether a POSIX access control list gives the right to write to another user, or to a group."""
    try:
        raw = os.getxattr(path, _ACL)
        entries = list(struct.iter_unpack(_ACL_ENTRY, raw[_ACL_VERSION_BYTES:]))
    except (OSError, struct.error):  # there is none, or none that we know
        return False
    mask = next((permissions for tag, permissions, _ in entries if tag == _ACL_MASK), _ACL_WRITE)
    return any(
        permissions & mask & _ACL_WRITE and (tag == _ACL_GROUP or (tag == _ACL_USER and whose not in {0, uid}))
        for tag, permissions, whose in entries
    )

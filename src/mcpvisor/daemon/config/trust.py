"""Owns the rule of whose files are believed: whoever can write the configuration runs programs as the daemon."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def distrust(file: Path, info: os.stat_result, uid: int) -> str:
    """Why a file is not believed, with the remedy; empty when it is.

    The file and each folder above it, both as written and with its links resolved, must be owned by root or `uid` and
    be closed to writes by others. A folder with the sticky bit may be open, since there nobody replaces others' files.
    """
    reason = _reason(file, info, uid)
    if reason:
        return reason
    folders = dict.fromkeys([*file.absolute().parents, *file.resolve().parents])
    for folder in folders:
        reason = _reason(folder, folder.stat(), uid)
        if reason:
            return reason
    return ""


def _reason(path: Path, info: os.stat_result, uid: int) -> str:
    if info.st_uid not in {0, uid}:
        return f"not used: {path} belongs to uid {info.st_uid}, neither root nor the daemon; run: chown {uid} {path}"
    if stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX:
        return ""
    if info.st_mode & stat.S_IWOTH:
        return f"not used: everybody may write {path}; run: chmod o-w {path}"
    if info.st_mode & stat.S_IWGRP and info.st_gid != 0 and not _is_private(info):
        return f"not used: a group may write {path}; run: chmod g-w {path}"
    return ""


def _is_private(info: os.stat_result) -> bool:
    """Whether the group is its owner's own, with nobody else in it, as many systems give to each user."""
    try:
        owner, group = pwd.getpwuid(info.st_uid).pw_name, grp.getgrgid(info.st_gid)
    except KeyError:
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}

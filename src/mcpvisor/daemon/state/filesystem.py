"""Owns which file systems the state store trusts: on some, locks and flushes are not what they say."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_UNFIT: Final = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
}
"""File systems of other machines, by the magic number that statfs(2) tells (linux/magic.h)."""

_STATFS_BYTES: Final = 512
"""More than any `struct statfs` has; its first field is the magic number."""


def why_unfit(magic: int) -> str:
    """Why a database cannot be kept on a file system of this magic number; empty where it can."""
    name = _UNFIT.get(magic & 0xFFFFFFFF)
    if name is None:
        return ""
    return f"it is on {name}, where neither locks nor flushes can be relied on; name a local folder as daemon.state_dir"


def magic_of(folder: Path) -> int:
    """The magic number of the file system that holds a folder. May take as long as that file system does. Raises OSError."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(folder), buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF

"""Owns what the system says of processes: whether one lives, and what it holds."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def resident(pid: int | None = None) -> int:
    """Bytes of memory that a process holds now, this one where none is named."""
    return int(Path(f"/proc/{'self' if pid is None else pid}/statm").read_text().split()[1]) * _PAGE

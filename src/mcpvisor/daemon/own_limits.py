"""Owns the limits that the daemon sets for its own process."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress
from typing import Final

LARGE: Final = 1024 * 1024
"""Bytes from which on a piece of memory is taken from the system by itself, and given back as soon as it is let go of."""

_M_MMAP_THRESHOLD: Final = -3  # of malloc.h


def leave_no_core() -> None:
    """A core dump of ours would hold every secret; `ulimit -c` of a debugging session can be raised again."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def raise_file_limit() -> None:
    """Take as many open files as we are allowed: each server costs up to five; children get the usual soft limit back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some sandboxes refuse; the soft limit then stands
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def give_back_memory() -> bool:
    """Have the memory of large messages given back; whether this C library can be told so.

    Of itself glibc takes ever larger pieces from the one heap once it has seen one let go of, and what lies behind them keeps
    the heap from shrinking: after some answers of 30 MB a gigabyte stayed with the daemon for good.
    """
    with suppress(AttributeError):  # musl and others give large pieces back anyway
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE))
    return False

"""Owns the limits that the daemon sets for its own process."""

from __future__ import annotations

import resource
from contextlib import suppress


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

"""Owns the start of a worker process: takes the pipes before any other code runs, then becomes the worker.

Run by its path, so that a worker starts wherever the daemon's own code is; standard library only until that can be found.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def take_pipes() -> tuple[int, int]:
    """The two ends of the daemon's pipes, for us alone.

    Whatever the handler or a program that it starts prints goes to stderr, and what it reads is at its end.
    """
    inbound, outbound = os.dup(0), os.dup(1)  # not inherited
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return inbound, outbound


if __name__ == "__main__":
    pipes = take_pipes()
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    from mcpvisor.daemon.handlers.worker import run

    run(*pipes)

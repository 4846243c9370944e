"""Owns how long a start may take, and what is said of one that took longer. Pure."""

from __future__ import annotations

from typing import Final

from mcpvisor.supervisor.states import State

MAX_START_TIMEOUT: Final = 300.0

STILL_MOVING: Final = 5.0
"""A server that wrote to stderr so many seconds before its start timed out was at work, as a cold package start is."""


def start_budget(start_timeout: float, timeouts: int) -> float:
    """Seconds for the next step up after so many tries in a row that timed out: twice as many each time, up to 300."""
    return min(start_timeout * 2.0**timeouts, max(MAX_START_TIMEOUT, start_timeout))


def start_timed_out(state: State, budget: float, *, stderr_at: float | None, tried_at: float, now: float) -> str:
    """What is said of a start that ended in `state` for want of time; `stderr_at` is when the server last wrote to stderr."""
    what = "did not start" if state is State.STARTING else "did not answer the handshake"
    detail = f"{what} within {budget:g} s (start_timeout)"
    if stderr_at is not None and stderr_at >= max(tried_at, now - STILL_MOVING):
        detail += "; it was still writing to stderr, so it may only be slow"
    return detail

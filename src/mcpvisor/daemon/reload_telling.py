"""Owns what is told of a reload beside what it did: what is under way already, which files are gone, what goes by itself."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import anyio

from mcpvisor.daemon.config.applied import Applied, Removal
from mcpvisor.daemon.control.reloading import ConfigState, ExpectedRemoval
from mcpvisor.supervisor.states import BOUNDED
from mcpvisor.supervisor.status import ServerStatus

Trial = Mapping[str, Any]


def under_way(
    statuses: Iterable[ServerStatus], trials: Mapping[str, Trial | None], touched: Collection[str]
) -> dict[str, Trial | None]:
    """Servers that are on trial, or on their way up, without having been `touched` by this reload; each with its trial."""
    return {
        status.name: trials.get(status.name)
        for status in statuses
        if status.name not in touched and status.wanted == "running" and _is_under_way(status, trials.get(status.name))
    }


def _is_under_way(status: ServerStatus, trial: Trial | None) -> bool:
    return trial is not None or status.state in BOUNDED or status.replacing


def gone_files(before: Applied, after: Applied) -> dict[str, str]:
    """By server that goes from `before` to `after` the file that is not there any more."""
    return {
        name: str(path)
        for path, good in before.files.items()
        if path not in after.files
        for name in good.specs
        if name not in after.specs
    }


def state_of(applied: Applied, removals: Iterable[Removal] = ()) -> ConfigState:
    """The verdict on what is applied; `removals` are on the clock of `anyio.current_time`."""
    return ConfigState(
        ok=applied.ok,
        rejected=[one.rejection() for one in applied.rejected],
        waiting=[one.as_json() for one in applied.waiting],
        removals=[_removal(one, time.time() - anyio.current_time()) for one in removals],
        needs_restart=list(applied.needs_restart),
    )


def _removal(one: Removal, offset: float) -> ExpectedRemoval:
    return ExpectedRemoval(server=one.server, file=str(one.file), since=one.since + offset, at=one.at + offset)

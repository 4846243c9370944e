"""Owns what the control socket asks of the one who applies configuration; that one lives elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypedDict

from mcpvisor.supervisor.spec import PlannedChange


class Rejection(TypedDict):
    """One thing in the configuration that was not accepted: `where` as `file:line`, `error` for people.

    `server` is the entry that it is about, empty where it is about a file or a setting.
    """

    where: str
    error: str
    server: str


class ConfigState(TypedDict):
    """The verdict on the configuration that was last read."""

    ok: bool
    rejected: list[Rejection]


class ReloadReport(TypedDict):
    """What came of a reload.

    `ok` is whether all that is written is in force now. `changes` has `server`, `change` and `fields` of every server that was
    not simply kept. `hints` have `where` and `hint`; `needs_restart` are settings that are only read when the daemon starts.
    `ready` is whether every server that is wanted running was ready in time, None where nobody waited for it.
    """

    ok: bool
    changes: list[dict[str, Any]]
    rejected: list[Rejection]
    hints: list[dict[str, Any]]
    needs_restart: list[str]
    ready: bool | None


class Reloading(Protocol):
    """Reads the configuration again, and applies it."""

    async def reload(self, trigger: str, wait: bool, timeout: float) -> ReloadReport:
        """Read and apply; with `wait`, then wait up to `timeout` seconds for the servers. Never raises for a bad file."""
        ...

    async def plan(self, paths: Sequence[str]) -> tuple[list[PlannedChange], ConfigState, tuple[str, ...]]:
        """What a reload would do, from `paths` or, where there are none, from the daemon's own files. Changes nothing.

        The last part are settings, as `section.key`, that would take a start of the daemon.
        """
        ...

    def last_config(self) -> ConfigState:
        """The verdict on the configuration that was last read."""
        ...

"""Owns what the control socket asks of the one who applies configuration; that one lives elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, Protocol, TypedDict

from mcpvisor.daemon.config.problems import Rejection
from mcpvisor.daemon.config.waiting import WaitingEdit
from mcpvisor.daemon.control.drift import Drift
from mcpvisor.daemon.handlers.changes import HandlerChange
from mcpvisor.daemon.handlers.routing import Routing
from mcpvisor.supervisor.spec import PlannedChange


class ExpectedRemoval(TypedDict):
    """A server whose file is away: since when, and `at` when it goes unless the file comes back; wall-clock seconds."""

    server: str
    file: str
    since: float
    at: float


class ConfigState(TypedDict):
    """The verdict on the configuration that was last read.

    `waiting` are edits that are right and wait for what was rejected, `removals` what goes by itself, `needs_restart` settings
    that are written otherwise than the daemon was started with, and `trials` the versions that are tried (`server`, `within`,
    `until`).
    """

    ok: bool
    rejected: list[Rejection]
    waiting: NotRequired[list[WaitingEdit]]
    removals: NotRequired[list[ExpectedRemoval]]
    needs_restart: NotRequired[list[str]]
    trials: NotRequired[list[dict[str, Any]]]


class LastChange(TypedDict):
    """The newest reload that changed anything: when, in wall-clock seconds, whose it was, and which servers it changed."""

    at: float
    trigger: str
    servers: list[str]


class ReloadReport(TypedDict):
    """What came of a reload.

    `ok` is whether all that is written is in force now. `changes` has `server`, `change` and `fields` of every server that was
    not simply kept, and `trial` (`within` seconds and, once that is known, `until` when it has to be ready, else None) and
    `rolled_back`; `handlers` the same of handlers (`handler`, `change`, `fields`), `routes_changed` is whether
    any route is another. `hints` have `where` and `hint`; `needs_restart` are settings that are only read when the daemon
    starts.
    `ready` is whether every server that is wanted running was ready in time, None where nobody waited for it. `waiting` and
    `removals` are as in `ConfigState`. `under_way` has `server`, `trial` and `rolled_back` of servers that this reload has not
    touched, and that were still on their way after an earlier edit, and `last_change` when and by whom what was in force before
    was applied.
    """

    ok: bool
    changes: list[dict[str, Any]]
    rejected: list[Rejection]
    hints: list[dict[str, Any]]
    needs_restart: list[str]
    ready: bool | None
    handlers: list[dict[str, Any]]
    routes_changed: bool
    waiting: NotRequired[list[WaitingEdit]]
    removals: NotRequired[list[ExpectedRemoval]]
    under_way: NotRequired[list[dict[str, Any]]]
    last_change: NotRequired[LastChange | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a reload would do to servers and handlers; `needs_restart` are settings that would take a start of the daemon."""

    servers: Sequence[PlannedChange]
    handlers: Sequence[HandlerChange] = ()
    routes_changed: bool = False
    config: ConfigState
    needs_restart: Sequence[str] = ()
    drift: Sequence[Drift] = ()
    routing: Routing = field(default_factory=Routing)
    """The routes as a reload would make them, and `routing_now` as they are."""
    routing_now: Routing = field(default_factory=Routing)
    under_way: Sequence[dict[str, Any]] = ()
    """As in `ReloadReport`."""
    gone_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """By server that would be stopped the file that is not there any more."""


class Reloading(Protocol):
    """Reads the configuration again, and applies it."""

    async def reload(self, trigger: str, wait: bool, timeout: float) -> ReloadReport:
        """Read and apply; with `wait`, then wait up to `timeout` seconds for the servers. Never raises for a bad file."""
        ...

    async def plan(self, paths: Sequence[str]) -> Plan:
        """What a reload would do, from `paths` or, where there are none, from the daemon's own files. Changes nothing."""
        ...

    def is_on_trial(self, name: str) -> bool:
        """Whether a version of a server is tried of which the former one runs again when it does not become ready."""
        ...

    def last_config(self) -> ConfigState:
        """The verdict on the configuration that was last read."""
        ...

"""Owns what stays of each file of the configuration: the last good version of all that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcpvisor.daemon.config.written import Written
from mcpvisor.daemon.handlers.routing import Route, RoutingOptions
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodHandlers:
    """The last good handlers and routes of one file; routes count together, since their order says what they mean."""

    handlers: Mapping[str, HandlerSpec] = field(default_factory=dict[str, HandlerSpec])
    routes: tuple[Route, ...] = ()
    options: RoutingOptions | None = None


@dataclass(frozen=True, slots=True)
class GoodFile:
    """The last good entries of one file. `gone_since` is set while a drop-in is absent and its time is not up."""

    specs: Mapping[str, ServerSpec]
    is_named: bool
    gone_since: float | None = None
    handlers: GoodHandlers = field(default_factory=GoodHandlers)
    written: Mapping[str, Written] = field(default_factory=dict[str, Written])
    """The same entries as they are written."""
    sections: Written | None = None
    ways: Written | None = None
    """The last good settings, and the last good handlers and routes, as they are written; None where there were none yet."""

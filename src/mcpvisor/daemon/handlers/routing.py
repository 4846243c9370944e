"""Owns which handlers an event goes to: the routes in their order, and the decision as a pure function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, get_args

from mcpvisor.daemon.handlers.contract import EventKind
from mcpvisor.daemon.handlers.globs import Glob, any_matches

KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)

QUIET_KINDS: Final[frozenset[EventKind]] = frozenset({"resource_updated", "list_changed", "state_changed"})
"""What a route without `event` means, and what the default takes.

Log messages and progress come by the thousand, and questions want answers: whoever is to get them is named for them.
"""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages in the protocol, least first."""

OF_URI: Final[frozenset[EventKind]] = frozenset({"resource_updated"})
OF_TOOL: Final[frozenset[EventKind]] = frozenset({"progress", "elicitation"})
OF_LEVEL: Final[frozenset[EventKind]] = frozenset({"log_message"})


class Match(StrEnum):
    """Which of the routes that fit count."""

    FIRST = "first"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is asked of an event to route it; `uri`, `tool` and `level` are None where it has none."""

    kind: EventKind
    server: str
    uri: str | None = None
    tool: str | None = None
    level: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route: all its conditions hold, or it does not fit. An empty condition always holds."""

    handlers: tuple[str, ...]
    kinds: frozenset[EventKind] = QUIET_KINDS
    servers: tuple[Glob, ...] = ()
    uris: tuple[Glob, ...] = ()
    tools: tuple[Glob, ...] = ()
    level: str | None = None
    """The least level of a log message."""
    origin: str = field(default="", compare=False)
    """Where it is written, as `file:line`."""

    def fits(self, subject: Subject) -> bool:
        """Whether an event goes this way."""
        return (
            subject.kind in self.kinds
            and (not self.servers or any_matches(self.servers, subject.server))
            and (not self.uris or (subject.uri is not None and any_matches(self.uris, subject.uri)))
            and (not self.tools or (subject.tool is not None and any_matches(self.tools, subject.tool)))
            and (self.level is None or _is_at_least(subject.level, self.level))
        )


def _is_at_least(level: str | None, least: str) -> bool:
    # A word that the protocol does not have says nothing of how grave it is: it is not left out.
    return level is not None and (level not in LEVELS or LEVELS.index(level) >= LEVELS.index(least))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions:
    """`[routing]`: which routes count, and who gets what no route fits."""

    match: Match = Match.FIRST
    default: tuple[str, ...] = ()
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way that an event goes: to a handler, by the route at `origin`."""

    handler: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """All routes that are in force, in their order."""

    routes: tuple[Route, ...] = ()
    options: RoutingOptions = RoutingOptions()

    @property
    def kinds(self) -> frozenset[EventKind]:
        """Kinds that can reach a handler at all; nobody need look at others."""
        found: frozenset[EventKind] = QUIET_KINDS if self.options.default else frozenset()
        return found.union(*(route.kinds for route in self.routes))

    def ways(self, subject: Subject) -> tuple[Way, ...]:
        """The handlers that an event goes to, each once, in the order of the routes.

        The first route that fits, or all of them; where none fits, the default, which takes only `QUIET_KINDS`.
        """
        found: dict[str, Way] = {}
        has_fit = False
        for route in self.routes:
            if not route.fits(subject):
                continue
            has_fit = True
            for handler in route.handlers:
                found.setdefault(handler, Way(handler=handler, origin=route.origin))
            if self.options.match is Match.FIRST:
                break
        if not has_fit and subject.kind in QUIET_KINDS:
            for handler in self.options.default:
                found.setdefault(handler, Way(handler=handler, origin=self.options.origin))
        return tuple(found.values())

    def only(self, handlers: Mapping[str, Any]) -> Routing:
        """The same with no way to a handler that is not there."""
        routes = (replace(route, handlers=tuple(h for h in route.handlers if h in handlers)) for route in self.routes)
        default = tuple(handler for handler in self.options.default if handler in handlers)
        return Routing(
            routes=tuple(route for route in routes if route.handlers), options=replace(self.options, default=default)
        )

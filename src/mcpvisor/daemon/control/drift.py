"""Owns what is otherwise than the files say because somebody ordered so while the daemon ran: a pure comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.status import ServerStatus

RUNNING: Final = "running"
DISABLED: Final = "disabled"


@dataclass(frozen=True, slots=True)
class OrderedLevel:
    """The level that the log has by an order; `at` in seconds since the epoch."""

    level: str
    by: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference that an operator has made: what is, what the files say, who ordered it and when."""

    what: str
    """`server`, or `log.level`."""
    server: str = ""
    actual: str
    configured: str
    by: str
    at: float

    def as_json(self) -> dict[str, Any]:
        """The difference as the control API gives it."""
        return {
            "what": self.what,
            "server": self.server,
            "actual": self.actual,
            "configured": self.configured,
            "by": self.by,
            "at": self.at,
        }


def drift_between(
    statuses: Iterable[ServerStatus], specs: Mapping[str, ServerSpec], ordered: OrderedLevel | None, level: str
) -> tuple[Drift, ...]:
    """The differences between what is ordered and what the files say; `specs` and `level` are what they say.

    A server that the files do not have, or not any more, has none: a reload takes it away.
    """
    found: list[Drift] = []
    for status in statuses:
        spec = specs.get(status.name)
        if spec is None or status.wanted_at is None:
            continue
        configured = RUNNING if spec.enabled else DISABLED
        if status.wanted != configured:
            found.append(
                Drift(
                    what="server",
                    server=status.name,
                    actual=status.wanted,
                    configured=configured,
                    by=status.wanted_by,
                    at=status.wanted_at,
                )
            )
    if ordered is not None and ordered.level != level:
        found.append(Drift(what="log.level", actual=ordered.level, configured=level, by=ordered.by, at=ordered.at))
    return tuple(found)

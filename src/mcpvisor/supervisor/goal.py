"""Owns whose wish a server's goal is, and since when: of its entry, of an order, or of one that an earlier run was given."""

from __future__ import annotations

import time
from typing import Final

from mcpvisor.supervisor.lifecycle_messages import Input, RestartOrdered, Wanted, WantedSet
from mcpvisor.supervisor.recalling import Recall
from mcpvisor.supervisor.spec import ServerSpec

BY_CONFIG: Final = "config"
BY_POLICY: Final = "its restart policy"


class Goal:
    """Turns wishes into what the lifecycle is told, and remembers whose they are; those that last are kept in `recall`."""

    def __init__(self, recall: Recall) -> None:
        self._recall = recall
        self.by = BY_CONFIG
        self.at: float | None = None
        """When the operator gave the order that stands, in wall-clock seconds."""

    def of_entry(self, spec: ServerSpec) -> WantedSet:
        """What is wanted when nobody orders anything: what the entry says, unless an order of an earlier run stands."""
        standing = self._recall.order
        if standing is not None:
            self.by, self.at = f"{standing.who} (disable)", standing.at
            return WantedSet(standing.wanted, f"disable ordered by {standing.who}")
        if spec.enabled:
            return WantedSet(Wanted.RUNNING, "wanted by its entry")
        return WantedSet(Wanted.DISABLED, "disabled in its entry")

    def of_edit(self, spec: ServerSpec) -> WantedSet:
        """The entry was edited to enable or disable the server, which ends every order."""
        self.by, self.at = BY_CONFIG, None
        self._recall.no_order()
        return self.of_entry(spec)

    def of_order(self, order: str, wanted: Wanted | None, who: str) -> list[Input]:
        """An operator's order; `wanted` is the new goal, None for a restart."""
        self.by, self.at = f"{who} ({order})", time.time()
        self._recall.ordered(order, who)
        if wanted is not None:
            return [WantedSet(wanted, f"{order} ordered by {who}")]
        reason = f"restart ordered by {who}"
        return [WantedSet(Wanted.RUNNING, reason), RestartOrdered(reason)]

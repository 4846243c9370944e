"""Owns what the tests of metrics share: a recorder in a registry of its own, and short words for common events."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from mcpvisor.metrics.recorder import MetricsRecorder
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor.states import State


class Scene:
    """A recorder and its registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.recorder = MetricsRecorder(self.registry, version="1.2.3")

    def add(self, *servers: str, transport: str = "stdio") -> None:
        for server in servers:
            self.recorder(ev.ServerAdded(at=1.0, server=server, transport=transport, required=False))

    def move(self, server: str, old: State, new: State, *, at: float = 10.0, next_attempt: float | None = None) -> None:
        self.recorder(
            ev.ServerStateChanged(at=at, server=server, old=old, new=new, reason="because", next_attempt=next_attempt)
        )

    def open(self, server: str, *, transport: str = "", implementation: str = "docs 1.0") -> None:
        self.recorder(
            ev.SessionOpened(
                at=11.0,
                server=server,
                generation=1,
                era="legacy",
                protocol_version="2025-06-18",
                implementation=implementation,
                seconds=0.2,
                transport=transport,
            )
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def series_of(self, server: str) -> list[str]:
        return [s.name for f in self.registry.collect() for s in f.samples if s.labels.get("server") == server]

    def fill(self, servers: int) -> None:
        """So many busy servers: each state, process and probe known, three methods called."""
        for number in range(servers):
            name = f"server-{number}"
            self.add(name)
            self.open(name)
            self.move(name, State.RESTORING, State.READY)
            self.recorder(ev.ProbeAnswered(at=1.0, server=name, seconds=0.01))
            for method in ("tools/call", "tools/list", "ping"):
                self.recorder.call_started(name)
                self.recorder.call_ended(name, "stdio", method, "ok", "", 0.03)

    def handle(self, handler: str, outcome: str = "handled", kind: str = "resource_updated") -> None:
        """One event of a handler, from its queue to its end."""
        self.recorder.handler_queue(handler, 1)
        self.recorder.handler_took(handler, 0.2)
        self.recorder.handler_event(handler, kind, outcome)
        self.recorder.handler_queue(handler, 0)


@pytest.fixture
def scene() -> Scene:
    """A recorder that has seen nothing yet."""
    return Scene()

"""What one server looks like from outside at one moment; a value, never a live object."""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """A server's actual state beside what is wanted of it. Times are wall-clock seconds since the epoch."""

    name: str
    state: State
    reason: str
    since: float
    transport: str
    wanted: str
    """`running`, `stopped` or `disabled`: the goal, beside the state."""
    wanted_by: str
    """Who set the goal: `config`, or the operator whose order stands."""
    wanted_at: float | None = None
    """When that operator gave the order; None where it was none."""
    era: str | None = None
    """`legacy` or `modern`; None before the first handshake."""
    protocol_version: str | None = None
    implementation: str = ""
    pid: int | None = None
    generation: int = 0
    restarts: int = 0
    next_attempt: float | None = None
    deadline: float | None = None
    """Until when the present state may last at the most; None where it is bound to no time."""
    required: bool = False
    in_flight: int = 0
    queued: int = 0
    tools: int = 0
    resources: int = 0
    resource_templates: int = 0
    prompts: int = 0
    stale: bool = False
    """Whether the catalog shown is the last known one of a server that is away."""
    last_exit: str = ""
    """How the last process ended, in words; empty when none has."""
    handshake_seconds: float | None = None
    subscriptions_wanted: int = 0
    subscriptions_active: int = 0
    """Those of the wanted ones whose changes reach us, by push or by polling."""
    origin: str = ""
    shown_name: str = ""
    limits_not_enforced: str = ""
    """Which limits of the entry do not hold for the running process, and why; empty where all do."""

    @property
    def is_healthy(self) -> bool:
        """Whether the server is as it is wanted: ready, or at rest by order."""
        return self.state is State.READY if self.wanted == "running" else True

"""Owns what a generation needs to open a wire, and what the wire's processes tell it; how is the transports' business."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from mcpvisor.supervisor.auth.credential import Credentials
from mcpvisor.supervisor.process.delegation import NOT_TAKEN, Subtree
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.transports.exchange import WireHooks
from mcpvisor.supervisor.transports.http_memory import HttpMemory
from mcpvisor.supervisor.transports.wire import Wire


class ProcessHooks(Protocol):
    """What is told of the process behind a wire; every method is quick and free of failure."""

    def process_started(self, pid: int) -> None:
        """The process runs."""
        ...

    def limits_not_enforced(self, limits: tuple[str, ...], why: str) -> None:
        """The process runs without these of the limits of its spec, for the reason `why`."""
        ...

    def process_ended(
        self, pid: int, *, exit_code: int | None, signal: int | None, seconds: float, wanted: bool, why: str
    ) -> None:
        """The process is reaped and nothing is left of what it started; exactly one of `exit_code` and `signal` is given.

        `wanted` is whether we ended it, `why` the kernel's reason where it has killed it for want of memory.
        """
        ...

    def process_stuck(self, pid: int) -> None:
        """The process hangs in the kernel and was not gone in time after SIGKILL; nobody waits for it any more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One try to open a wire: for which spec, under which marks, and who is told what."""

    spec: ServerSpec
    generation: int
    instance: str
    """The daemon's instance id, which marks every process it starts."""
    only_sse: bool = False
    """Whether the server was found to know only the old HTTP+SSE transport."""
    hooks: WireHooks
    processes: ProcessHooks
    stderr: StderrRing
    """Where the lines go that a process writes on stderr."""
    subtree: Subtree = NOT_TAKEN
    """Where the process gets a control group of its own."""
    credentials: Credentials | None = None
    """What the requests of an HTTP wire carry; without them they carry what the spec itself says."""
    label: str = ""
    """The name that marks its processes, where that is another than the server's: it is an instance for one client."""
    memory: HttpMemory = field(default_factory=HttpMemory)
    """What the wires before have left, of a server that is reached by HTTP."""


Opener = Callable[[Opening], AbstractAsyncContextManager[Wire]]
"""Opens a wire; leaving the context ends it and everything behind it. Raises OpenFailed."""

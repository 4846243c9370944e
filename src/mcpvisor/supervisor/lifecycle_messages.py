"""Owns what is said to the lifecycle of a server, and what it answers: inputs and commands, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.states import State


class Wanted(StrEnum):
    """The goal of one server."""

    RUNNING = "running"
    STOPPED = "stopped"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class WantedSet:
    """Somebody set the goal; `reason` is shown while the server is at rest."""

    wanted: Wanted
    reason: str


@dataclass(frozen=True, slots=True)
class SpecChanged:
    """A new spec; `restart` when the session that stands cannot serve it, `reason` is shown while that is replaced."""

    spec: ServerSpec
    restart: bool
    reason: str = "its entry was changed"


@dataclass(frozen=True, slots=True)
class RestartOrdered:
    """An operator wants a fresh generation now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Launched:
    """The generation got its place in the queue of starts: its time to start runs from now."""

    generation: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The wire stands; the handshake begins."""

    generation: int


@dataclass(frozen=True, slots=True)
class Negotiated:
    """The handshake is done; calls are admitted."""

    generation: int


@dataclass(frozen=True, slots=True)
class Restored:
    """Everything is restored, or all but what `lacking` names."""

    generation: int
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class Impaired:
    """Something besides calls does not work (`lacking`), or works again (empty)."""

    generation: int
    lacking: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The generation serves nothing any more. `cause` and `detail` are those of its wire's end.

    `served` is whether it had answered a request of a caller; `endable` whether its server lets sessions be ended, where that
    was asked: when it refused this one while another served.
    """

    generation: int
    cause: str
    detail: str
    served: bool = False
    endable: bool = True
    exit_code: int | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """The generation is gone entirely: its process reaped, its task left."""

    generation: int


@dataclass(frozen=True, slots=True)
class Woken:
    """Somebody wants to call a server that is away."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The deadline that `Lifecycle.deadline` named has come; `stderr_at` is when the server last wrote to its stderr."""

    stderr_at: float | None = None


@dataclass(frozen=True, slots=True)
class MemorySampled:
    """What the processes of a generation use together was looked at."""

    generation: int
    resident_bytes: int


Input = (
    WantedSet | SpecChanged | RestartOrdered | Launched | Opened | Negotiated | Restored | Impaired | Ended | Closed
    | Woken | TimePassed | MemorySampled
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Open:
    """Start this generation.

    `reason` is of `ServerRestarted`'s closed set, `start` for the first, or `another_way` where a server that answered is
    only spoken to otherwise.
    """

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The generation follows another one, and counts as a restart; `reason` is of `ServerRestarted`'s closed set.

    One that is brought up beside the one that serves counts when it takes over, and never where it does not come up.
    """

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Let this generation finish its calls for at most `drain` seconds, then close it."""

    generation: int
    drain: float


@dataclass(frozen=True, slots=True)
class Serve:
    """Requests go to this generation from now on."""

    generation: int


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A generation did not come up in its time, and is given up."""

    generation: int


@dataclass(frozen=True, slots=True)
class Moved:
    """The state or its reason changed."""

    old: State
    new: State
    reason: str


Command = Open | Restarted | Retire | Serve | TimedOut | Moved

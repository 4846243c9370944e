"""What one server looks like from outside at one moment; a value, never a live object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mcpvisor.supervisor.states import State

NO_CREDENTIALS: Final = "no credentials: "
"""How the reason says that a session is kept for which none can be fetched."""

REFUSED_CREDENTIALS: Final = "credentials refused: "
"""How it says that the server of a session that is kept does not take them."""

PROBE_MISSED: Final = "probe "
"""How it says that a probe was not answered, and how many are: `probe 1/3 missed`."""

PROBE_EXCUSED: Final = "busy: a probe was not answered"
"""How it says that one was not answered while calls are within their own time."""

NO_ROOM: Final = "no room: "
"""How it says that a server refuses what it is asked for want of room, by 429 or 503."""

REFUSES: Final = "refuses: "
"""How it says that a server refuses what it is asked by another status of HTTP."""

ERRORS: Final = "answers with errors: "
"""How it says that a server answers with errors what it has to know."""


class Hindrance(StrEnum):
    """Why a session that stands is not known to answer calls."""

    CREDENTIALS = "credentials"
    """There are none, or the server does not take them."""
    SILENCE = "silence"
    """It does not answer probes."""
    REFUSAL = "refusal"
    """It answers probes, by refusing them."""


_HINDRANCES: Final = {
    NO_CREDENTIALS: Hindrance.CREDENTIALS,
    REFUSED_CREDENTIALS: Hindrance.CREDENTIALS,
    PROBE_MISSED: Hindrance.SILENCE,
    PROBE_EXCUSED: Hindrance.SILENCE,
    NO_ROOM: Hindrance.REFUSAL,
    REFUSES: Hindrance.REFUSAL,
    ERRORS: Hindrance.REFUSAL,
}


def hindrance_of(reason: str) -> Hindrance | None:
    """What keeps the session of a degraded server from answering calls; what hurts most stands first in its reason."""
    return next((what for begin, what in _HINDRANCES.items() if reason.startswith(begin)), None)


@dataclass(frozen=True, slots=True)
class LastExit:
    """How a process ended, in words that follow a subject, and which process of which generation it was."""

    how: str
    generation: int
    pid: int
    wanted: bool
    """Whether it was ended by us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A server as counts and health probes see it, which look at all servers again and again."""

    name: str
    state: State
    wanted: str
    """`running`, `stopped` or `disabled`: the goal, beside the state."""
    required: bool = False

    @property
    def is_healthy(self) -> bool:
        """Whether the server is as it is wanted: ready, or at rest by order."""
        return self.state is State.READY if self.wanted == "running" else True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus(Outline):
    """A server's actual state beside what is wanted of it. Times are wall-clock seconds since the epoch."""

    reason: str
    since: float
    state_seconds: float
    """For how long it has been in its state, by the monotonic clock: `since` is of a clock that may have been set."""
    transport: str
    wanted_by: str
    """Who set the goal: `config`, or the operator whose order stands."""
    wanted_at: float | None = None
    """When that operator gave the order; None where it was none."""
    era: str | None = None
    """`legacy` or `modern`; None before the first handshake."""
    protocol_version: str | None = None
    implementation: str = ""
    pid: int | None = None
    """The process of `generation`; None where none of it runs."""
    generation: int = 0
    """The generation that serves or, where none does, the newest."""
    restarts: int = 0
    next_attempt: float | None = None
    deadline: float | None = None
    """Until when the present state may last at the most; None where it is bound to no time."""
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
    last_exit_generation: int | None = None
    """Of which generation that process was, which may be none that `generation` names."""
    last_exit_pid: int | None = None
    last_exit_wanted: bool = False
    """Whether that process was ended by us, and so is the cause of nothing."""
    handshake_seconds: float | None = None
    subscriptions_wanted: int = 0
    subscriptions_active: int = 0
    """Those of the wanted ones whose changes reach us, by push or by polling."""
    asked: str = ""
    """What it was sent for the handshake, and has not answered yet; empty where nothing is."""
    asked_at: float | None = None
    asked_until: float | None = None
    """When its silence is taken for an answer, and it is sent something else; None where it is waited for."""
    lists_next: float | None = None
    """When lists that could not be had are asked for again, in wall-clock seconds; None where none has failed."""
    lists_asked_to_wait: bool = False
    """Whether that is when the server said that it wants to be asked again (`Retry-After`)."""
    refused_since: float | None = None
    """Since when it refuses what it is asked, in wall-clock seconds; None where it does not."""
    probe_next: float | None = None
    """When one that refuses what it is asked is probed again, in wall-clock seconds."""
    probe_asked_to_wait: bool = False
    """Whether that is no earlier than the server said (`Retry-After`)."""
    push: str = ""
    """How the stream stands on which an HTTP server says what nobody asked for: `open`, `opening`, `retrying` or `none`.

    Empty where there is no such stream, since that comes the same way as answers.
    """
    push_reason: str = ""
    """Why it stands so, in words."""
    push_next: float | None = None
    """When it is asked for again, in wall-clock seconds since the epoch; None where that is not due."""
    origin: str = ""
    shown_name: str = ""
    token_expires_at: float | None = None
    """When the credentials that were fetched for it expire; None where none were, or nobody said."""
    limits_not_enforced: str = ""
    """Which limits of the entry do not hold for the running process, and why; empty where all do."""

    too_large: str = ""
    """Why it is to be replaced for the memory that it uses, which waits for `recycled_at`; empty where it is not."""
    recycled_at: float | None = None

    instances: int = 0
    """How many instances of it run beside this one, for one client each."""
    instance_failing: str = ""
    """One of them that cannot serve, in words; empty where all can."""

    replacing: bool = False
    """Whether another generation is being brought up to take over from the one that serves."""

    coming: State | None = None
    """How far its newest version is: the state or, while `replacing`, the one that what is to take over would be in."""
    coming_reason: str = ""
    """Why it is as far as that, for people."""

    @property
    def is_settled(self) -> bool:
        """Whether the server is as it is wanted, and nothing is under way that changes it."""
        return self.is_healthy and not self.replacing

    @property
    def hindrance(self) -> Hindrance | None:
        """Why a session that stands is not known to answer calls; None where it does, or none stands."""
        return hindrance_of(self.reason) if self.state is State.DEGRADED else None

    @property
    def lacks_credentials(self) -> bool:
        """Whether a session stands, and there are no credentials to use it with."""
        return self.state is State.DEGRADED and self.reason.startswith(NO_CREDENTIALS)

    @property
    def has_refused_credentials(self) -> bool:
        """Whether a session stands, and its server refuses what it is asked with."""
        return self.state is State.DEGRADED and self.reason.startswith(REFUSED_CREDENTIALS)

    @property
    def is_barred(self) -> bool:
        """Whether a session stands, and no call can be made on it for want of credentials that are taken."""
        return self.hindrance is Hindrance.CREDENTIALS

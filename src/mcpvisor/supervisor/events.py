"""Every event of the supervisor: frozen, in the past tense, and the only way in which others learn what happened.

Log lines, metrics, `explain` and the journal are readers of this one stream. `at` is wall-clock time in seconds since the
epoch. An event carries data only: no live object, no secret, and no text of a server that was not cut and cleaned before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.states import State

CatalogKind = Literal["tools", "resources", "resource_templates", "prompts"]

UpdateReason = Literal["notified", "resync", "polled"]
"""The server said so; nobody knows, as updates may have been missed; its content was found to be another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all events have: when it was."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent(Event):
    """An event of one server."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAdded(ServerEvent):
    """A server came under supervision."""

    transport: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRemoved(ServerEvent):
    """A server left supervision; its series and its ring go with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUpdated(ServerEvent):
    """A new spec was applied to a server; `fields` are the keys that changed, `change` is a `Change`."""

    change: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStateChanged(ServerEvent):
    """A server moved to another state, or its reason changed within one.

    `reason` is for people. `next_attempt` is the wall-clock time of the next try by itself, None when there is none.
    """

    old: State
    new: State
    reason: str
    next_attempt: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRestarted(ServerEvent):
    """A further generation is being started; `reason` is one of `exit`, `session`, `spec`, `order`, `memory` and `retry`.

    One that is brought up while another serves is told of when it takes over: each try before that is a `ConnectEnded`.
    """

    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectEnded(ServerEvent):
    """A try to connect ended; `outcome` is `ready` or the cause of the failure (a closed set)."""

    generation: int
    outcome: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted(ServerEvent):
    """A process of a stdio server runs."""

    pid: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsNotEnforced(ServerEvent):
    """A process of a server runs without `limits` (`memory`, `tasks`, `cpu`) of its entry; `why` is for people."""

    limits: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnded(ServerEvent):
    """A process of a stdio server is gone and reaped, its group swept.

    Exactly one of `exit_code` and `signal` is set. `seconds` is how long it lived, `wanted` whether we ended it. `why` is the
    kernel's reason where it has killed the process for want of memory, else empty.
    """

    pid: int
    generation: int
    exit_code: int | None
    signal: int | None
    seconds: float
    wanted: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStuck(ServerEvent):
    """A process hangs in the kernel and was not gone in time after SIGKILL; nobody waits for it any more."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessesSampled(ServerEvent):
    """What the processes of a server use; sampled every 15 s."""

    processes: int
    resident_bytes: int
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(ServerEvent):
    """The handshake is done. `era` is `legacy` or `modern`, `implementation` the server's own word for itself, cut.

    `transport` is the one that was settled (`stdio`, `http`, `sse`); empty where it is the one the spec names.
    """

    generation: int
    era: str
    protocol_version: str
    implementation: str
    seconds: float
    transport: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(ServerEvent):
    """A session that stood is gone by no order of ours; `cause` is of a closed set."""

    generation: int
    cause: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswered(ServerEvent):
    """A liveness probe was answered after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeMissed(ServerEvent):
    """A liveness probe was not answered; `misses` in a row out of `allowed`."""

    misses: int
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged(ServerEvent):
    """What a server offers differs from what it offered before."""

    kind: CatalogKind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntryDropped(ServerEvent):
    """One entry of a list was left out or repaired; the rest of the list stands."""

    kind: CatalogKind
    entry: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLevelAsked(ServerEvent):
    """A server was asked for a log level and did not take it, and why; or it took it after all, and `why` is empty.

    Not told of a level that is taken at once.
    """

    level: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsRefreshed(ServerEvent):
    """Credentials of a server were fetched, from its `token_endpoint` or `header_command`, or found in the `store`.

    `expires_at` is wall-clock seconds, None where nobody said.
    """

    source: str
    expires_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsFailed(ServerEvent):
    """Credentials of a server could not be fetched; their source is left alone for `retry_in` seconds.

    `cause` is `auth` where somebody has to mend something, `auth_unavailable` where the source does not answer.
    """

    cause: str
    detail: str
    retry_in: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsDropped(ServerEvent):
    """What was fetched for a server is used no more; `cause`: its `entry` has changed, or the server has `refused` it."""

    cause: str = "entry"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDenied(ServerEvent):
    """A server takes the credentials and refused a request with 403: they are not for that, such as for want of a scope.

    `count` requests were refused since this was told last; it is told once a minute at most. The session goes on.
    """

    detail: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNotified(ServerEvent):
    """The server sent a notification that is nobody's answer: resource updates, list changes, log messages.

    `params` are as the server sent them. `to_caller`: it belongs to a request, and who made that has it. `private`: it belongs
    to one that did not want it, or to one of several clients, and nobody knows which: it is for the operator alone.
    """

    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    to_caller: bool = False
    private: bool = False
    client: Principal | None = None
    """Whose instance it comes from, of a server that does not run once for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUpdated(ServerEvent):
    """A resource that somebody wants has changed or, where `reason` is `resync`, may have.

    `uri` is the text by which it is wanted. Updates of what nobody wants are only counted.
    """

    uri: str
    reason: UpdateReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionAsked(ServerEvent):
    """A wanted resource cannot be subscribed to, and why; or changes of it reach us after all, and `why` is empty.

    Not told of a subscription that works at once. `next_retry` is wall-clock time, None where no try by itself is due.
    """

    uri: str
    state: str
    why: str
    next_retry: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionsCounted(ServerEvent):
    """How many wanted resources are in each state (`pending`, `active`, `failed`, `polled`) from now on."""

    counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionsRestored(ServerEvent):
    """A new session was brought to the wanted subscriptions, and what became of them, by state, when it was ready."""

    generation: int
    counts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStarted(ServerEvent):
    """An instance of a server was started for one client (`sharing`); `label` is its name, `client` the identity."""

    label: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEnded(ServerEvent):
    """An instance for one client is being ended; `why` is for people."""

    label: str
    client: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked(ServerEvent):
    """A server asked something (`method`: elicitation, sampling or roots), and it was put to somebody.

    `belongs` is what is known of the call that caused it (`call`, `nobody`, `ambiguous`), `principal` for whom that was made,
    `tool` what was called, where both are certain. What was asked is nobody's but the answerer's.
    """

    method: str
    belongs: str
    principal: str | None
    tool: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered(ServerEvent):
    """A question of a server is over after `seconds`; what was answered is not told.

    `outcome`: `accept`, `decline` or `cancel` to an elicitation, `answered` to another question, `refused` with an error;
    `failed` where whoever was asked broke down, `call_ended` and `withdrawn` (by the server, or its session ended) where it was
    over before it was answered. `by`: the `caller` whose call it belongs to, or the `default` for all others.
    """

    method: str
    outcome: str
    by: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StderrWritten(ServerEvent):
    """Lines of a server's stderr, cleaned and cut; `dropped` lines before them were over the rate."""

    lines: tuple[str, ...]
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StdoutNoise(ServerEvent):
    """A line on stdout that is no JSON-RPC message; `excerpt` is cut and cleaned, `count` is the total so far."""

    excerpt: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefused(ServerEvent):
    """A message of the server was refused; `reason` is of a closed set: `size`, `values`, `depth`, `syntax`, `rate`."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOrdered(ServerEvent):
    """An operator gave an order; `who` is how the control socket knows them."""

    order: str
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockJumped(Event):
    """The wall clock has jumped by `seconds` (less than 0: back), for `asleep` of which the machine has slept.

    What expires at a date is to be looked at again, once; every session is probed.
    """

    seconds: float
    asleep: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphansSwept(Event):
    """Processes of a former run of the daemon were found and ended."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardianLost(Event):
    """The process that would end our servers after us has itself ended; another is being started."""

"""Owns what is told of one server: its events, the newest of them, and the tail of its stderr."""

from __future__ import annotations

import os
import signal as signals
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any, AnyStr, Final

import anyio

from mcpvisor.supervisor import events
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.cleaning import BYTES_PER_CHARACTER, clean_text, clip
from mcpvisor.supervisor.entries import Dropped
from mcpvisor.supervisor.known_secrets import ELLIPSIS, KnownSecrets
from mcpvisor.supervisor.listing import Listed
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.observer import CallObserver
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.open_calls import Origin
from mcpvisor.supervisor.process.environment import inherited_secrets
from mcpvisor.supervisor.process.sampling import Usage
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.questions import Question
from mcpvisor.supervisor.sdk import Handshake
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch, secrets_of
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import LastExit
from mcpvisor.supervisor.transports.exchange import PeerRefusal

JsonObject = dict[str, Any]

HISTORY: Final = 100
EXCERPT: Final = 120
REASON: Final = 500
"""Characters of a reason or a detail that may quote a server."""

DENIALS_TOLD: Final = 60.0
"""Seconds between two reports of requests that a server has refused for want of rights."""

IMPLEMENTATION: Final = 64
METHOD_NOT_FOUND: Final = -32601

RESOURCE_UPDATED: Final = "notifications/resources/updated"

_MAY_BE_UPDATES: Final = frozenset({"values", "syntax"})
"""Why a message is refused that may have been an update; one that is too large or too deep is none."""

NOT_HISTORY: Final = (
    events.StderrWritten,
    events.ServerNotified,
    events.ProcessesSampled,
    events.ProbeAnswered,
    events.ResourceUpdated,
    events.SubscriptionsCounted,
    events.InstanceStarted,
    events.InstanceEnded,
)
"""Events too frequent or too plain to be kept for `explain`; stderr has a ring of its own."""


_ROOM: Final = 2
"""How many times what is shown is looked at: a secret at its end is known as a whole, or by its begin at the cut."""

_WORDS: Final = frozenset({"properties", "reason", "tool", "why"})
"""Fields of events of others that may hold words of the server."""


def is_kept(event: events.Event) -> bool:
    """Whether an event belongs to the history of what happened, and is no mere sample or text."""
    return not isinstance(event, NOT_HISTORY)


class Reporter:
    """Turns what wires, processes, probes and lists tell of one server into events."""

    def __init__(
        self, spec: ServerSpec, bus: EventBus, observer: CallObserver, known_secrets: KnownSecrets | None = None
    ) -> None:
        """`known_secrets` are those of all servers: one may tell what is another's."""
        self.server = spec.name
        self.generation = 0
        """The newest generation; set by the actor when it opens one."""
        self.history: deque[events.Event] = deque(maxlen=HISTORY)
        self.mask = Mask(_secrets(spec), known_secrets)
        """Whatever is told of the server in its own words, or in ours with its own in them, goes through it."""
        self.ring = StderrRing(self._stderr, mask=self.mask)
        """The newest lines of stderr, over all processes of the server."""
        self.processes: dict[int, int] = {}
        """The generation of each running process, by its pid; the newest last."""
        self.last_exit: LastExit | None = None
        """How the newest of the ended processes ended; None while none has."""
        self.lacking_limits = ""
        """Which limits do not hold for the newest process, and why; empty where all do."""
        self._told_limits = ""
        self.on_list_notice: Callable[[str], bool] = lambda _: False
        """Takes the method of a notification; true when it was one about lists, which has events of its own."""
        self.on_offer: Callable[[Offer], None] = lambda _: None
        self.on_keep: Callable[[Offer], Awaitable[None]] = _keep_nothing
        """Keeps what is offered for the next run."""
        self.on_update: Callable[[object], None] = lambda _: None
        """Takes the `uri` of each notification of an updated resource, which has events of its own, whatever it is."""
        self.on_request: Callable[[str, JsonObject, Origin], Awaitable[JsonObject]] = _answer_nothing
        """Answers the requests of the server. Raises PeerRefusal."""
        self.on_missed: Callable[[], None] = lambda: None
        """Called when a message was refused that may have been such a notification."""
        self._bus = bus
        self._observer = observer
        self._counts: Counter[str] = Counter()
        self._denials = 0
        """Requests that were refused with 403 and not told of yet."""
        self._denials_due = float("-inf")
        """Monotonic time from which on they may be told of."""

    def pid_of(self, generation: int) -> int | None:
        """The process of that generation; None while none of it runs."""
        return next((pid for pid, of in self.processes.items() if of == generation), None)

    def respecified(self, spec: ServerSpec) -> None:
        """A new spec may hold new secrets."""
        self.mask.learn(_secrets(spec))

    def quoted(self, text: str) -> str:
        """A reason or a detail with words of the server in it, fit for events, the status and the log."""
        return self._clean(text, REASON)

    def _clean(self, text: AnyStr, limit: int) -> str:
        # Cut roughly before it is masked, which costs by its length.
        head = text[: limit * BYTES_PER_CHARACTER]
        shown = self.mask.text(clean_text(self.mask.raw(head), limit * _ROOM))
        return clip(shown if len(head) == len(text) else f"{shown[: limit - 1]}{ELLIPSIS}", limit)

    def of_others(self, event: events.ServerEvent) -> events.ServerEvent:
        """An event that somebody else has made of the server, without secrets in what may be its words."""
        told: dict[str, Any] = {}
        for name in _WORDS.intersection(one.name for one in fields(event)):
            said = getattr(event, name)
            told[name] = tuple(map(self.mask.text, said)) if isinstance(said, tuple) else self.mask.text(said)
        return replace(event, **told) if told else event

    def emit(self, event: events.Event) -> None:
        """Keep an event for `explain` and hand it to everybody."""
        if is_kept(event):
            self.history.append(event)
        self._bus.emit(event)

    # Of the actor

    def added(self, spec: ServerSpec) -> None:
        """The server came under supervision."""
        self.emit(events.ServerAdded(at=time.time(), server=self.server, transport=spec.transport, required=spec.required))

    def removed(self) -> None:
        """Nothing of the server is left."""
        self.emit(events.ServerRemoved(at=time.time(), server=self.server))

    def moved(self, old: State, new: State, reason: str, next_in: float | None) -> None:
        """The server moved, or its reason changed; the next try by itself is in `next_in` seconds."""
        at = time.time()
        next_attempt = None if next_in is None else at + next_in
        self.emit(
            events.ServerStateChanged(at=at, server=self.server, old=old, new=new, reason=reason, next_attempt=next_attempt)
        )

    def restarted(self, generation: int, reason: str) -> None:
        """A further generation is being started, or has taken over."""
        self.emit(events.ServerRestarted(at=time.time(), server=self.server, generation=generation, reason=reason))

    def connect_ended(self, generation: int, outcome: str, seconds: float) -> None:
        """A try to connect ended: `ready`, or the cause of the failure."""
        self.emit(
            events.ConnectEnded(at=time.time(), server=self.server, generation=generation, outcome=outcome, seconds=seconds)
        )

    def session_opened(self, generation: int, handshake: Handshake, transport: str, seconds: float) -> None:
        """The handshake is done."""
        self.emit(
            events.SessionOpened(
                at=time.time(),
                server=self.server,
                generation=generation,
                era=handshake.era,
                protocol_version=handshake.protocol_version,
                transport=transport,
                implementation=self.implementation(handshake.server_info),
                seconds=seconds,
            )
        )

    def session_lost(self, generation: int, cause: str, detail: str) -> None:
        """A session that stood is gone by no order of ours."""
        self.emit(events.SessionLost(at=time.time(), server=self.server, generation=generation, cause=cause, detail=detail))

    def implementation(self, info: JsonObject) -> str:
        """The server's own word for itself, cleaned and cut to what a label may hold."""
        name, version = str(info.get("name") or ""), str(info.get("version") or "")
        return self._clean(f"{name} {version}".strip(), IMPLEMENTATION)

    # Of the wire

    def notified(self, method: str, params: JsonObject, *, to_caller: bool = False, private: bool = False) -> None:
        """See `WireHooks`."""
        self._observer.notification_received(self.server, method)
        if method == RESOURCE_UPDATED:
            self.on_update(params.get("uri"))
        elif not self.on_list_notice(method):
            self._bus.emit(
                events.ServerNotified(
                    at=time.time(),
                    server=self.server,
                    method=self._clean(method, EXCERPT),
                    params=self.mask.told(params),
                    to_caller=to_caller,
                    private=private,
                )
            )

    async def answer(self, method: str, params: JsonObject, origin: Origin) -> JsonObject:
        """See `WireHooks`: a ping is answered at any time, and what we have not offered is refused, never left unanswered."""
        if method == "ping":
            return {}
        return await self.on_request(method, params, origin)

    def noise(self, excerpt: bytes) -> None:
        """See `WireHooks`. Told of rarely: the first few times, then at each power of ten."""
        self._counts["noise"] += 1
        count = self._counts["noise"]
        if count <= 3 or _is_round(count):
            text = self._clean(excerpt, EXCERPT)
            self.emit(events.StdoutNoise(at=time.time(), server=self.server, excerpt=text, count=count))

    def refused(self, reason: str, detail: str) -> None:
        """See `WireHooks`. Every refusal is counted; told of are the first of a kind and each power of ten."""
        self._observer.message_refused(self.server, reason)
        self._counts[reason] += 1
        if reason in _MAY_BE_UPDATES:
            self.on_missed()
        if _is_round(self._counts[reason]):
            text = self._clean(detail, EXCERPT * 2)
            self.emit(events.MessageRefused(at=time.time(), server=self.server, reason=reason, detail=text))

    # Of the questions

    def question_asked(self, question: Question) -> None:
        """See `QuestionReport`."""
        tool = None if question.tool is None else self._clean(question.tool, EXCERPT)
        who = None if question.principal is None else question.principal.name
        self.emit(
            events.QuestionAsked(
                at=time.time(),
                server=self.server,
                method=question.method,
                belongs=question.belongs.value,
                principal=who,
                tool=tool,
            )
        )

    def question_answered(self, question: Question, outcome: str, by: str, seconds: float) -> None:
        """See `QuestionReport`."""
        self.emit(
            events.QuestionAnswered(
                at=time.time(), server=self.server, method=question.method, outcome=outcome, by=by, seconds=seconds
            )
        )

    # Of the process

    def process_started(self, pid: int) -> None:
        """See `ProcessHooks`."""
        self.processes[pid] = self.generation
        self.lacking_limits = ""
        self.emit(events.ProcessStarted(at=time.time(), server=self.server, pid=pid, generation=self.generation))

    def limits_not_enforced(self, limits: tuple[str, ...], why: str) -> None:
        """See `ProcessHooks`. Told of once, not at every restart."""
        self.lacking_limits = f"{', '.join(limits)}: {why}"
        if self._told_limits != self.lacking_limits:
            self._told_limits = self.lacking_limits
            self.emit(events.LimitsNotEnforced(at=time.time(), server=self.server, limits=limits, why=why))

    def process_ended(
        self, pid: int, *, exit_code: int | None, signal: int | None, seconds: float, wanted: bool, why: str
    ) -> None:
        """See `ProcessHooks`."""
        generation = self.processes.pop(pid, self.generation)
        how = f"was killed by {_signal_name(signal)}" if signal is not None else f"exited with code {exit_code}"
        told = f"was killed by the kernel after {seconds:.1f} s: {why}" if why else f"{how} after {seconds:.1f} s"
        self.last_exit = LastExit(told, generation, pid, wanted)
        self.emit(
            events.ProcessEnded(
                at=time.time(),
                server=self.server,
                pid=pid,
                generation=generation,
                exit_code=exit_code,
                signal=signal,
                seconds=seconds,
                wanted=wanted,
                why=why,
            )
        )

    def process_stuck(self, pid: int) -> None:
        """See `ProcessHooks`."""
        generation = self.processes.pop(pid, self.generation)
        self.last_exit = LastExit("hangs in the kernel; it was killed and is not waited for", generation, pid, wanted=True)
        self.emit(events.ProcessStuck(at=time.time(), server=self.server, pid=pid))

    def sampled(self, usage: Usage) -> None:
        """What its processes use was looked at."""
        self.emit(
            events.ProcessesSampled(
                at=time.time(),
                server=self.server,
                processes=usage.processes,
                resident_bytes=usage.resident_bytes,
                cpu_seconds=usage.cpu_seconds,
            )
        )

    def _stderr(self, lines: tuple[str, ...], dropped: int) -> None:
        self._bus.emit(events.StderrWritten(at=time.time(), server=self.server, lines=lines, dropped=dropped))

    # Of the probes

    def probe_answered(self, seconds: float) -> None:
        """See `ProbeReport`."""
        self.emit(events.ProbeAnswered(at=time.time(), server=self.server, seconds=seconds))

    def probe_missed(self, misses: int, allowed: int) -> None:
        """See `ProbeReport`."""
        self.emit(events.ProbeMissed(at=time.time(), server=self.server, misses=misses, allowed=allowed))

    def access_denied(self, detail: str) -> None:
        """See `ProbeReport`."""
        self._denials += 1
        if anyio.current_time() < self._denials_due:
            return
        count, self._denials = self._denials, 0
        self._denials_due = anyio.current_time() + DENIALS_TOLD
        self.emit(events.AccessDenied(at=time.time(), server=self.server, detail=self.quoted(detail), count=count))

    # Of the credentials

    def secrets_fetched(self, secrets: tuple[str, ...]) -> None:
        """See `CredentialWatcher`."""
        self.mask.learn_passing(secrets)

    def credentials_refreshed(self, source: str, expires_at: float | None) -> None:
        """See `CredentialWatcher`."""
        self.emit(events.CredentialsRefreshed(at=time.time(), server=self.server, source=source, expires_at=expires_at))

    def credentials_failed(self, cause: str, detail: str, retry_in: float) -> None:
        """See `CredentialWatcher`."""
        detail = self.quoted(detail)
        self.emit(events.CredentialsFailed(at=time.time(), server=self.server, cause=cause, detail=detail, retry_in=retry_in))

    def credentials_dropped(self, cause: str) -> None:
        """See `CredentialWatcher`."""
        self.emit(events.CredentialsDropped(at=time.time(), server=self.server, cause=cause))

    # Of the log level

    def log_level_asked(self, level: str, why: str) -> None:
        """See `LevelWatcher`."""
        why = self._clean(why, EXCERPT * 2)
        self.emit(events.LogLevelAsked(at=time.time(), server=self.server, level=level, why=why))

    # Of the lists

    def offered(self, offer: Offer, changed: tuple[events.CatalogKind, ...]) -> None:
        """See `OfferWatcher`."""
        self.on_offer(offer)
        for kind in changed:
            count = len(getattr(offer, kind))
            self.emit(events.CatalogChanged(at=time.time(), server=self.server, kind=kind, count=count))

    async def keep_offer(self, offer: Offer) -> None:
        """See `OfferWatcher`."""
        await self.on_keep(offer)

    def dropped(self, kind: events.CatalogKind, listed: Listed) -> None:
        """See `OfferWatcher`. A list that is over a limit is counted as refused; what is within it is kept."""
        found = [Dropped("the list", listed.cut), *listed.dropped] if listed.cut else listed.dropped
        if listed.over is not None:
            self.refused(listed.over, listed.cut)
        for one in found[:MAX_DROPS_TOLD]:
            entry, why = self._clean(one.entry, EXCERPT), self._clean(one.why, EXCERPT * 2)
            self.emit(events.CatalogEntryDropped(at=time.time(), server=self.server, kind=kind, entry=entry, why=why))
        if len(found) > MAX_DROPS_TOLD:
            rest = f"{len(found) - MAX_DROPS_TOLD} further entries"
            why = "dropped too"
            self.emit(events.CatalogEntryDropped(at=time.time(), server=self.server, kind=kind, entry=rest, why=why))


MAX_DROPS_TOLD: Final = 20
"""Dropped entries of one list that are named; the others are counted."""


def _secrets(spec: ServerSpec) -> list[str]:
    """What the server is given: by its entry, and by the environment that its processes inherit."""
    inherited = inherited_secrets(spec.target, os.environ) if isinstance(spec.target, StdioLaunch) else []
    return [*secrets_of(spec), *inherited]


async def _keep_nothing(_: Offer) -> None:
    return


async def _answer_nothing(method: str, _params: JsonObject, _origin: Origin) -> JsonObject:
    raise PeerRefusal(METHOD_NOT_FOUND, f"Method not found: {clean_text(method, EXCERPT)}")


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _is_round(count: int) -> bool:
    while count >= 10 and count % 10 == 0:
        count //= 10
    return count == 1

"""Owns what is told of one server: its events, the newest of them, and the tail of its stderr."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any, AnyStr, Final

import anyio

from mcpvisor.supervisor import events
from mcpvisor.supervisor.bus import EventBus
from mcpvisor.supervisor.cleaning import BYTES_PER_CHARACTER, clean_text, clip
from mcpvisor.supervisor.entries import Dropped
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.listing import Listed
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.observer import CallObserver
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.process.environment import inherited_secrets
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.process_reports import ProcessReports
from mcpvisor.supervisor.questions import Question
from mcpvisor.supervisor.restoring import ListFaults
from mcpvisor.supervisor.sdk import Handshake
from mcpvisor.supervisor.secret_index import ELLIPSIS
from mcpvisor.supervisor.signs import CatalogDrop
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch, secrets_of
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.wire_reports import EXCERPT, WireReports

JsonObject = dict[str, Any]

HISTORY: Final = 100
REASON: Final = 500
"""Characters of a reason or a detail that may quote a server."""

DENIALS_TOLD: Final = 60.0
"""Seconds between two reports of requests that a server has refused for want of rights."""

IMPLEMENTATION: Final = 64

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
    """Turns what becomes of one server into events; what its wires and processes tell has parts of its own for that."""

    def __init__(
        self, spec: ServerSpec, bus: EventBus, observer: CallObserver, known_secrets: KnownSecrets | None = None
    ) -> None:
        """`known_secrets` are those of all servers: one may tell what is another's."""
        self.server = spec.name
        self.generation = 0
        """The newest generation; set by the actor when it opens one."""
        self.numbered: deque[tuple[int, events.Event]] = deque(maxlen=HISTORY)
        """The newest events, the oldest first, each with its number in the order of all that are kept."""
        self.cause = ""
        """The cause of the newest failure; empty where there was none since the server was last ready."""
        self.mask = Mask(_secrets(spec), known_secrets)
        """Whatever is told of the server in its own words, or in ours with its own in them, goes through it."""
        self.ring = StderrRing(self._stderr, mask=self.mask)
        """The newest lines of stderr, over all processes of the server."""
        self.processes = ProcessReports(self)
        self.wire = WireReports(self, bus, observer)
        self.on_offer: Callable[[Offer], None] = lambda _: None
        self.on_keep: Callable[[Offer], Awaitable[None]] = _keep_nothing
        """Keeps what is offered for the next run."""
        self._bus = bus
        self._denials = 0
        """Requests that were refused with 403 and not told of yet."""
        self._denials_due = float("-inf")
        """Monotonic time from which on they may be told of."""

    @property
    def history(self) -> list[events.Event]:
        """The newest events, the oldest first."""
        return [event for _, event in self.numbered]

    def respecified(self, spec: ServerSpec) -> None:
        """A new spec may hold new secrets."""
        self.mask.learn(_secrets(spec))

    def quoted(self, text: str) -> str:
        """A reason or a detail with words of the server in it, fit for events, the status and the log."""
        return self.clean(text, REASON)

    def clean(self, text: AnyStr, limit: int) -> str:
        """Words of the server without secrets and control characters, cut to so many characters."""
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
            self.numbered.append((self._bus.next_number(), event))
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
        self.cause = "" if outcome == "ready" else outcome
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
        self.cause = cause
        self.emit(events.SessionLost(at=time.time(), server=self.server, generation=generation, cause=cause, detail=detail))

    def implementation(self, info: JsonObject) -> str:
        """The server's own word for itself, cleaned and cut to what a label may hold."""
        name, version = str(info.get("name") or ""), str(info.get("version") or "")
        return self.clean(f"{name} {version}".strip(), IMPLEMENTATION)

    # Of the questions

    def refused(self, reason: str, detail: str) -> None:
        """See `QuestionReport`."""
        self.wire.refused(reason, detail)

    def question_asked(self, question: Question) -> None:
        """See `QuestionReport`."""
        tool = None if question.tool is None else self.clean(question.tool, EXCERPT)
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
        why = self.clean(why, EXCERPT * 2)
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

    def dropped(self, kind: events.CatalogKind, listed: Listed) -> ListFaults:
        """See `OfferWatcher`. A list that is over a limit is counted as refused; what is within it is kept."""
        found = [Dropped("the list", listed.cut), *listed.dropped] if listed.cut else listed.dropped
        if listed.over is not None:
            self.refused(listed.over, listed.cut)
        told = [
            CatalogDrop(kind, self.clean(one.entry, EXCERPT), self.clean(one.why, EXCERPT * 2))
            for one in found[:MAX_DROPS_TOLD]
        ]
        if len(found) > MAX_DROPS_TOLD:
            told.append(CatalogDrop(kind, f"{len(found) - MAX_DROPS_TOLD} further entries", "dropped too"))
        for one in told:
            self.emit(events.CatalogEntryDropped(at=time.time(), server=self.server, kind=kind, entry=one.entry, why=one.why))
        return ListFaults(tuple(told), len(found))


MAX_DROPS_TOLD: Final = 20
"""Dropped entries of one list that are named; the others are counted."""


def _secrets(spec: ServerSpec) -> list[str]:
    """What the server is given: by its entry, and by the environment that its processes inherit."""
    inherited = inherited_secrets(spec.target, os.environ) if isinstance(spec.target, StdioLaunch) else []
    return [*secrets_of(spec), *inherited]


async def _keep_nothing(_: Offer) -> None:
    return

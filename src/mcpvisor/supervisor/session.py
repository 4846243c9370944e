"""Owns one session that stands: the requests on it, what keeps it in step with its server, and what of that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import anyio
import anyio.abc

from mcpvisor.supervisor import sdk
from mcpvisor.supervisor.asking import restricted
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.flights import Flights
from mcpvisor.supervisor.log_level import SessionLevel, WantedLevel
from mcpvisor.supervisor.open_calls import OpenCall
from mcpvisor.supervisor.probing import NOWHERE, Prober
from mcpvisor.supervisor.refusal import Refusal, refusal_of
from mcpvisor.supervisor.restoring import Restorer
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.status import NO_CREDENTIALS, PROBE_EXCUSED, PROBE_MISSED, REFUSED_CREDENTIALS
from mcpvisor.supervisor.subscriptions.upkeep import SubscriptionUpkeep
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.transports.exchange import AckSink, LogSink, ProgressSink
from mcpvisor.supervisor.transports.wire import Wire, WireEnd

JsonObject = dict[str, Any]

_BY_HARM: Final = ("source", "credentials", "probe", "refusal", "latency", "lists", "push", "subscriptions")
"""All that may be impaired, what hurts calls most first: a reason may be cut at its end."""


class ProbeReport(Protocol):
    """Who is told of the probes of a server."""

    def probe_answered(self, seconds: float) -> None:
        """A probe was answered."""
        ...

    def probe_missed(self, misses: int, allowed: int) -> None:
        """A probe was not answered."""
        ...

    def access_denied(self, detail: str) -> None:
        """A caller's request was refused, though the credentials of the session are good."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """What outlives the sessions of a server, and is brought to each new one."""

    restorer: Restorer
    log_level: WantedLevel
    probes: ProbeReport
    subscriptions: Subscriptions


@dataclass(frozen=True, slots=True)
class Denial:
    """How a request was refused for want of rights; `at` is a monotonic time in seconds."""

    detail: str
    at: float


class Session:
    """One session after its handshake. `impaired` is told what does not work besides calls; nothing when all of it does."""

    def __init__(
        self, wire: Wire, handshake: sdk.Handshake, spec: ServerSpec, lasting: Lasting, impaired: Callable[[str], None]
    ) -> None:
        self.handshake = handshake
        self.has_served = False
        """Whether a caller's request was answered."""
        self._wire = wire
        self._spec = spec
        self._lasting = lasting
        self._told_impaired = impaired
        self._level = SessionLevel(lasting.log_level, handshake, self._ask)
        self._flights = Flights()
        self._prober = Prober(spec.probe, self._probe, self, self._flights.is_busy)
        table, lists = lasting.subscriptions, lasting.restorer
        self._subscriptions = SubscriptionUpkeep(table, handshake, self._ask, self._listen, wire, lists.reread)
        self._impaired: dict[str, str] = {}
        self._refusal: Refusal | None = None
        """What the server answers now, which keeps its calls from being served."""
        self.denial: Denial | None = None
        """The newest request of a caller that was refused, though the credentials of the session are good."""

    @property
    def calls(self) -> int:
        """Requests of callers that are in flight."""
        return len(self._flights)

    @property
    def refused_since(self) -> float | None:
        """Since when the server refuses what it is asked, in monotonic seconds; None where it does not."""
        return self._refusal.since if self._refusal is not None else None

    @property
    def probe_due(self) -> float | None:
        """When a server that refuses what it is asked is probed again, in monotonic seconds; None of any other."""
        return self._prober.due if self._refusal is not None else None

    @property
    def is_asked_to_wait(self) -> bool:
        """Whether that is no earlier than the server has said."""
        return self._refusal is not None and self._prober.not_before > anyio.current_time()

    @property
    def refused_level(self) -> tuple[str, str]:
        """See `SessionLevel.refused`."""
        return self._level.refused

    # Upkeep

    async def restore(self, tasks: anyio.abc.TaskGroup) -> str:
        """Bring to the session what it must have, and probe it; returns what could not be brought, empty when all could.

        `tasks` is for what begins here and has to last as long as the upkeep.
        """
        # A server that falls silent while it is asked for its lists is found out no later than any other.
        tasks.start_soon(self._prober.run)
        tasks.start_soon(self._watch_suspicion)
        tasks.start_soon(self._watch_silence)
        await self._level.bring()
        self._impaired["lists"] = await self._lasting.restorer.restore(self.handshake, self._ask)
        tasks.start_soon(self._subscriptions.run)
        self._impaired["subscriptions"] = await self._subscriptions.restored()
        return self._lacking()

    async def keep(self) -> None:
        """Keep the session in step with its server until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lasting.restorer.follow, self.handshake, self._ask, partial(self._impair, "lists"))
            tasks.start_soon(self._subscriptions.follow, partial(self._impair, "subscriptions"))
            tasks.start_soon(self._level.follow)
            tasks.start_soon(self._watch_push)

    def respecified(self, spec: ServerSpec) -> None:
        """A spec that differs only in what can be applied in place; a new probe policy holds from the next probe on."""
        self._spec = spec
        self._prober.policy = spec.probe

    def resume(self) -> None:
        """Go on as the one session of the server: the one that was to take over has been given up."""
        self._subscriptions.resume()

    async def drained(self) -> None:
        """Return once no request of a caller is in flight."""
        await self._flights.drained()

    def recheck(self, after: float) -> None:
        """Probe in so many seconds at the latest."""
        self._prober.hasten(anyio.current_time() + after)

    def lacks_credentials(self, why: str) -> None:
        """Why there are no credentials to send anything with; empty: there are, and the session is probed at once."""
        had_none = bool(self._impaired.get("source"))
        if had_none and not why:
            self._impaired["credentials"] = ""
            self.recheck(0.0)
        self._impair("source", f"{NO_CREDENTIALS}{why}" if why else "")

    async def _watch_silence(self) -> None:
        """A request that hears nothing is reason enough to ask whether its session is alive."""
        while True:
            await self._flights.silent()
            await self._prober.inquire()

    async def _watch_suspicion(self) -> None:
        """A session in doubt is asked at once, before the next caller meets its loss."""
        while True:
            suspicion = self._wire.suspicion
            if self._wire.suspect:
                await self._prober.check()
            await suspicion.wait()

    async def _watch_push(self) -> None:
        """Show a push channel that is down; once it is back, what may have changed meanwhile is read again."""
        while True:
            trouble, was_down = self._wire.push_trouble, bool(self._impaired.get("push"))
            self._impair("push", trouble)
            if was_down and not trouble:
                self._lasting.restorer.reread()
            await self._wire.push_changed()

    def _impair(self, part: str, lacking: str) -> None:
        self._impair_all({part: lacking})

    def _impair_all(self, parts: dict[str, str]) -> None:
        """What follows from one answer is told at once, so that nothing looks well in between."""
        before = self._lacking()
        self._impaired |= parts
        if self._lacking() != before:
            self._told_impaired(self._lacking())

    def _lacking(self) -> str:
        # What the source of the credentials says is newer than what a probe has said of them.
        shown = {**self._impaired, "credentials": ""} if self._impaired.get("source") else self._impaired
        return "; ".join(text for part in _BY_HARM if (text := shown.get(part)))

    # Requests

    async def request(
        self,
        method: str,
        params: JsonObject | None,
        *,
        on_progress: ProgressSink | None = None,
        on_log: LogSink | None = None,
        client_capabilities: JsonObject | None = None,
        log_level: str | None = None,
        call: OpenCall,
    ) -> JsonObject:
        """A request of a caller. Raises RequestFailed."""
        number = self._flights.begin()
        heard = partial(self._heard, number)
        try:
            if self._wire.suspect:
                await self._prober.reassure()
            stamped, headers = self._stamp(method, params, client_capabilities, log_level)
            with call.watched(lambda: self._asking(number, call)):
                result = await self._wire.request(
                    method,
                    stamped,
                    on_progress=None if on_progress is None else partial(heard, on_progress),
                    on_log=None if on_log is None else partial(heard, on_log),
                    call=call,
                    headers=headers,
                )
        except RequestFailed as failure:
            self.has_served = self.has_served or (failure.outcome is Outcome.PEER_ERROR and failure.cause != NOWHERE)
            if failure.cause == "auth" and failure.data and failure.data.get("http_status") == 403:
                self.denial = Denial(failure.message, anyio.current_time())
                self._lasting.probes.access_denied(failure.message)
            raise
        else:
            self.has_served = True
            self._prober.answered()
            self._serves()  # steady answers postpone every probe that could say so
            return result
        finally:
            self._flights.end(number)
            self._prober.hold(held=self._flights.is_asking)

    def _serves(self, **more: str) -> None:
        """Something was answered as it should be, whatever was wrong with the answers before; `more` is what is besides."""
        self._refusal = None
        self._impair_all({"probe": "", "refusal": "", "credentials": "", **more})

    async def roots_changed(self) -> None:
        """Tell the server that the roots of its client are others; nothing where it has not been offered any."""
        if not self.handshake.modern and "roots" in self._spec.allow:
            await self._wire.notify("notifications/roots/list_changed", None)

    def _heard(self, number: int, sink: ProgressSink, params: JsonObject) -> None:
        self._flights.heard(number)
        sink(params)

    def _asking(self, number: int, call: OpenCall) -> None:
        """A server that waits for an answer is not silent, and need not answer probes before it has it."""
        self._flights.asking(number, open_=call.questions > 0)
        self._prober.hold(held=self._flights.is_asking)

    async def _listen(self, params: JsonObject, on_ack: AckSink) -> JsonObject:
        """Our own stream of notifications."""
        stamped, headers = self._stamp("subscriptions/listen", params, None, None)
        return await self._wire.request("subscriptions/listen", stamped, on_ack=on_ack, headers=headers)

    async def _ask(self, method: str, params: JsonObject | None) -> JsonObject:
        """A request of our own: lists, probes, subscriptions."""
        stamped, headers = self._stamp(method, params, None, None)
        return await self._wire.request(method, stamped, headers=headers)

    def _stamp(
        self,
        method: str,
        params: JsonObject | None,
        client_capabilities: JsonObject | None,
        log_level: str | None,
    ) -> tuple[JsonObject | None, dict[str, str]]:
        """The params and headers of a request as the era of this session wants them."""
        if not self.handshake.modern:
            return params, {}
        declared = restricted(client_capabilities or {}, self._spec.allow)
        stamped, headers = sdk.stamp(
            method, params, handshake=self.handshake, client_capabilities=declared, log_level=log_level
        )
        if method == "tools/call" and self._wire.kind != "stdio":
            schema = self._lasting.restorer.input_schema((params or {}).get("name"))
            headers |= sdk.argument_headers(schema, (params or {}).get("arguments"))
        return stamped, headers

    # Probes

    async def _probe(self, otherwise: bool) -> None:
        await self._ask(self._question(otherwise), None)

    def _question(self, otherwise: bool) -> str:
        usual = "server/discover" if self.handshake.modern else "ping"
        return self._other_question() or usual if otherwise else usual

    def _other_question(self) -> str | None:
        """A list that the server says it has: what is silent to probes that it does not know may well answer that."""
        kinds = ("tools", "resources", "prompts")
        return next((f"{kind}/list" for kind in kinds if kind in self.handshake.capabilities), None)

    def probe_answered(self, seconds: float, slow: str) -> None:
        """See `Verdicts`."""
        self._wire.suspect = False
        self._serves(latency=slow)
        self._lasting.probes.probe_answered(seconds)

    def probe_refused(self, seconds: float, refusal: RequestFailed, *, otherwise: bool) -> None:
        """See `Verdicts`: a session that lives is kept, and shown as what it is."""
        self._wire.suspect = False
        self._refusal = refusal_of(refusal, self._question(otherwise), self._refusal, anyio.current_time())
        self._lasting.probes.probe_answered(seconds)
        self._impair_all({"probe": "", "credentials": "", "refusal": self._refusal.text})

    def probe_missed(self, misses: int, *, busy: bool, dead: bool, cause: RequestFailed) -> None:
        """See `Verdicts`."""
        allowed = self._spec.probe.failures
        if cause.cause != "auth":  # a refusal is an answer
            self._lasting.probes.probe_missed(misses, allowed)
        if dead:
            end = "connect_failed" if cause.outcome is Outcome.NOT_SENT else "probe"
            end = cause.cause if cause.cause in ("auth", NOWHERE) else end
            self._wire.finish(WireEnd(cause=end, detail=cause.message, retry_after_s=cause.retry_after_s))
        elif cause.cause == "auth":  # it may be for a moment: the session stays until the refusals are as many as misses may be
            self._impair("credentials", f"{REFUSED_CREDENTIALS}{cause.message}")
        else:
            shown = PROBE_EXCUSED if busy else f"{PROBE_MISSED}{misses}/{allowed} missed"
            self._refusal = None  # it was said a while ago, and now nothing is
            self._impair_all({"probe": shown, "refusal": ""})

    def probe_withheld(self, cause: RequestFailed) -> None:
        """See `Verdicts`."""
        self._impair("credentials", f"{NO_CREDENTIALS}{cause.message}")

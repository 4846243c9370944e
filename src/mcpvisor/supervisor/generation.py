"""Owns one generation of a server: a wire and the session on it, from the first byte until everything behind it is gone.

It runs in a task of its own, which alone enters and leaves the wire and the session. What happens is posted to the server's
actor as inputs of its lifecycle; what to do next is decided there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import anyio

from mcpvisor.supervisor import lifecycle, sdk
from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.log_level import SessionLevel, WantedLevel
from mcpvisor.supervisor.negotiation import EraMemory, NegotiationFailed, negotiate
from mcpvisor.supervisor.opening import Opener, Opening
from mcpvisor.supervisor.probing import Prober
from mcpvisor.supervisor.restoring import Restorer
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, ServerSpec
from mcpvisor.supervisor.starts import StartGate, StartPlace
from mcpvisor.supervisor.transports.exchange import LogSink, ProgressSink
from mcpvisor.supervisor.transports.wire import OpenFailed, Wire, WireEnd

_log = logging.getLogger(__name__)
JsonObject = dict[str, Any]
Post = Callable[[lifecycle.Input], None]

PREPARING: Final = WireEnd(cause="closed", detail="closed before it was ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every generation of a server is given: how wires are opened, the queue of starts, and what outlives generations."""

    opener: Opener
    starts: StartGate
    era: EraMemory
    log_level: WantedLevel
    post: Post


class ProbeReport(Protocol):
    """Who is told of the probes of a server."""

    def probe_answered(self, seconds: float) -> None:
        """A probe was answered."""
        ...

    def probe_missed(self, misses: int, allowed: int) -> None:
        """A probe was not answered."""
        ...


class Generation:
    """One wire and one session; used once."""

    def __init__(self, opening: Opening, means: Means, restorer: Restorer, report: ProbeReport) -> None:
        self.number = opening.generation
        self.spec: ServerSpec = opening.spec
        self.handshake: sdk.Handshake | None = None
        self.opened_at = anyio.current_time()
        self.handshake_seconds: float | None = None
        self.served = False
        """Whether a caller's request was answered: what makes a restart immediate."""
        self._opening = opening
        self._means = means
        self._restorer = restorer
        self._report = report
        self._wire: Wire | None = None
        self._prober: Prober | None = None
        self._impaired: dict[str, str] = {}
        self._restored = False
        self._calls = 0
        self._idle = anyio.Event()
        self._retire_at: float | None = None
        self._retiring = anyio.Event()
        self._scope = anyio.CancelScope()

    @property
    def transport(self) -> str:
        """The transport of the wire, as it was settled; empty before there is one."""
        return self._wire.kind if self._wire is not None else ""

    # Orders of the actor

    def retire(self, drain: float) -> None:
        """Finish what is in flight within `drain` seconds, then close; a second order can only shorten that."""
        at = anyio.current_time() + drain
        if self._retire_at is None or at < self._retire_at:
            self._retire_at = at
            self._retiring.set()
            self._retiring = anyio.Event()
        if self._calls == 0 or drain <= 0:
            self._scope.cancel()

    def respecified(self, spec: ServerSpec) -> None:
        """A spec that differs only in what can be applied in place."""
        self.spec = spec

    # Life

    async def run(self) -> None:
        """Open, serve and close. Never raises; the last thing it posts is `Closed`."""
        place: StartPlace | None = None
        try:
            with self._scope:
                place = await self._means.starts.enter()
                self.opened_at = anyio.current_time()
                self._post(lifecycle.Launched(self.number))
                opening = replace(self._opening, only_sse=self._means.era.only_sse)
                async with self._means.opener(opening) as wire:
                    self._wire = wire
                    await self._on_wire(wire, place)
        except OpenFailed as failure:
            self._ended(failure.end)
        except Exception as error:  # noqa: BLE001 - see below
            # A fault of ours must cost this generation only; the server is tried again like after any other end.
            _log.exception("generation %s of %s failed", self.number, self.spec.name)
            self._ended(WireEnd(cause="internal", detail=f"a fault of mcpvisor itself: {type(error).__name__}: {error}"))
        finally:
            if place is not None:
                place.release()
            self._post(lifecycle.Closed(self.number))

    async def _on_wire(self, wire: Wire, place: StartPlace) -> None:
        self._post(lifecycle.Opened(self.number))
        async with sdk.session_on(wire) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(place.release_in_time)
            tasks.start_soon(self._watch_retirement, tasks.cancel_scope)
            try:
                # An end during the handshake is judged there: it may say something of the era.
                self.handshake = await negotiate(session, wire, era=self.spec.era, memory=self._means.era)
                tasks.start_soon(self._watch_end, wire, tasks.cancel_scope)
                await self._serve(self.handshake, wire, place)
            except NegotiationFailed as failure:
                cause = self._other_transport(wire) if failure.cause == "not_streamable_http" else failure.cause
                self._ended(WireEnd(cause=cause, detail=failure.detail, retry_after_s=failure.retry_after_s))
                tasks.cancel_scope.cancel()

    def _other_transport(self, wire: Wire) -> str:
        """The cause of an end for which the other HTTP transport is tried at once, where the entry leaves that open."""
        target = self.spec.target
        is_open = isinstance(target, HttpTarget) and target.transport is HttpTransport.AUTO
        self._means.era.only_sse = is_open and wire.kind == "http"
        return "other_transport" if self._means.era.only_sse else "protocol"

    async def _serve(self, handshake: sdk.Handshake, wire: Wire, place: StartPlace) -> None:
        self.handshake_seconds = anyio.current_time() - self.opened_at
        wire.negotiated(handshake.protocol_version, modern=handshake.modern)
        place.release()
        self._prober = Prober(self.spec.probe, self._probe, self, lambda: self._calls > 0)
        self._post(lifecycle.Negotiated(self.number))
        level = SessionLevel(self._means.log_level, handshake, self._ask)
        await level.bring()
        self._impaired["lists"] = await self._restorer.restore(handshake, self._ask)
        self._post(lifecycle.Restored(self.number, self._lacking()))
        self._restored = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._restorer.follow, handshake, self._ask, partial(self._impair, "lists"))
            tasks.start_soon(level.follow)
            tasks.start_soon(self._prober.run)
            tasks.start_soon(self._watch_suspicion, wire, self._prober)
            tasks.start_soon(self._watch_push, wire)

    async def _watch_suspicion(self, wire: Wire, prober: Prober) -> None:
        """A session in doubt is asked at once, before the next caller meets its loss."""
        while True:
            suspicion = wire.suspicion
            if wire.suspect:
                await prober.check()
            await suspicion.wait()

    async def _watch_push(self, wire: Wire) -> None:
        """Show a push channel that is down; once it is back, what may have changed meanwhile is read again."""
        while True:
            trouble, was_down = wire.push_trouble, bool(self._impaired.get("push"))
            self._impair("push", trouble)
            if was_down and not trouble:
                self._restorer.reread()
            await wire.push_changed()

    async def _watch_end(self, wire: Wire, scope: anyio.CancelScope) -> None:
        await wire.ended.wait()
        end = wire.end or PREPARING
        self._ended(end)
        if end.cause == "session_lost":
            await self._drained()  # each request in flight has an answer of its own coming
        scope.cancel()

    async def _watch_retirement(self, scope: anyio.CancelScope) -> None:
        while self._retire_at is None:
            await self._retiring.wait()
        while (left := self._retire_at - anyio.current_time()) > 0 and self._calls:
            with anyio.move_on_after(left):
                await self._drained()
        scope.cancel()

    async def _drained(self) -> None:
        while self._calls:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _ended(self, end: WireEnd) -> None:
        if not self._restored and self._wire is not None and self._wire.kind == "sse":
            self._means.era.only_sse = False  # it was worth a try; the next one begins with what is newer
        self._post(
            lifecycle.Ended(
                self.number,
                end.cause,
                end.detail,
                served=self.served,
                exit_code=end.exit_code,
                retry_after_s=end.retry_after_s,
            )
        )

    def _post(self, event: lifecycle.Input) -> None:
        self._means.post(event)

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
    ) -> JsonObject:
        """A request of a caller. Raises RequestFailed."""
        wire = self._wire
        if wire is None:
            raise RequestFailed(Outcome.NOT_SENT, "closed", "the session is not open yet")
        self._calls += 1
        try:
            if wire.suspect and self._prober is not None:
                await self._prober.reassure()
            stamped, headers = self._stamp(wire, method, params, client_capabilities, log_level)
            result = await wire.request(method, stamped, on_progress=on_progress, on_log=on_log, headers=headers)
        except RequestFailed as failure:
            self.served = self.served or failure.outcome is Outcome.PEER_ERROR
            raise
        else:
            self.served = True
            if self._prober is not None:
                self._prober.answered()
            return result
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def _ask(self, method: str, params: JsonObject | None) -> JsonObject:
        """A request of our own: lists, probes."""
        if self._wire is None:
            raise RequestFailed(Outcome.NOT_SENT, "closed", "the session is not open yet")
        stamped, headers = self._stamp(self._wire, method, params, None, None)
        return await self._wire.request(method, stamped, headers=headers)

    def _stamp(
        self,
        wire: Wire,
        method: str,
        params: JsonObject | None,
        client_capabilities: JsonObject | None,
        log_level: str | None,
    ) -> tuple[JsonObject | None, dict[str, str]]:
        """The params and headers of a request as the era of this session wants them."""
        handshake = self.handshake
        if handshake is None or not handshake.modern:
            return params, {}
        stamped, headers = sdk.stamp(
            method, params, handshake=handshake, client_capabilities=client_capabilities or {}, log_level=log_level
        )
        if method == "tools/call" and wire.kind != "stdio":
            schema = self._restorer.input_schema((params or {}).get("name"))
            headers |= sdk.argument_headers(schema, (params or {}).get("arguments"))
        return stamped, headers

    # Probes

    async def _probe(self) -> None:
        modern = self.handshake is not None and self.handshake.modern
        await self._ask("server/discover" if modern else "ping", None)

    def probe_answered(self, seconds: float) -> None:
        """See `Verdicts`."""
        if self._wire is not None:
            self._wire.suspect = False
        self._impair("probe", "")
        self._report.probe_answered(seconds)

    def probe_missed(self, misses: int, *, busy: bool, dead: bool, cause: RequestFailed) -> None:
        """See `Verdicts`."""
        allowed = self.spec.probe.failures
        self._report.probe_missed(misses, allowed)
        if dead and self._wire is not None:
            end = "connect_failed" if cause.outcome is Outcome.NOT_SENT else "probe"
            self._wire.finish(WireEnd(cause=end, detail=cause.message, retry_after_s=cause.retry_after_s))
        else:
            self._impair("probe", "busy: a probe was not answered" if busy else f"probe {misses}/{allowed} missed")

    # What does not work

    def _impair(self, part: str, lacking: str) -> None:
        """Say what does not work of one part, nothing when all of it does."""
        before = self._lacking()
        self._impaired[part] = lacking
        if self._restored and self._lacking() != before:
            self._post(lifecycle.Impaired(self.number, self._lacking()))

    def _lacking(self) -> str:
        return "; ".join(text for text in self._impaired.values() if text)

    def __repr__(self) -> str:
        return f"<Generation {self.spec.name}#{self.number}: {self._calls} calls>"

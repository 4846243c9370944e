"""Owns one generation of a server: a wire and the session on it, from the first byte until everything behind it is gone.

It runs in a task of its own, which alone enters and leaves the wire and the session. What happens is posted to the server's
actor as inputs of its lifecycle; what to do next is decided there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio
import anyio.lowlevel

from mcpvisor.supervisor import lifecycle_messages as told
from mcpvisor.supervisor import sdk
from mcpvisor.supervisor.asking import capabilities
from mcpvisor.supervisor.error_groups import only_error
from mcpvisor.supervisor.negotiation import Asked, EraMemory, Negotiation, NegotiationFailed
from mcpvisor.supervisor.opening import Opener, Opening
from mcpvisor.supervisor.replacing import REFUSALS
from mcpvisor.supervisor.session import Lasting, Session
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, ServerSpec
from mcpvisor.supervisor.starts import StartGate, StartPlace, Urgent
from mcpvisor.supervisor.transports.http import HttpWire
from mcpvisor.supervisor.transports.http_outcome import NO_ENDPOINT
from mcpvisor.supervisor.transports.wire import LINGERING, OpenFailed, Wire, WireEnd

_log = logging.getLogger(__name__)
Post = Callable[[told.Input], None]

PREPARING: Final = WireEnd(cause="closed", detail="closed before it was ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every generation of a server is given: how wires are opened, the queue of starts, and what outlives generations."""

    opener: Opener
    starts: StartGate
    era: EraMemory
    lasting: Lasting
    urgent: Urgent
    post: Post
    is_beside: Callable[[], bool]
    """Whether another generation serves, so that this one is brought up beside it."""


class Generation:
    """One wire and one session; used once."""

    def __init__(self, opening: Opening, means: Means) -> None:
        self.number = opening.generation
        self.spec: ServerSpec = opening.spec
        self.opened_at = anyio.current_time()
        self.handshake_seconds: float | None = None
        self._opening = opening
        self._means = means
        self._wire: Wire | None = None
        self.session: Session | None = None
        """What carries requests; None before the handshake."""
        self._negotiation: Negotiation | None = None
        self._is_restored = False
        self._retire_at: float | None = None
        self._retiring = anyio.Event()
        self._scope = anyio.CancelScope()
        self._upkeep = anyio.CancelScope()

    @property
    def handshake(self) -> sdk.Handshake | None:
        """What was agreed on with the server; None before that."""
        return self.session.handshake if self.session is not None else None

    @property
    def asked(self) -> Asked | None:
        """What its server was sent for the handshake and has not answered yet; None where nothing is."""
        return self._negotiation.asked if self._negotiation is not None else None

    @property
    def is_retired(self) -> bool:
        """Whether it was told to end."""
        return self._retire_at is not None

    @property
    def transport(self) -> str:
        """The transport of the wire, as it was settled; empty before there is one."""
        return self._wire.kind if self._wire is not None else ""

    @property
    def push(self) -> str:
        """How the wire's push stream stands; empty where it has none."""
        has_one = self._wire is not None and self._wire.kind == "http" and self.handshake and not self.handshake.modern
        return self._wire.push if has_one and self._wire is not None else ""

    @property
    def push_reason(self) -> str:
        """Why the push stream stands so."""
        return self._wire.push_reason if self.push and self._wire is not None else ""

    @property
    def push_next_at(self) -> float | None:
        """When the push stream is asked for again, in monotonic seconds; None where that is not due."""
        return self._wire.push_next_at if self.push and self._wire is not None else None

    # Orders of the actor

    def retire(self, drain: float) -> None:
        """Finish what is in flight within `drain` seconds, then close; a second order can only shorten that."""
        self._upkeep.cancel()  # another generation keeps in step from now on
        at = anyio.current_time() + drain
        if self._retire_at is None or at < self._retire_at:
            self._retire_at = at
            self._retiring.set()
            self._retiring = anyio.Event()
        if drain <= 0 or self.session is None or not self.session.calls:
            self._scope.cancel()

    def respecified(self, spec: ServerSpec) -> None:
        """A spec that differs only in what can be applied in place."""
        self.spec = spec
        if self.session is not None:
            self.session.respecified(spec)

    # Life

    async def run(self) -> None:
        """Open, serve and close. Never raises; the last thing it posts is `Closed`."""
        place: StartPlace | None = None
        try:
            with self._scope:
                if self.number == 1:
                    starts = self._means.starts
                    await (starts.step_aside if self.spec.transport == "stdio" else starts.spread)(self._means.urgent)
                place = await self._means.starts.enter(self._means.urgent)
                await anyio.lowlevel.checkpoint_if_cancelled()  # what was retired before its turn opens nothing
                self.opened_at = anyio.current_time()
                self._post(told.Launched(self.number))
                opening = replace(self._opening, only_sse=self._means.era.only_sse)
                async with self._means.opener(opening) as wire:
                    self._wire = wire
                    await self._on_wire(wire, place)
        except OpenFailed as failure:
            self._ended(failure.end)
        except Exception as error:  # noqa: BLE001 - see below
            # A fault of ours must cost this generation only; the server is tried again like after any other end.
            _log.exception("generation %s of %s failed", self.number, self.spec.name)
            fault = only_error(error)
            self._ended(WireEnd(cause="internal", detail=f"a fault of mcpvisor itself: {type(fault).__name__}: {fault}"))
        finally:
            if place is not None:
                place.release()
            self._post(told.Closed(self.number))

    async def _on_wire(self, wire: Wire, place: StartPlace) -> None:
        self._post(told.Opened(self.number))
        async with sdk.session_on(wire) as session, anyio.create_task_group() as tasks:
            tasks.start_soon(place.release_in_time)
            tasks.start_soon(self._watch_retirement, tasks.cancel_scope)
            try:
                # An end during the handshake is judged there: it may say something of the era.
                self._negotiation = Negotiation(session, wire, self._means.era, capabilities(self.spec.allow))
                handshake = await self._negotiation.agree(self.spec.era)
            except NegotiationFailed as failure:
                end = self._end_after(failure, wire)
                self._ended(end, endable=await self._may_be_ended(wire, end.cause))
                tasks.cancel_scope.cancel()
                return
            tasks.start_soon(self._watch_end, wire, tasks.cancel_scope)
            place.release()
            await self._serve(handshake, wire)

    async def _may_be_ended(self, wire: Wire, cause: str) -> bool:
        """Whether the session that serves could be ended to make room for this one, which the server has refused."""
        if cause not in REFUSALS or not isinstance(wire, HttpWire) or not self._means.is_beside():
            return True
        return await wire.lets_sessions_end()

    def _end_after(self, failure: NegotiationFailed, wire: Wire) -> WireEnd:
        """What a failed handshake ends with; where the entry leaves the HTTP transport open, the other one is tried at once."""
        era, cause, detail = self._means.era, failure.cause, failure.detail
        target = self.spec.target
        is_open = isinstance(target, HttpTarget) and target.transport is HttpTransport.AUTO
        if cause == "not_streamable_http":
            era.only_sse, era.refused_post = is_open and wire.kind == "http", (detail, failure.http_status)
            cause = "other_transport" if era.only_sse else _refused(failure.http_status)
        elif wire.kind == "sse" and is_open and cause == "protocol" and era.refused_post[0]:
            # It knows neither transport: what it said to the one that is spoken today counts, and comes first.
            post, status = era.refused_post
            cause, detail = _refused(status), f"{post}; asked by GET for the older HTTP+SSE transport, {detail}"
        return WireEnd(cause=cause, detail=detail, exit_code=failure.exit_code, retry_after_s=failure.retry_after_s)

    async def _serve(self, handshake: sdk.Handshake, wire: Wire) -> None:
        self.handshake_seconds = anyio.current_time() - self.opened_at
        wire.negotiated(handshake.protocol_version, modern=handshake.modern)
        session = self.session = Session(wire, handshake, self.spec, self._means.lasting, self._impaired)
        self._post(told.Negotiated(self.number))
        with self._upkeep:
            async with anyio.create_task_group() as tasks:
                if self._opening.credentials is not None:
                    tasks.start_soon(self._opening.credentials.attend, session.lacks_credentials)
                lacking = await session.restore(tasks)
                if wire.end is None:
                    self._is_restored = True
                    self._post(told.Restored(self.number, lacking))
                    await session.keep()
                tasks.cancel_scope.cancel()
        await anyio.sleep_forever()  # retired: the watchers end what is left

    def _impaired(self, lacking: str) -> None:
        if self._is_restored:
            self._post(told.Impaired(self.number, lacking))

    async def _watch_end(self, wire: Wire, scope: anyio.CancelScope) -> None:
        await wire.ended.wait()
        end = wire.end or PREPARING
        self._ended(end)
        if wire.kind != "stdio" and end.cause in LINGERING and self.session is not None:
            await self.session.drained()  # each request in flight has an answer of its own coming
        scope.cancel()

    async def _watch_retirement(self, scope: anyio.CancelScope) -> None:
        while self._retire_at is None:
            await self._retiring.wait()
        while (left := self._retire_at - anyio.current_time()) > 0 and self.session is not None and self.session.calls:
            with anyio.move_on_after(left):
                await self.session.drained()
        scope.cancel()

    def _ended(self, end: WireEnd, *, endable: bool = True) -> None:
        if not self._is_restored and self._wire is not None and self._wire.kind == "sse":
            self._means.era.only_sse = False  # it was worth a try; the next one begins with what is newer
        self._post(
            told.Ended(
                self.number,
                end.cause,
                end.detail,
                served=self.session is not None and self.session.has_served,
                endable=endable,
                exit_code=end.exit_code,
                retry_after_s=end.retry_after_s,
            )
        )

    def _post(self, event: told.Input) -> None:
        self._means.post(event)

    def __repr__(self) -> str:
        return f"<Generation {self.spec.name}#{self.number}: {self.session.calls if self.session else 0} calls>"


def _refused(status: int | None) -> str:
    """The cause of an end by a POST that was refused as a whole: nothing of MCP is there, or it does not take a handshake."""
    return "not_found" if status in NO_ENDPOINT else "protocol"

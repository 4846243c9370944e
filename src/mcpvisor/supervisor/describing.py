"""Owns how one server is described from outside: its parts in, one value out."""

from __future__ import annotations

import time

import anyio

from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.generation import Generation
from mcpvisor.supervisor.lifecycle import Lifecycle
from mcpvisor.supervisor.reporting import Reporter
from mcpvisor.supervisor.restoring import Restorer
from mcpvisor.supervisor.states import BOUNDED, UP, State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions


def describe(
    cycle: Lifecycle,
    connection: Connection,
    reporter: Reporter,
    generation: Generation | None,
    *,
    since: float,
    wanted_by: str,
    wanted_at: float | None,
    token_expires_at: float | None,
    subscriptions: Subscriptions,
    lists: Restorer,
) -> ServerStatus:
    """The server as it is now; `generation` is the one that serves, or that is on its way up."""
    spec, offer = cycle.spec, connection.offer
    number = generation.number if generation else cycle.generation
    last = reporter.processes.last_exit
    too_large, recycled_at = cycle.recycling
    handshake = generation.handshake if generation else None
    session = generation.session if generation else None
    asked = generation.asked if generation and cycle.state is State.NEGOTIATING else None
    return ServerStatus(
        name=spec.name,
        state=cycle.state,
        reason=cycle.reason,
        since=since,
        transport=spec.transport,
        era=connection.era,
        protocol_version=handshake.protocol_version if handshake else None,
        implementation=reporter.implementation(offer.server_info),
        pid=reporter.processes.pid_of(number),
        generation=number,
        restarts=cycle.restarts,
        deadline=_wall(cycle.deadline) if cycle.state in BOUNDED else None,
        next_attempt=_wall(cycle.next_attempt),
        required=spec.required,
        wanted=cycle.wanted.value,
        wanted_by=wanted_by,
        wanted_at=wanted_at,
        in_flight=connection.admission.running,
        queued=connection.admission.queued,
        tools=len(offer.tools),
        resources=len(offer.resources),
        resource_templates=len(offer.resource_templates),
        prompts=len(offer.prompts),
        stale=connection.stale,
        last_exit=last.how if last else "",
        last_exit_generation=last.generation if last else None,
        last_exit_pid=last.pid if last else None,
        last_exit_wanted=last is not None and last.wanted,
        token_expires_at=token_expires_at,
        subscriptions_wanted=len(subscriptions),
        subscriptions_active=subscriptions.working,
        limits_not_enforced=reporter.processes.lacking_limits,
        handshake_seconds=generation.handshake_seconds if generation else None,
        too_large=too_large,
        recycled_at=_wall(recycled_at),
        replacing=cycle.is_replacing,
        coming=cycle.coming,
        coming_reason=cycle.coming_reason,
        asked=asked.method if asked else "",
        asked_at=_wall(asked.at) if asked else None,
        asked_until=_wall(asked.until) if asked else None,
        lists_next=_wall(lists.next_at) if cycle.state in UP else None,
        lists_asked_to_wait=cycle.state in UP and lists.is_asked_to_wait,
        refused_since=_wall(session.refused_since) if session else None,
        probe_next=_wall(session.probe_due) if session else None,
        probe_asked_to_wait=session is not None and session.is_asked_to_wait,
        push=generation.push if generation else "",
        push_reason=reporter.quoted(generation.push_reason) if generation else "",
        push_next=_wall(generation.push_next_at) if generation else None,
        origin=spec.origin,
        shown_name=spec.shown_name,
    )


def _wall(at: float | None) -> float | None:
    """A monotonic time as wall-clock time."""
    return None if at is None else time.time() + at - anyio.current_time()

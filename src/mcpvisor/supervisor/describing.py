"""Owns how one server is described from outside: its parts in, one value out."""

from __future__ import annotations

import time
from typing import Final

import anyio

from mcpvisor.supervisor.connection import Connection
from mcpvisor.supervisor.generation import Generation
from mcpvisor.supervisor.lifecycle import Lifecycle
from mcpvisor.supervisor.reporting import Reporter
from mcpvisor.supervisor.restoring import Restorer
from mcpvisor.supervisor.signs import Signs
from mcpvisor.supervisor.states import BOUNDED, UP, State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions
from mcpvisor.supervisor.wire_reports import EXCERPT

DENIAL_SHOWN: Final = 600.0
"""Seconds for which a request that was refused for want of rights is shown as a blemish of its server."""


def describe(
    cycle: Lifecycle,
    connection: Connection,
    reporter: Reporter,
    generation: Generation | None,
    *,
    since: float,
    entered_at: float,
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
        state_seconds=anyio.current_time() - entered_at,
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


def signs_of(
    cycle: Lifecycle, reporter: Reporter, generation: Generation | None, *, lists: Restorer, is_penniless: bool
) -> Signs:
    """What is wrong with the server now; `generation` as in `describe`."""
    now = anyio.current_time()
    faults = reporter.wire.faults.of(generation.number if generation else cycle.generation)
    ends, first_end = cycle.ends
    session = generation.session if generation else None
    level, why = session.refused_level if session else ("", "")
    denial = session.denial if session else None
    found = lists.faults
    return Signs(
        cause=reporter.cause or (f"refused_{faults.refused}" if faults.refused else ""),
        ends=ends,
        ends_seconds=None if first_end is None else now - first_end,
        noise=faults.noise,
        excerpt=faults.excerpt,
        drops=found.shown,
        dropped=found.count,
        log_level=f"{level} ({reporter.clean(why, EXCERPT * 2)})" if why else "",
        is_penniless=is_penniless,
        denied=reporter.quoted(denial.detail) if denial and now - denial.at <= DENIAL_SHOWN else "",
    )


def _wall(at: float | None) -> float | None:
    """A monotonic time as wall-clock time."""
    return None if at is None else time.time() + at - anyio.current_time()

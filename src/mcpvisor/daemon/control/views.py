"""Owns the JSON shapes of the control API: values in, plain objects out. Fields are added, never changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from mcpvisor.daemon.control.facts import Facts
from mcpvisor.daemon.control.reloading import ConfigState
from mcpvisor.supervisor.events import Event
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.spec import PlannedChange
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import Outline, ServerStatus
from mcpvisor.supervisor.subscriptions.standing import SubscriptionStatus

JsonObject = dict[str, Any]

_HOLDERS_SHOWN: Final = 20

_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def server_view(status: ServerStatus) -> JsonObject:
    """One server of `status --json`. The first block is the promise, the second what was added to it."""
    return {
        "name": status.name,
        "state": status.state.value,
        "reason": status.reason,
        "since": status.since,
        "state_seconds": status.state_seconds,
        "transport": status.transport,
        "era": status.era,
        "pid": status.pid,
        "restarts": status.restarts,
        "next_attempt": status.next_attempt,
        "subscriptions": {"wanted": status.subscriptions_wanted, "active": status.subscriptions_active},
        "required": status.required,
        #
        "healthy": status.is_healthy,
        "wanted": status.wanted,
        "wanted_by": status.wanted_by,
        "wanted_at": status.wanted_at,
        "protocol_version": status.protocol_version,
        "implementation": status.implementation,
        "generation": status.generation,
        "in_flight": status.in_flight,
        "queued": status.queued,
        "tools": status.tools,
        "resources": status.resources,
        "resource_templates": status.resource_templates,
        "prompts": status.prompts,
        "stale": status.stale,
        "last_exit": status.last_exit,
        "last_exit_generation": status.last_exit_generation,
        "last_exit_pid": status.last_exit_pid,
        "last_exit_wanted": status.last_exit_wanted,
        "handshake_seconds": status.handshake_seconds,
        "origin": status.origin,
        "shown_name": status.shown_name,
        "limits_not_enforced": status.limits_not_enforced,
        "deadline": status.deadline,
        "token_expires_at": status.token_expires_at,
        "too_large": status.too_large,
        "recycled_at": status.recycled_at,
        "replacing": status.replacing,
        "instances": status.instances,
        "instance_failing": status.instance_failing,
        "push": status.push,
        "push_reason": status.push_reason,
        "push_next": status.push_next,
        "hindrance": status.hindrance.value if status.hindrance is not None else None,
        "refused_since": status.refused_since,
        "probe_next": status.probe_next,
    }


def ready_and_total(servers: Sequence[Outline]) -> tuple[int, int]:
    """How many servers are ready, and how many there are, those at rest included: the one count that everything shows."""
    return sum(server.state is State.READY for server in servers), len(servers)


def status_view(
    statuses: Sequence[ServerStatus],
    config: ConfigState,
    facts: Facts,
    now: float,
    state_store: JsonObject | None = None,
    waiting_questions: int = 0,
) -> JsonObject:
    """What `status --json` prints; `now` is the daemon's clock, in seconds since the epoch."""
    ready, total = ready_and_total(statuses)
    return {
        "ready": ready,
        "total": total,
        "servers": [server_view(status) for status in statuses],
        "config": config,
        #
        "healthy": all(status.is_healthy for status in statuses),
        "now": now,
        "daemon": facts_view(facts),
        "state_store": state_store,
        "handlers": [dict(handler) for handler in facts.handlers()],
        "stopping": facts.stopping() or None,
        "waiting_questions": waiting_questions,
    }


def facts_view(facts: Facts) -> JsonObject:
    """The daemon itself."""
    return {
        "version": facts.version,
        "pid": facts.pid,
        "started_at": facts.started_at,
        "addresses": {name: list(addresses) for name, addresses in facts.addresses.items()},
        "gateway_token": facts.gateway_token,
    }


def offer_view(name: str, offer: Offer, *, stale: bool, era: str | None, denied: Sequence[str]) -> JsonObject:
    """What a server offers; the entries are the server's own. `denied` are the tools that its entry shows to no client."""
    return {
        "server": name,
        "stale": stale,
        "era": era,
        "server_info": offer.server_info,
        "capabilities": offer.capabilities,
        "instructions": offer.instructions,
        "tools": offer.tools,
        "tools_denied": list(denied),
        "resources": offer.resources,
        "resource_templates": offer.resource_templates,
        "prompts": offer.prompts,
    }


def subscription_view(status: SubscriptionStatus) -> JsonObject:
    """One wanted resource: its text exactly as it is sent, and how it stands."""
    return {
        "uri": status.uri,
        "state": status.state.value,
        "reason": status.reason,
        "next_retry": status.next_retry,
        "holders": list(status.holders[:_HOLDERS_SHOWN]),
        "holders_in_all": len(status.holders),
        "poll": status.poll,
    }


def line_view(line: StderrLine) -> JsonObject:
    """One line of stderr, and when it was written."""
    return {"at": line.at, "line": line.text}


def change_view(change: PlannedChange, gone_files: Mapping[str, str]) -> JsonObject:
    """One line of a plan; `gone_files` are by server the files that are not there any more."""
    gone = gone_files.get(change.server)
    return {"server": change.server, "change": change.change.value, "fields": list(change.fields), "gone_file": gone}


def event_kind(event: Event) -> str:
    """The kind of an event as the API spells it: `ServerStateChanged` is `server_state_changed`."""
    return kind_of(type(event))


def kind_of(event: type[Event]) -> str:
    """As `event_kind`, of all events of a class."""
    return _WORD_START.sub("_", event.__name__).lower()


def event_view(event: Event) -> JsonObject:
    """An event with all its fields, and its `kind`; the kind of a list is its `catalog` here."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    if "kind" in values:
        values["catalog"] = values.pop("kind")
    return {"kind": event_kind(event), **values}

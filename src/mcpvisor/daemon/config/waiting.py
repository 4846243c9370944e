"""Owns what is said of edits that are right, and wait for a fault elsewhere: with `daemon.strict` one fault holds all back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypedDict

from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.handlers.changes import changes_between
from mcpvisor.daemon.handlers.specs import HandlerSpec
from mcpvisor.supervisor.spec import Change, ServerSpec, plan_changes


class WaitingEdit(TypedDict):
    """An edit that waits, as the control API gives it.

    `server` or `handler` is what it is of; where both are empty `what` is `settings` or `routes`. `where` is its place as
    `file:line`, `change` what would be done (`update`, `restart`, `start`, `stop`), and `fields` are the keys that differ.
    `waits_for` is the place of the fault that it waits for, `why` that fault, and `since` when the edit was read first, in
    wall-clock seconds; `told` says it all.
    """

    server: str
    handler: str
    what: str
    where: str
    change: str
    fields: list[str]
    waits_for: str
    why: str
    since: float
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One edit that would be applied, were nothing wrong elsewhere. `since` is in wall-clock seconds."""

    server: str = ""
    handler: str = ""
    what: str = ""
    """What it is of where it is neither: `routes`, `settings`."""
    where: str = ""
    change: Change
    fields: tuple[str, ...] = ()
    fault: Problem
    """What it waits for; the first one where there are several."""
    more: int = 0
    """How many further faults there are."""
    since: float = 0.0

    @property
    def subject(self) -> tuple[str, str, str]:
        """What it is of; a later edit of the same has waited since the first."""
        return self.server, self.handler, self.what

    @property
    def told(self) -> str:
        """What waits, for what, and what runs meanwhile, in one line without the place."""
        match self.change:
            case Change.START if not self.fields:
                edit, meanwhile = "it is new, and is not started", ""
            case Change.STOP if not self.fields:
                edit, meanwhile = "it is written no more, and is not stopped", "; it runs as it was"
            case _:
                keys = f" ({', '.join(self.fields)})" if self.fields else ""
                edit, meanwhile = f"the edit of it{keys} is not applied", "; what was in force before runs"
        others = f" and {self.more} more fault{'s are' if self.more > 1 else ' is'}" if self.more else " is"
        until = f"until {self.fault.where}{others} corrected, because daemon.strict is set"
        return f"{edit} {until}: {self.fault.fault}{meanwhile}"

    @property
    def label(self) -> str:
        """What it is of, for people."""
        return self.server or (f"handler {self.handler}" if self.handler else self.what)

    def as_json(self) -> WaitingEdit:
        """See `WaitingEdit`."""
        return WaitingEdit(
            server=self.server,
            handler=self.handler,
            what=self.what,
            where=self.where,
            change=self.change.value,
            fields=list(self.fields),
            waits_for=self.fault.where,
            why=self.fault.fault,
            since=self.since,
            told=self.told,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is to be in force, or would be."""

    servers: dict[str, ServerSpec]
    handlers: Mapping[str, HandlerSpec]
    routing: object
    settings: tuple[str, ...] = ()
    """Settings that are otherwise than those in force."""


def waiting_between(before: Goal, after: Goal, faults: Iterable[Problem]) -> tuple[Waiting, ...]:
    """The edits that lead from what is in force to what would be, were it not for `faults`, of which there is one at least."""
    fault, *others = faults
    more = len(others)
    found: list[Waiting] = []
    for change in plan_changes(before.servers, after.servers):
        if change.change is not Change.KEEP:
            spec = after.servers.get(change.server) or before.servers[change.server]
            edit = Waiting(server=change.server, where=spec.origin, change=change.change, fields=change.fields, fault=fault)
            found.append(replace(edit, more=more))
    for one in changes_between(before.handlers, after.handlers):
        handler = after.handlers.get(one.handler) or before.handlers[one.handler]
        edit = Waiting(handler=one.handler, where=handler.origin, change=one.change, fields=one.fields, fault=fault)
        found.append(replace(edit, more=more))
    if before.routing != after.routing:
        found.append(Waiting(what="routes", change=Change.UPDATE, fault=fault, more=more))
    if after.settings:
        found.append(Waiting(what="settings", change=Change.UPDATE, fields=after.settings, fault=fault, more=more))
    return tuple(found)


def dated(found: Iterable[Waiting], before: Iterable[Waiting], at: float) -> tuple[Waiting, ...]:
    """The edits with the time since when each waits: what waited `before` goes on to, the rest since `at`."""
    known = {one.subject: one.since for one in before}
    return tuple(replace(one, since=known.get(one.subject, at)) for one in found)

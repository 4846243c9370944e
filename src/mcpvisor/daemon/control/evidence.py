"""Owns what is known of one server when it is explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpvisor.daemon.config.problems import Rejection
from mcpvisor.daemon.config.waiting import WaitingEdit
from mcpvisor.daemon.control.reloading import ExpectedRemoval
from mcpvisor.supervisor.events import Event, ProbeMissed
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.process.stderr import StderrLine
from mcpvisor.supervisor.signs import NO_SIGNS, Signs
from mcpvisor.supervisor.spec import ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.status import ServerStatus
from mcpvisor.supervisor.subscriptions.standing import SubscriptionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known of one server. `history` is oldest first, `stderr` the newest lines of its tail."""

    status: ServerStatus
    spec: ServerSpec | None
    """None where the entry is not valid as it is written."""
    signs: Signs = NO_SIGNS
    """What is wrong with it now, besides its state; the history is of what was."""
    history: Sequence[Event] = ()
    earlier: Sequence[Mapping[str, Any]] = ()
    """Events of former runs of the daemon, as they are shown; they are no signs of what is wrong now."""
    stderr: Sequence[StderrLine] = ()
    stderr_dropped: int = 0
    """Lines of stderr that were over the rate, of the present process or the last one."""
    missed: ProbeMissed | None = None
    """The newest probe that was not answered, where none was answered since."""
    rejections: Sequence[Rejection] = ()
    """What was rejected of its entry or its file, while its last good version runs."""
    waiting: WaitingEdit | None = None
    """An edit of its entry that is right, and waits for what is wrong elsewhere."""
    removal: ExpectedRemoval | None = None
    """When it goes, since the file of its entry is away."""
    on_trial: bool = False
    """Whether its version is tried, and the former one runs again when it does not become ready."""
    subscriptions: Sequence[SubscriptionStatus] = ()
    strangers: int = 0
    """Updates of resources that nobody wants."""
    conflicts: Sequence[str] = ()
    """URIs that another server claims as well, in words."""

    @property
    def is_http(self) -> bool:
        """Whether the server is reached by HTTP: no process, command or stderr of it is here."""
        return self.status.transport in ("http", "sse")

    @property
    def ended_by_policy(self) -> str:
        """The restart policy by which the server stays ended; empty where it is another reason that keeps it."""
        if self.spec is None or self.status.state not in (State.FAILED, State.STOPPED):
            return ""
        if "(restart.prevent_codes)" in self.status.reason:
            return "not to start it again after that exit code"
        policy = self.spec.restart.policy.value
        return policy if f"its restart policy is {policy}" in self.status.reason else ""

    @property
    def retry_after(self) -> bool:
        """Whether the server itself has said when it wants to be tried again."""
        waits = self.status.state in (State.BACKOFF, State.CRASH_LOOP, State.AUTH_REQUIRED)
        return (
            (waits and "retry-after" in self.status.reason.lower())
            or self.status.lists_asked_to_wait
            or self.status.probe_asked_to_wait
        )


def rejections_of(status: ServerStatus, rejected: Sequence[Rejection]) -> list[Rejection]:
    """What was rejected of a server's entry, or of the file it is written in, while what was accepted before runs."""
    file = status.origin.rpartition(":")[0]

    def is_of_its_file(one: Rejection) -> bool:
        return bool(file) and (one["where"] == file or one["where"].startswith(file + ":"))

    return [
        one
        for one in rejected
        if one["server"] == status.name or (not one["server"] and is_of_its_file(one) and one["keeps_servers"])
    ]


def uri_conflicts(name: str, offers: Mapping[str, Offer]) -> list[str]:
    """The URIs of a server that others claim too; on the common endpoint the first server in name order owns each."""
    claims: dict[str, list[str]] = {}
    for server in sorted(offers):
        for resource in offers[server].resources:
            claims.setdefault(str(resource.get("uri")), []).append(server)
    return [
        f"{uri} is also offered by {', '.join(one for one in servers if one != name)}; "
        f"on /mcp it is {servers[0]}'s, at /mcp/{name} this server's own"
        for uri, servers in claims.items()
        if name in servers and len(set(servers)) > 1
    ]

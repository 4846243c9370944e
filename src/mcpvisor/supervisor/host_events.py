"""Owns the events of the program around a supervisor: versions of entries, its state file, who is asked, its handlers.

They are told on the same stream, by the same rules; see `events`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.events import Event, ServerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRolledBack(ServerEvent):
    """A version of a server's entry did not become ready, and the former one is in force again.

    `origin` is where the version is written that was taken back, `reason` why it was, for people; `former_at` is when the one
    that is in force was first seen to be good, in wall-clock seconds since the epoch.
    """

    origin: str
    reason: str
    former_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStoreDegraded(Event):
    """What should outlive the daemon is kept in memory only; `reason` is for people."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStoreRecovered(Event):
    """What should outlive the daemon reaches the disk again, after `seconds`; `lost` events never did."""

    seconds: float
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStoreReplaced(Event):
    """A new state file was begun, for `reason`; the former one is at `aside`, which is empty where it was gone.

    `forgotten`: what it held is not known any more; otherwise all of it is in memory, and is written anew.
    """

    reason: str
    aside: str
    forgotten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPut(ServerEvent):
    """A question of the server was put to somebody: `whom` is `client`, `operator` or `handler NAME`.

    `mode` is `form` or `url`, empty where `method` is no elicitation; `tool` the tool whose call has caused it, and `principal`
    who has made that call, as far as they are known; `properties` the names of what is asked for. `deadline` is a time of the
    wall clock.
    """

    id: str
    method: str
    mode: str
    tool: str
    whom: str
    principal: str
    properties: tuple[str, ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSettled(ServerEvent):
    """A question of the server is over, after `seconds`; `by` is whoever was asked, or `nobody`.

    `action` is `accept`, `decline` or `cancel`; `answered`, `refused` or `failed` for what is no elicitation; `withdrawn` where
    nobody waits for an answer any more. `properties` are the names of what was answered, never the values; `why` says why an
    answer was not taken, or nobody was asked. `mode` is as above, or `other` for one that the protocol does not know.
    """

    id: str
    method: str
    mode: str
    tool: str
    by: str
    action: str
    properties: tuple[str, ...]
    seconds: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCircuitOpened(Event):
    """A handler has failed `failures` times in a row and is left alone until `next_try`, in wall-clock seconds."""

    handler: str
    failures: int
    why: str
    next_try: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCircuitClosed(Event):
    """A handler takes events again, `seconds` after it was left alone."""

    handler: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerGaveUp(Event):
    """Events of a handler have become dead letters: `count` since this was told last, which is once a minute at most.

    `why` is of the newest of them.
    """

    handler: str
    count: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlersFlooded(Event):
    """Events came faster than they could be routed, and `count` of them have reached no handler; told once a minute at most."""

    count: int

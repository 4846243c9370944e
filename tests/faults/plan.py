"""Owns what a fault run does to whom: decided before it begins, from one number."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    STOP = "stop"
    STDOUT = "stdout"
    RESET = "reset"
    WIPE = "wipe"
    UNAUTHORIZED = "401"
    BUSY = "429"
    CUT = "cut"
    SLOW = "slow"


SHARE = 20
"""Each kind is at least the twentieth part of all faults."""

TAKES = {
    Kind.KILL: 1.0,
    Kind.STOP: 2.2,
    Kind.STDOUT: 1.4,
    Kind.RESET: 0.9,
    Kind.WIPE: 0.9,
    Kind.UNAUTHORIZED: 0.8,
    Kind.BUSY: 0.7,
    Kind.CUT: 0.4,
    Kind.SLOW: 0.7,
}
"""Seconds that a server is busy with a fault of a kind, about: its pause, the fault, and the recovery from it."""


@dataclass(frozen=True)
class Server:
    """One puppet."""

    name: str
    transport: str
    era: str


@dataclass(frozen=True)
class Fault:
    """One fault: `options` are its particulars, `pause` the seconds before it, `settles` whether the next one waits for it."""

    server: str
    kind: Kind
    options: dict[str, Any] = field(default_factory=dict)
    pause: float = 0.0
    settles: bool = True


def suits(kind: Kind, server: Server) -> bool:
    """Whether a server can have that fault."""
    match kind:
        case Kind.STDOUT:
            return server.transport == "stdio"
        case Kind.RESET | Kind.UNAUTHORIZED | Kind.BUSY | Kind.CUT:
            return server.transport == "http"
        case Kind.WIPE:
            return server.transport == "http" and server.era == "legacy"
    return True


def fleet(each: int = 5) -> list[Server]:
    """So many servers of each transport in each era."""
    faces = [(transport, era) for transport in ("stdio", "http") for era in ("legacy", "modern")]
    return [Server(f"{transport}-{era}-{number}", transport, era) for transport, era in faces for number in range(each)]


def plan(seed: int, servers: list[Server], count: int) -> dict[str, list[Fault]]:
    """So many faults, by server; the same for the same seed, and of each kind at least the share that is its due.

    All servers are to be through with theirs at about the same time, whatever theirs are.
    """
    dice = random.Random(seed)
    planned: dict[str, list[Fault]] = {server.name: [] for server in servers}
    busy = dict.fromkeys(planned, 0.0)

    def put(kinds: list[Kind]) -> None:
        able = [server for server in servers if any(suits(kind, server) for kind in kinds)]
        least = min(busy[server.name] for server in able)
        server = dice.choice([server for server in able if busy[server.name] == least])
        kind = dice.choice([kind for kind in kinds if suits(kind, server)])
        busy[server.name] += TAKES[kind]
        settles = dice.random() < 0.85
        fault = Fault(server.name, kind, particulars(kind, server, dice), round(dice.uniform(0.0, 0.3), 3), settles)
        planned[server.name].append(fault)

    due = -(-count // SHARE)
    # Those that suit the fewest servers first.
    for kind in sorted(Kind, key=lambda kind: sum(suits(kind, server) for server in servers)):
        for _ in range(due):
            put([kind])
    for _ in range(count - due * len(Kind)):
        put(list(Kind))
    for faults in planned.values():
        dice.shuffle(faults)
    return planned


def particulars(kind: Kind, server: Server, dice: random.Random) -> dict[str, Any]:
    """What one fault of a kind is like; times in seconds."""
    http = server.transport == "http"
    match kind:
        case Kind.KILL:
            return {"away": round(dice.choice((0.0, dice.uniform(0.0, 1.0))), 3)} if http else {}
        case Kind.STOP:
            short, long = round(dice.uniform(0.1, 0.8), 3), round(dice.uniform(1.5, 3.0), 3) if http else None
            return {"lasts": dice.choice((short, long))}  # None: until it is killed for it
        case Kind.STDOUT:
            return {"stays": dice.random() < 0.5}
        case Kind.WIPE:
            return {"silent": dice.random() < 0.5, "says": dice.randrange(4)}
        case Kind.UNAUTHORIZED:
            return {"count": dice.randint(1, 3)}
        case Kind.BUSY:
            return {"count": dice.randint(1, 3), "retry_after": dice.choice(("0", "1", None))}
        case Kind.CUT:
            return {"when": dice.choice(("before", "after", "push")), "reset": dice.random() < 0.5}
        case Kind.SLOW:
            return {"by": round(dice.uniform(0.1, 0.8), 3), "lasts": round(dice.uniform(0.3, 1.2), 3)}
    return {}


def tally(planned: dict[str, list[Fault]]) -> Counter[Kind]:
    """How many faults of each kind there are."""
    return Counter(fault.kind for faults in planned.values() for fault in faults)

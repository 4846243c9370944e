"""Owns a state store as a program of its own, steered line by line: what a test mounts, fills and kills is under it.

rig.py FOLDER        each line of stdin is one order, each answer one line of JSON; the first answer says how the start went
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio

from mcpvisor.daemon.state.kept import Limits, PastEvent
from mcpvisor.daemon.state.store import StateStore
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.store import KeptToken, StandingOrder

LIMITS = Limits(reserve=1024 * 1024, slow_write=1.0, journal_seconds=float("inf"))


def event(number: int, text: str = "") -> PastEvent:
    view = {"kind": "probe_missed", "at": float(number), "server": "s", "number": number, "text": text}
    return PastEvent(at=float(number), server="s", kind="probe_missed", view=view)


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as other:
        return other.execute(query).fetchall()


def fill(path: Path) -> int:
    """Fill the disk up to the last page; returns the size of what fills it."""
    with path.open("ab", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    return path.stat().st_size


async def answer(store: StateStore, word: str, rest: list[str]) -> Any:
    match word, rest:
        case "health", []:
            return {"up": store.health.up, "reason": store.health.reason}
        case "order", [server, who]:
            store.keep_order(server, StandingOrder(wanted=Wanted.DISABLED, who=who, at=1.0))
        case "ordered", [server]:
            order = store.standing_order(server)
            return order.who if order else None
        case "token", [key, value]:
            await store.keep_token(key, KeptToken(value=Secret(value), expires_at=None))
        case "note", [first, count, size]:
            for number in range(int(first), int(first) + int(count)):
                store.note(event(number, "x" * int(size)))
        case "past", []:
            return [one.view["number"] for one in store.past]
        case "flush", []:
            return await store.flush()
        case "rows", _:
            return rows(store.path, " ".join(rest))
        case "fill", []:
            return fill(store.path.with_name("filler"))
        case "empty", []:
            store.path.with_name("filler").unlink()
        case _:
            raise ValueError(word)
    return None


async def main(folder: Path) -> None:
    store = StateStore(folder / "state.db", LIMITS)
    await store.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.watch)
        print(json.dumps(await answer(store, "health", [])), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, *rest = line.split()
            print(json.dumps(await answer(store, word, rest)), flush=True)
        tasks.cancel_scope.cancel()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

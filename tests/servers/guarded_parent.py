#!/usr/bin/env python3
"""A small daemon for tests of the guardian: guarded_parent.py INSTANCE BACKEND SCRIPT...

Starts a guardian and one server for each script (each asked for offspring in a session of its own where it knows how), then
prints {"guardian": pid, "servers": [pid, ...]} and waits to be killed, or for the end of its stdin.
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from mcpvisor.supervisor.errors import RequestFailed
from mcpvisor.supervisor.process.environment import Marker
from mcpvisor.supervisor.process.guardian import Guardian
from mcpvisor.supervisor.process.stderr import StderrRing
from mcpvisor.supervisor.spec import StdioLaunch, StopGraces
from mcpvisor.supervisor.transports.stdio import open_stdio


class Silent:
    def notified(self, method, params, *, to_caller=False): ...
    def noise(self, excerpt): ...

    def noise_dropped(self, lines): ...
    def refused(self, reason, detail): ...
    def process_started(self, pid): ...
    def process_ended(self, pid, **how): ...
    def stderr(self, lines, dropped): ...


async def main(instance: str, scripts: list[str]) -> None:
    silent = Silent()
    async with AsyncExitStack() as stack:
        guardian = await stack.enter_async_context(Guardian(instance))
        pids = []
        for number, script in enumerate(scripts):
            wire = await stack.enter_async_context(
                open_stdio(
                    StdioLaunch(command=sys.executable, args=(str(Path(__file__).parent / script),)),
                    silent,
                    StderrRing(silent.stderr),
                    marker=Marker(instance, f"s{number}", 1),
                    graces=StopGraces(stdin=0.1, term=0.1),
                    max_message=1_000_000,
                    processes=silent,
                )
            )
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(wire.run, None, None)
            try:
                await wire.request("offspring", {"session": True})
            except RequestFailed:
                await wire.request("ping", {})
            pids.append(wire.pid)
        print(json.dumps({"guardian": guardian.pid, "servers": pids}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[3:], backend=sys.argv[2])

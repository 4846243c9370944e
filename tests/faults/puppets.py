"""Owns the puppets of a fault run: how each is launched, ordered about, and read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from tests.faults.oracles import Changed
from tests.faults.pace import Pace
from tests.faults.plan import Server

from mcpvisor.supervisor.spec import HttpTarget, ServerSpec, StdioLaunch, WantedResource

ORDER_SECONDS = 2.0
LAUNCH_SECONDS = 20.0


class Puppet:
    """One puppet: its log and its control socket are the same over all its processes."""

    def __init__(self, server: Server, folder: Path, script: Path) -> None:
        self.server = server
        self.log = folder / f"{server.name}.log"
        self._stderr = folder / f"{server.name}.stderr"
        self._control = folder / f"{server.name}.sock"
        words = ("--name", server.name, "--era", server.era, "--log", str(self.log), "--control", str(self._control))
        # As a module, which is compiled once for all processes.
        code = f"import sys; sys.path.insert(0, {str(script.parent)!r}); import {script.stem} as it; it.asyncio.run(it.main())"
        self._command = (sys.executable, "-I", "-S", "-c", code, *words, server.transport)
        self._port = 0
        self.process: subprocess.Popen[bytes] | None = None
        """The process of an HTTP puppet; those of the others are the supervisor's."""

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def uri(self) -> str:
        """Its resource."""
        return f"memo://{self.name}"

    @property
    def host(self) -> str:
        # Not where connections go out from, nor where the servers of another run are: a port that is free while its server
        # is away stays free.
        number = int(self.name.rpartition("-")[2])
        return f"127.{1 + os.getpid() % 250}.{2 + (self.server.era == 'modern')}.{1 + number}"

    def spec(self, pace: Pace, **keys: Any) -> ServerSpec:
        """Its entry; the address of an HTTP puppet is known once it was launched."""
        if self.server.transport == "stdio":
            target: StdioLaunch | HttpTarget = StdioLaunch(command=self._command[0], args=self._command[1:])
        else:
            target = HttpTarget(url=f"http://{self.host}:{self._port}/mcp")
        return ServerSpec(
            name=self.name,
            target=target,
            probe=pace.probe,
            restart=pace.restart,
            stop=pace.stop,
            start_timeout=pace.start_timeout,
            wait_ready=pace.wait_ready,
            drain=0.5,
            subscriptions=(WantedResource(uri=self.uri),),
            **keys,
        )

    async def launch(self) -> None:
        """Start an HTTP puppet, at the address it had; returns once it listens."""
        command = [*self._command, self.host, str(self._port)]
        with self._stderr.open("ab") as stderr:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
        with anyio.fail_after(LAUNCH_SECONDS):
            while not await self.order(do="ping"):
                assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}"
                await anyio.sleep(0.01)  # nothing tells of a socket that is not there yet
        self._port = self.read("listening")[-1]["port"]

    def end(self) -> None:
        """Kill an HTTP puppet, if it runs, and reap it."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    async def order(self, **words: Any) -> bool:
        """Give an order; False when the puppet did not take it, as one that is dead or stopped."""
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream), anyio.move_on_after(ORDER_SECONDS):
            async with await anyio.connect_unix(self._control) as stream:
                await stream.send(json.dumps(words).encode() + b"\n")
                return await stream.receive() == b"{}\n"
        return False

    def complaints(self) -> list[str]:
        """What an HTTP puppet has written to stderr, which is nothing unless it has a fault that nobody ordered."""
        return self._stderr.read_text().splitlines() if self._stderr.exists() else []

    def changes(self) -> list[Changed]:
        """When its resource was or may have become another one: each change, and each further process."""
        lines = self.read("change", "start")[1:]
        return [Changed(self.name, line["at"]) for line in lines]

    def read(self, *events: str) -> list[dict[str, Any]]:
        """What it has logged of these kinds."""
        lines = map(json.loads, self.log.read_text().splitlines()) if self.log.exists() else []
        return [line for line in lines if line["event"] in events]

"""An HTTP server that is restarted under many callers: nothing is run twice, and one handshake serves them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.ports import KeptPort

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.principal import Principal
from mcpvisor.supervisor.spec import HttpTarget, ServerSpec
from mcpvisor.supervisor.states import State
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.alone]
CALLERS = 100


class Counting:
    """The server process, which can be killed and started again on its port."""

    def __init__(self, script: Path, log: Path) -> None:
        self._port = KeptPort()
        self._script, self._log = script, log
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(self._script), str(self._port.number), str(self._log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def end(self) -> None:
        """Kill it for good."""
        self.kill()
        self._port.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def events(self, kind: str) -> list[dict[str, str]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [event for line in lines if (event := json.loads(line))["event"] == kind]


async def test_a_restart_under_a_hundred_callers(supervisor: Supervisor, servers: Path, tmp_path: Path) -> None:
    """One initialise is answered; reads succeed; a call either ran once or failed as maybe_executed; later calls succeed."""
    server = Counting(servers / "http_counting.py", tmp_path / "log")
    reads: list[str] = []
    calls: dict[str, str] = {}
    lost, busy = anyio.Event(), anyio.Event()

    async def read() -> None:
        result = await connection.request("resources/read", {"uri": "memo:one"}, principal=Principal("reader"))
        reads.append(result["contents"][0]["text"])

    async def call(key: str) -> None:
        params = {"name": "count", "arguments": {"key": key, "seconds": 0.05}}
        try:
            await connection.request("tools/call", params, principal=Principal("caller"))
            calls[key] = "ok"
        except RequestFailed as failure:
            calls[key] = failure.outcome.value
            lost.set()

    async def caller(number: int) -> None:
        for turn in range(6):
            await (read() if number % 2 else call(f"{number}-{turn}"))
            if len(reads) + len(calls) > CALLERS:
                busy.set()

    try:
        with anyio.fail_after(60):
            spec = ServerSpec(name="counting", target=HttpTarget(url=server.url), concurrency=CALLERS, queue=CALLERS)
            await supervisor.apply([spec])
            await supervisor.wait_until("counting", lambda status: status.state is State.READY)
            connection = supervisor.connection("counting")
            async with anyio.create_task_group() as tasks:
                for number in range(CALLERS):
                    tasks.start_soon(caller, number)
                await busy.wait()  # so that the kill falls into the middle of their work
                before = len(server.events("initialize"))
                server.kill()
                await anyio.to_thread.run_sync(server.start)
                await lost.wait()
                late = [f"late-{number}" for number in range(20)]
                async with anyio.create_task_group() as afterwards:
                    for key in late:
                        afterwards.start_soon(call, key)
    finally:
        server.end()

    runs = [event["key"] for event in server.events("run")]
    assert len(server.events("initialize")) - before == 1
    assert reads == ["1"] * (CALLERS // 2 * 6)
    assert {calls[key] for key in late} == {"ok"}
    assert set(calls.values()) <= {"ok", Outcome.MAYBE_EXECUTED.value}
    assert len(runs) == len(set(runs)), "no call ran twice"
    assert {key for key, outcome in calls.items() if outcome == "ok"} <= set(runs)

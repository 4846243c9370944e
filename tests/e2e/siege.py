"""A daemon in a process of its own with what it costs in sight: its memory, how long its loop is held, what calls take."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from tests.e2e.running import RunningDaemon
from tests.processes import resident
from tests.stopwatch import Stopwatch, queued_for_a_cpu

from mcpvisor.daemon.cli.client import server_path

MIB = 1024 * 1024
MAX_HELD = 0.25
MAX_GROWTH = 256 * MIB
CALM_CALLS = 500
MEASUREMENTS = 3
ROOT = Path(__file__).parents[2]
FLOOR = 0.012
"""Calls that take no longer than this are quick whatever they took before: what a busy machine does to a calm daemon."""


class UnixConnection(HTTPConnection):
    """An HTTP connection over a unix socket."""

    def __init__(self, path: str, timeout: float = 20) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Besieged(RunningDaemon):
    """A daemon that listens on TCP and on a unix socket, and whose costs can be read; its log is at `info`."""

    def __init__(
        self, folder: Path, servers: str, *, prefix: Sequence[str] = (), stderr: int | None = None, **options: Any
    ) -> None:
        """`prefix` stands before the command; `stderr` is where the log goes in place of a file."""
        self._prefix = prefix
        self._stderr = stderr
        self.unix = str(folder / "gateway.sock")
        listen = {"MCPVISOR_GATEWAY__LISTEN": f"127.0.0.1:0,unix:{self.unix}", "MCPVISOR_LOG__LEVEL": "info"}
        super().__init__(folder, servers, **{**options, "env": {**listen, **(options.get("env") or {})}})

    def start(self) -> subprocess.Popen[bytes]:
        """See `RunningDaemon`."""
        command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "run", "--config", str(self.folder / "config")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log if self._stderr is None else self._stderr,
                env={**os.environ, **self._env},
                cwd=self.folder,
            )
        return self.process

    @functools.cached_property
    def tcp(self) -> str:
        """HOST:PORT of the gateway."""
        return self.addresses("gateway")[0].removeprefix("http://")

    @functools.cached_property
    def neighbour(self) -> Neighbour:
        """The client that everybody else's deeds must not slow down; it lives as long as `besieged` lasts."""
        return Neighbour(self)

    @functools.cached_property
    def _metrics_address(self) -> str:
        return self.addresses("metrics")[0]

    def metrics(self) -> str:
        """The metrics page."""
        connection = HTTPConnection(self._metrics_address, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def refused(self, side: str) -> dict[str, int]:
        """How many messages of a side were refused, by reason."""
        found = re.findall(
            rf'mcpvisor_refused_total{{(?=[^}}]*side="{side}")[^}}]*reason="(\w+)"[^}}]*}} (\S+)', self.metrics()
        )
        return {reason: int(float(count)) for reason, count in found}

    def loop_lag(self) -> float:
        """By how many seconds the loop's tick is overdue now, by the metrics page."""
        found = re.search(r"^mcpvisor_event_loop_lag_seconds (\S+)", self.metrics(), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def resident(self) -> int:
        """Bytes of memory that the daemon holds."""
        return resident(self.pid)

    def queued_for_a_cpu(self) -> float:
        """Seconds for which the daemon's main thread was ready to run and had no CPU: the machine's doing, not its own."""
        return queued_for_a_cpu(self.pid)

    def explain(self, server: str) -> dict[str, Any]:
        """What `mcpvisor explain --json` prints."""
        answer: dict[str, Any] = self.control.get(server_path(server))
        return answer


class LostItsPace(AssertionError):
    """A neighbour was slower than it may be: by what was done to the daemon, or by what else the machine had to do."""


def again_where_slow(test: Callable[..., None]) -> Callable[..., None]:
    """Have a test that ends with LostItsPace measure again: what a daemon does to its clients it does each time."""

    @functools.wraps(test)
    def measured(**fixtures: Any) -> None:
        for _ in range(MEASUREMENTS - 1):
            with contextlib.suppress(LostItsPace):
                return test(**fixtures)
        return test(**fixtures)

    return measured


@contextlib.contextmanager
def besieged(folder: Path, servers: str, *, ready: Sequence[str] = (), **options: Any) -> Iterator[Besieged]:
    """A daemon whose `ready` servers are waited for; it must end in good order in the end, and leave nothing behind."""
    daemon = Besieged(folder, servers, **options)
    try:
        daemon.until_serving()
        for server in ready:
            daemon.until(lambda server=server: daemon.server(server)["state"] == "ready", f"{server} ready")
        yield daemon
        if "neighbour" in vars(daemon):
            daemon.neighbour.close()
        assert daemon.process.poll() in (None, 0), f"the daemon ended:\n{daemon.log_text()[-4000:]}"
    finally:
        left = daemon.clear()
    assert (0, []) == (daemon.process.returncode, left), daemon.log_text()[-4000:]


class Client:
    """A client of the handshake era on one kept connection: over the unix socket, or over TCP where `token` may be needed."""

    def __init__(self, at: Besieged | str, path: str = "/mcp", *, tcp: bool = False, token: str | None = None) -> None:
        """`at` is the daemon, or the path of its gateway's unix socket."""
        if isinstance(at, Besieged):
            self.connection = HTTPConnection(at.tcp, timeout=30) if tcp else UnixConnection(at.unix, 30)
        else:
            self.connection = UnixConnection(at, 30)
        self.path = path
        self.headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if token is not None:
            self.headers["authorization"] = f"Bearer {token}"
        self._last_id = 0

    def open(self) -> Client:
        """Make the handshake."""
        info = {"name": "t", "version": "1"}
        asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        answer = self.request("initialize", asked)
        assert "result" in answer, answer
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def post(self, message: Any, **headers: str) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send one message, or bytes as they are; status, headers and body of the answer."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.connection.request("POST", self.path, data, {**self.headers, **headers})
        response = self.connection.getresponse()
        body = response.read()
        session = response.headers.get("mcp-session-id")
        if session and "mcp-session-id" not in headers:
            self.headers["mcp-session-id"] = session
        return response.status, response.getheaders(), body

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        """The answer to one request."""
        self._last_id += 1
        ident = self._last_id
        message = {"jsonrpc": "2.0", "id": ident, "method": method, **({} if params is None else {"params": params})}
        _, _, body = self.post(message)
        text = body.decode()
        if text.startswith("{"):
            return json.loads(text)
        answers = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        return answers[-1]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a call of a tool."""
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def close(self) -> None:
        """Close the connection; the session stays."""
        self.connection.close()


class Gauges:
    """Watches a daemon while something is done to it: how long its loop is held, and how its memory grows."""

    def __init__(self, daemon: Besieged) -> None:
        self._daemon = daemon
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._watch_loop, self._watch_memory)]
        self.before = daemon.resident()
        self.most = self.before
        self.held = 0.0
        """The longest time in seconds for which the loop did not answer, without the time it waited for a CPU."""
        self.lag = 0.0
        """The largest lag on the metrics page, without the time it waited for a CPU meanwhile."""
        self.failure: BaseException | None = None

    @property
    def growth(self) -> int:
        """By how many bytes memory has grown at most."""
        return self.most - self.before

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.failure is None, repr(self.failure)

    def _watch_loop(self) -> None:
        try:
            connection = UnixConnection(self._daemon.unix)
            with contextlib.closing(connection):
                watch = Stopwatch(self._daemon.pid, threading.get_native_id())
                while not self._stop.wait(0.005):
                    watch.start()
                    connection.request("GET", "/livez")
                    assert connection.getresponse().read()
                    self.held = max(self.held, watch.seconds())
        except BaseException as error:
            self.failure = error

    def _watch_memory(self) -> None:
        past = deque([(time.monotonic(), self._daemon.queued_for_a_cpu())], 1000)
        try:
            while not self._stop.wait(0.02):
                self.most = max(self.most, self._daemon.resident())
                lag = self._daemon.loop_lag()
                now, queued = time.monotonic(), self._daemon.queued_for_a_cpu()
                before = next((then for at, then in reversed(past) if at <= now - lag), past[0][1])
                self.lag = max(self.lag, lag - (queued - before))
                past.append((now, queued))
        except BaseException as error:
            self.failure = error


class Neighbour:
    """A client in a process of its own that calls another server all through a `phase`; each is measured on its own."""

    def __init__(self, daemon: Besieged, server: str = "quiet", tool: str = "echo") -> None:
        pids = (daemon.pid, daemon.server(server)["pid"])
        command = [sys.executable, "-m", "tests.e2e.neighbour", daemon.unix, f"{server}__{tool}", *map(str, pids)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self._took: dict[str, list[float]] = {}
        try:
            self._hear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End its process."""
        self._process.communicate(timeout=60)

    @contextlib.contextmanager
    def phase(self, name: str, *, least: int = 0) -> Iterator[None]:
        """Count the calls of this block as `name`, and let the block last until there are `least` of them."""
        self._order(f"begin {name}")
        yield
        self._order(f"end {least}")
        answer = self._hear()
        self._took[name] = answer["took"]
        assert [] == answer["failures"], f"calls failed in the phase {name}"

    def p99(self, phase: str) -> float:
        """Seconds within which 99 of 100 calls of a phase were answered."""
        took = sorted(self._took[phase])
        assert len(took) >= 50, f"only {len(took)} calls"
        return took[int(len(took) * 0.99)]

    def keeps_its_pace(self, phase: str, *, floor: float = FLOOR) -> bool:
        """Whether calls of a phase took no longer than `floor`, or twice of what they take in a calm that is measured then."""
        if self.p99(phase) < floor:
            return True
        with self.phase("calm", least=CALM_CALLS):
            pass
        print(f"99 of 100 calls took less than {self.p99(phase):.4f} s, and {self.p99('calm'):.4f} s in a calm")
        return self.p99(phase) < 2 * self.p99("calm")

    def slowest(self, phase: str) -> float:
        """Seconds within which every call of a phase was answered."""
        return max(self._took[phase])

    def _order(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the neighbour has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

"""A daemon in a process of its own with what it costs in sight: its memory, how long its loop is held, what calls take."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
MAX_HELD = 0.25
MAX_GROWTH = 256 * MIB
FLOOR = 0.025
"""Calls that take no longer than this are quick whatever they took before: what a busy machine does to a calm daemon."""

READY_SECONDS = 20


class UnixConnection(HTTPConnection):
    """An HTTP connection over a unix socket."""

    def __init__(self, path: str, timeout: float = 20) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Running:
    """The daemon: where it is reached, what it says of itself, and what it costs."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.control = str(folder / "control.sock")
        self.gateway = str(folder / "gateway.sock")
        self.address = ""
        """HOST:PORT of the gateway over TCP."""
        self.metrics_address = ""

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer of the control API."""
        connection = UnixConnection(self.control)
        with contextlib.closing(connection):
            if body is None:
                connection.request("GET", path)
            else:
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            return json.loads(connection.getresponse().read())

    def state(self, server: str) -> dict[str, Any]:
        """One server of the status."""
        return next(one for one in self.ask("/v1/status")["servers"] if one["name"] == server)

    def events(self, server: str) -> list[dict[str, Any]]:
        """What `explain` tells of a server's past."""
        return self.ask(f"/v1/servers/{server}")["events"]

    def metrics(self) -> str:
        """The metrics page."""
        connection = HTTPConnection(self.metrics_address, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()

    def refused(self, side: str) -> dict[str, int]:
        """How many messages of a side were refused, by reason."""
        found = re.findall(rf'mcpvisor_refused_total{{reason="(\w+)",side="{side}"}} (\S+)', self.metrics())
        found += [
            (reason, count)
            for reason, count in re.findall(rf'mcpvisor_refused_total{{side="{side}",reason="(\w+)"}} (\S+)', self.metrics())
        ]
        return {reason: int(float(count)) for reason, count in found if float(count)}

    def loop_lag(self) -> float:
        """By how much the loop's tick is overdue now, by the metrics page."""
        found = re.search(r"^mcpvisor_event_loop_lag_seconds (\S+)", self.metrics(), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def resident(self) -> int:
        """Bytes of memory that the daemon holds."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def queued_for_a_cpu(self) -> float:
        """Seconds for which the daemon's main thread was ready to run and had no CPU: the machine's doing, not its own."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9

    def wait_for(self, what: Any, seconds: float = READY_SECONDS) -> Any:
        """The first true value of `what()`."""
        deadline = time.monotonic() + seconds
        while not (value := what()):
            assert time.monotonic() < deadline, f"not within {seconds} s; the log:\n{self.log()[-4000:]}"
            assert self.process.poll() is None, self.log()[-4000:]
            time.sleep(0.02)
        return value

    def log(self) -> str:
        """What the daemon has printed."""
        return (self.folder / "log").read_text(errors="replace")

    def children(self) -> set[int]:
        """The processes that carry this daemon's mark."""
        mark = f"MCPVISOR_STATE_OF_TESTS={self.folder}".encode()
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
        return found


SETTINGS = """
[daemon]
state_dir = "{folder}/state"
[log]
format = "{log}"
[gateway]
listen = ["127.0.0.1:0", "unix:{folder}/gateway.sock"]
auth = "{auth}"
[control]
listen = ["unix:{folder}/control.sock"]
[metrics]
listen = "127.0.0.1:0"
"""


@contextlib.contextmanager
def daemon(
    servers: str,
    *,
    auth: str = "open",
    log: str = "json",
    stderr: Any = None,
    prefix: Sequence[str] = (),
    ready: Sequence[str] = (),
    **environ: str,
) -> Iterator[Running]:
    """`mcpvisor run` on that configuration, with free ports; `ready` servers are waited for. Nothing of it is left after.

    `prefix` is put before the command; `stderr` is where the log goes in place of a file.
    """
    folder = Path(tempfile.mkdtemp(prefix="mcpvisor-", dir="/tmp"))
    config = folder / "mcpvisor.toml"
    config.write_text(SETTINGS.format(folder=folder, auth=auth, log=log) + servers)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPVISOR")}
    command = [*prefix, sys.executable, "-m", "mcpvisor.daemon.cli.main", "run", "--config", str(config)]
    with (folder / "log").open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink if stderr is None else stderr,
            env={**kept, "MCPVISOR_STATE_OF_TESTS": str(folder), **environ},
            start_new_session=True,
        )
    running = Running(process, folder)
    try:
        running.wait_for(lambda: Path(running.control).exists())
        addresses = running.ask("/v1/status")["daemon"]["addresses"]
        running.address = addresses["gateway"][0].removeprefix("http://")
        running.metrics_address = addresses["metrics"][0]
        for server in ready:
            running.wait_for(lambda server=server: running.state(server)["state"] == "ready")
        yield running
        assert process.poll() is None, f"the daemon ended:\n{running.log()[-4000:]}"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)
    assert process.returncode == 0


class Client:
    """A client of the handshake era on one kept connection: over the unix socket, or over TCP where `token` may be needed."""

    def __init__(self, running: Running, path: str = "/mcp", *, tcp: bool = False, token: str | None = None) -> None:
        self.connection = HTTPConnection(running.address, timeout=30) if tcp else UnixConnection(running.gateway, 30)
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
    """Watches a daemon while something is done to it: `held`, `growth`, and how long its neighbours' calls take."""

    def __init__(self, running: Running, neighbour: str = "quiet__echo") -> None:
        self._running = running
        self._tool = neighbour
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._watch_loop, self._watch_memory)]
        self.before = running.resident()
        self.most = self.before
        self.held = 0.0
        """The longest time in seconds for which the loop did not answer, without the time it waited for a CPU."""
        self.lag = 0.0
        """The largest lag on the metrics page."""
        self.failure: BaseException | None = None

    @property
    def growth(self) -> int:
        """By how many bytes memory has grown at most."""
        return self.most - self.before

    def __enter__(self) -> Gauges:
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
            connection = UnixConnection(self._running.gateway)
            with contextlib.closing(connection):
                while not self._stop.wait(0.005):
                    queued, own, began = self._running.queued_for_a_cpu(), _own_queue(), time.perf_counter()
                    connection.request("GET", "/livez")
                    assert connection.getresponse().read()
                    took = time.perf_counter() - began
                    excused = self._running.queued_for_a_cpu() - queued + _own_queue() - own
                    self.held = max(self.held, took - excused)
        except BaseException as error:
            self.failure = error

    def _watch_memory(self) -> None:
        try:
            while not self._stop.wait(0.02):
                self.most = max(self.most, self._running.resident())
                self.lag = max(self.lag, self._running.loop_lag())
        except BaseException as error:
            self.failure = error


def _own_queue() -> float:
    return int(Path(f"/proc/self/task/{threading.get_native_id()}/schedstat").read_text().split()[1]) / 1e9


class Neighbour:
    """A client that calls another server all the time; each `phase` is measured on its own."""

    def __init__(self, running: Running, tool: str = "quiet__echo") -> None:
        self._client = Client(running).open()
        self._tool = tool
        self._stop = threading.Event()
        self._took: dict[str, list[float]] = {}
        self._phase = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failures: list[Any] = []

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    @contextlib.contextmanager
    def phase(self, name: str, *, least: int = 0) -> Iterator[None]:
        """Count the calls of this block as `name`, and let the block last until there are `least` of them."""
        took = self._took.setdefault(name, [])
        self._phase = name
        wanted = len(took) + least
        yield
        deadline = time.monotonic() + 30
        while len(took) < wanted and time.monotonic() < deadline and not self.failures:
            time.sleep(0.005)
        self._phase = ""

    def p99(self, phase: str) -> float:
        """Seconds within which 99 of 100 calls of a phase were answered."""
        took = sorted(self._took[phase])
        assert len(took) >= 50, f"only {len(took)} calls"
        return took[int(len(took) * 0.99)]

    def _run(self) -> None:
        while not self._stop.is_set():
            phase, began = self._phase, time.perf_counter()
            try:
                answer = self._client.call(self._tool, text="x")
                if "result" not in answer:
                    self.failures.append(answer)
            except Exception as error:
                self.failures.append(error)
                return
            if phase:
                self._took[phase].append(time.perf_counter() - began)

"""Owns the life of one daemon in which every secret is put to use, and the taking down of all that it tells meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests import nursery
from tests.e2e import canaries
from tests.e2e.canaries import CANARY, END, FAILING, SINGING, secret
from tests.e2e.journal import JournalledDaemon
from tests.e2e.places import DOWN, OF_A_SERVER, READ, READ_OF_A_SERVER, UP, WATCHED
from tests.e2e.processes import Process, Sampler
from tests.e2e.running import RunningDaemon
from tests.e2e.screens import Screen
from tests.e2e.siege import Client, UnixConnection

from mcpvisor.daemon.cli import main as cli

SETTLED: Final = ("backoff", "failed", "crash_loop", "auth_required", "degraded")
LISTED: Final = ("ready", "degraded")

_PARSER: Final = cli.build_parser()
"""Made once: to make it anew takes longer than nearly all verbs."""


@dataclass
class Told:
    """What came out, by where it came out, and what is needed to judge it."""

    shown: dict[str, str] = field(default_factory=dict[str, str])
    more: list[str] = field(default_factory=list[str])
    """Secrets that are no canaries."""
    passed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What may stand in a place: tokens in the state file, the token of the gateway in its own."""
    received: str = ""
    """All that came to the HTTP servers."""
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    """What servers got as an answer to a question."""
    processes: set[Process] = field(default_factory=set[Process])
    refusals: list[int] = field(default_factory=list[int])
    results: list[str] = field(default_factory=list[str])
    """What clients got as the results of their calls, which is theirs."""
    gossip: list[str] = field(default_factory=list[str])
    """What a client got when it had one server tell the secrets of others."""
    journal_files: int = 0
    journal_records: int = 0
    modes: dict[str, int] = field(default_factory=dict[str, int])
    """Of each file of ours."""


def told_by_a_daemon(folder: Path) -> Told:
    """Run a daemon with all servers and handlers of `canaries`, use them rightly and wrongly, and run it once more."""
    told = Told()
    with web("leaky.py", "http") as leaky, web("echoing.py", f"{CANARY}-gave-{{}}-{END}") as echo:
        life = _Life(folder, leaky, echo, told)
        life.first_run()
        life.between()
        life.second_run()
        servers = [HTTPConnection(one.removeprefix("http://")) for one in (leaky, echo)]
        received = "".join(_get(one, "/received") for one in servers)
    told.received = received.lower()
    assertions = re.findall(r"client_assertion=([\w.-]+)", received)
    told.more += assertions
    return told


@contextlib.contextmanager
def web(script: str, *arguments: str) -> Iterator[str]:
    """The address of a server that repeats whatever it is sent."""
    command = [sys.executable, canaries.SERVERS / script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class _Life:
    def __init__(self, folder: Path, leaky: str, echo: str, told: Told) -> None:
        self.told = told
        self.shown = told.shown
        self.folder = folder
        given = folder / "credentials"
        state = folder / "d" / "state"
        for one in (given, folder / "backup", folder / "d", state):
            one.mkdir(0o700)
        self.kept = folder / canaries.KEPT_SECRET
        self.token = secret("gateway")
        pem = canaries.private_key()
        told.more += pem.splitlines()[1:-1]
        told.passed |= {f"connect cursor --token{more}, up": [self.token] for more in ("", " --json")}
        (folder / "other.json").write_text(canaries.file_of_others())
        files = {given / "given": secret("given"), self.kept: secret("kept"), folder / "key.pem": pem}
        files[folder / canaries.GOSSIP] = "nothing"
        for path, text in {**files, state / "gateway.token": self.token}.items():
            path.write_text(f"{text}\n")
            path.chmod(0o600)
        self.environ = canaries.environ() | {
            "CREDENTIALS_DIRECTORY": str(given),
            "MCPVISOR_LOG__LEVEL": "debug",
            "MCPVISOR_GATEWAY__DRAIN_NOTICE": "0s",
        }
        self.servers = "".join(
            [
                canaries.entries(leaky, folder),
                canaries.echoing(echo, folder / "key.pem"),
                canaries.faulty(),
                canaries.handlers(leaky, folder),
            ]
        )
        self.unix = folder / "d" / "gateway.sock"
        self.daemon = JournalledDaemon(
            folder / "d", self.servers, auth="auto", listen=f'["127.0.0.1:0", "unix:{self.unix}"]', env=self.environ
        )

    # The first run, whose log goes to the journal

    def first_run(self) -> None:
        daemon = self.daemon
        sampler = Sampler(daemon.pid, self.environ)
        try:
            self._live()
        finally:
            left = daemon.clear()
            sampler.end()
            self.told.processes = sampler.seen
        self.shown["stderr"] = daemon.log_text() or "nothing"
        self.shown["journal"] = daemon.journal.text()
        self.told.journal_files, self.told.journal_records = daemon.journal.files, len(daemon.journal.records)
        assert (0, []) == (daemon.process.returncode, left), self.shown["journal"][-4000:]

    def _live(self) -> None:
        daemon, shown = self.daemon, self.shown
        daemon.until_serving()
        streams = [
            _Stream(str(daemon.socket), path) for path in ("/v1/events?backlog=1000", "/v1/servers/everywhere/logs?follow=true")
        ]
        screens = [Screen(words, self.environ | {"MCPVISOR_SOCKET": str(daemon.socket)}) for words in WATCHED]
        daemon.until(lambda: daemon.server("sample")["state"] == "ready", "sample ready")
        for name, text in canaries.broken_files().items():
            daemon.write(name, text)
        shown["reload, broken"] = self.verb("reload --json")
        for name in FAILING:
            daemon.until(lambda name=name: daemon.server(name)["state"] in SETTLED, f"{name} to fail")
        for name in SINGING:
            daemon.until(
                lambda name=name: daemon.server(name)["state"] in LISTED and daemon.server(name)["tools"], f"{name} listed"
            )
        self._clients()
        self._gossip()
        self._operator()
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            os.kill(daemon.pid, number)
        self.look("up")
        shown["limits"] = Path(f"/proc/{daemon.pid}/limits").read_text()
        for words in UP:
            self.verbs(words)
        for name in [one["name"] for one in daemon.status()["servers"]]:
            for words in OF_A_SERVER:
                self.verbs(words.format(name))
        wrong = {"MCPVISOR_GATEWAY__AUTH": secret("setting"), "MCPVISOR_LOG__LEVLE": secret("misspelt")}
        shown["check, wrong settings"] = self.verb("check {config}", wrong)
        self._rotate()
        self.look("rotated")
        for screen in screens:
            shown[f"screen, {screen.words}"], code = screen.end()
            assert 130 == code, shown[f"screen, {screen.words}"]
        shown["state, live"] = _bytes(daemon.folder / "state")
        daemon.end()
        for stream in streams:
            shown[stream.path] = stream.text()

    def _clients(self) -> None:
        """Clients of the gateway, with the right token and with wrong ones."""
        right = {"authorization": f"Bearer {self.token}"}
        wrong: list[tuple[str, dict[str, str]]] = [
            ("/mcp", {"authorization": f"Bearer {secret('wrong-bearer')}"}),
            ("/mcp", {"authorization": f"Basic {self.token}"}),
            ("/mcp", {"authorization": self.token}),
            ("/mcp", {"cookie": f"token={self.token}", "x-api-key": self.token}),
            (f"/mcp?token={self.token}", {}),
            (f"/mcp/{self.token}", {}),
            (f"/mcp/{self.token}", right),
            (f"/{self.token}?token={self.token}", right),
            ("/mcp", {**right, "mcp-session-id": secret("bogus-session"), "last-event-id": secret("bogus-event")}),
            ("/mcp", {**right, "origin": f"https://{secret('origin')}.test"}),
            ("/mcp", {**right, "host": secret("host")}),
            (f"/livez?token={self.token}", {}),
        ]
        for method in ("POST", "GET", "DELETE"):
            for at, (path, headers) in enumerate(wrong):
                connection = self._tcp()
                connection.request(method, path, b'{"token": "' + self.token.encode(), headers)
                with contextlib.closing(connection):
                    response = connection.getresponse()
                    self.told.refusals.append(response.status)
                    self.shown[f"{method} of a wrong client {at}"] = f"{response.getheaders()} {response.read().decode()}"
        client = Client(str(self.unix), tcp=True, token=self.token)
        client.connection = self._tcp()
        client.open()
        self.told.more.append(client.headers["mcp-session-id"])
        for name in SINGING:
            client.call(f"{name}__say", text=self.token)
        client.call("everywhere__ask")
        self.told.results.append(json.dumps(client.call("echo_token__tell")))
        client.call("echo_token__lose")
        client.call(self.token)
        client.request("resources/read", {"uri": f"memo://{self.token}"})
        client.close()
        file = self.folder / "wrong.token"
        for name, text in (("refused", secret("shim")), ("of two lines", f"{secret('shim')}\n{secret('shim')}")):
            file.write_text(text)
            file.chmod(0o600)
            words = ["stdio", "--gateway", f"{self.daemon.gateway}?k={secret('shim-query')}", "--token-file", str(file)]
            done = nursery.run(words, typed='{"jsonrpc":"2.0","id":1,"method":"ping"}\n', env={**os.environ, **self.environ})
            self.shown[f"stdio, a token {name}"] = done.stdout + done.stderr

    def _gossip(self) -> None:
        """One server tells the secrets of all others, in what it answers and writes, and from its start on."""
        daemon = self.daemon
        client = Client(str(self.unix), tcp=True, token=self.token)
        client.connection = self._tcp()
        client.open()
        self.told.more.append(client.headers["mcp-session-id"])
        for place in canaries.KNOWN_TO_ALL:
            self.told.gossip.append(json.dumps(client.call("gossip__tell", text=secret(place))))
        client.close()
        self.look("gossip")
        self._have_told(canaries.KNOWN_TO_ALL)
        before = daemon.server("gossip")["pid"]
        daemon.order("gossip", "restart")
        daemon.until(lambda: daemon.server("gossip")["pid"] not in (None, before), "gossip, anew")
        daemon.until(lambda: daemon.server("gossip")["tools"], "gossip to list its tools")

    def _have_told(self, places: Sequence[str]) -> None:
        """Have `gossip` tell these from its next start on, from its handshake to its lists."""
        (self.folder / canaries.GOSSIP).write_text(" ".join(map(secret, places)))

    def _tcp(self) -> HTTPConnection:
        return HTTPConnection(self.daemon.addresses("gateway")[0].removeprefix("http://"), timeout=30)

    def _operator(self) -> None:
        """A question that an operator answers with a secret."""
        daemon = self.daemon
        call = threading.Thread(target=self.verb, args=("call neighbour ask",))
        call.start()
        question = daemon.until(lambda: daemon.control.get("/v1/elicitations")["elicitations"], "a question")[0]["id"]
        self.look("a question is open")
        self.verbs("elicitations")
        answer = json.dumps({"password": secret("operator/+=")})
        self.shown["a wrong answer"] = self.verb(
            "elicitations answer", more=[question, "--accept", json.dumps({"password": [answer]})]
        )
        self.shown["an answer"] = self.verb("elicitations answer", more=[question, "--accept", answer])
        call.join()
        for name in ("everywhere", "neighbour"):
            self.told.answers[name] = json.loads((self.folder / f"{name}.answer").read_text())

    def _rotate(self) -> None:
        """Replace a secret as a rename does, and see who is started anew."""
        daemon = self.daemon
        before = {one["name"]: one for one in daemon.status()["servers"]}
        fresh = self.kept.with_name("fresh")
        fresh.write_text(f"{secret('fresh')}\n")
        fresh.chmod(0o600)
        fresh.rename(self.kept)
        changes = daemon.control.post("/v1/reload", {})["changes"]
        assert [("everywhere", "restart", ["env"])] == [(one["server"], one["change"], one["fields"]) for one in changes]
        daemon.order("neighbour", "restart")
        for name in ("everywhere", "neighbour"):
            daemon.until(lambda name=name: daemon.server(name)["pid"] not in (None, before[name]["pid"]), f"{name}, anew")
            daemon.until(lambda name=name: daemon.server(name)["tools"], f"{name} to list its tools")
        for name in ("argument", "spelling"):
            assert before[name]["pid"] == daemon.server(name)["pid"]

    # What lies on the disk afterwards, and the second run, whose log goes to stderr as JSON, on versions that were kept

    def between(self) -> None:
        shown, daemon = self.shown, self.daemon
        shown["state"] = _bytes(daemon.folder / "state")
        shown["backup"] = _bytes(self.folder / "backup")
        shown["what a handler was told"] = (self.folder / canaries.TOLD).read_text()
        tokens = [row[0] for row in daemon.rows("SELECT value FROM tokens")]
        assert [f"{CANARY}-gave-access-{END}"] == tokens
        for place in ("state, live", "state", "backup"):
            self.told.passed[place] = [*tokens, self.token] if place != "backup" else tokens
        ours = [*(daemon.folder / "state").iterdir(), *(self.folder / "backup").iterdir()]
        self.told.modes = {path.name: path.stat().st_mode & 0o777 for path in ours}
        for words in DOWN:
            self.verbs(words, when="down")

    def second_run(self) -> None:
        daemon = self.daemon
        daemon.write("servers.toml", f'{self.servers}\n[servers.broken]\nenv = {{ A = "{secret("again")}\n')
        daemon.log = daemon.folder / "stderr.2"
        self._have_told(canaries.KNOWN_AGAIN)
        RunningDaemon.start(daemon)
        try:
            daemon.until_serving()
            for name in SINGING:
                daemon.until(lambda name=name: daemon.server(name)["tools"], f"{name} to list its tools, kept")
            self.look("kept")
            self.verbs("status", when="kept")
            self.verbs("plan", when="kept")
        finally:
            left = RunningDaemon.clear(daemon)
        self.shown["log"] = daemon.log_text()
        assert (0, []) == (daemon.process.returncode, left), daemon.log_text()[-4000:]

    # Looking around

    def look(self, when: str) -> None:
        """Read everything that can be read of the daemon."""
        shown, control = self.shown, str(self.daemon.socket)
        names = [one["name"] for one in self.daemon.status()["servers"]]
        for path in (*READ, *(f"/v1/servers/{name}{path}" for name in names for path in READ_OF_A_SERVER)):
            shown[f"{path}, {when}"] = _get(UnixConnection(control), path)
        for path in ("/livez?verbose", "/readyz?verbose", "/healthz"):
            shown[f"{path}, {when}"] = _get(UnixConnection(str(self.unix)), path)
        shown[f"/metrics, {when}"] = _get(HTTPConnection(self.daemon.addresses("metrics")[0]), "/metrics")

    def verbs(self, words: str, when: str = "up") -> None:
        """What a verb prints, for people and as JSON."""
        self.shown[f"{words}, {when}"] = self.verb(words)
        if words.partition(" ")[0] != "completion" and words != "config schema":
            self.shown[f"{words} --json, {when}"] = self.verb(f"{words} --json")

    def verb(self, words: str, env: dict[str, str] | None = None, more: list[str] | None = None) -> str:
        """What a verb prints on stdout and stderr, typed with the environment of the daemon."""
        told = words.format(config=self.daemon.folder / "config", folder=self.folder).split()
        out = io.StringIO()
        environ = {**self.environ, **(env or {}), "MCPVISOR_SOCKET": str(self.daemon.socket)}
        ours = mock.patch.dict(os.environ, environ), mock.patch.object(cli, "build_parser", return_value=_PARSER)
        with ours[0], ours[1], contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                code = cli.main([*told, *(more or [])])
            except SystemExit as end:
                code = int(end.code or 0)
        return f"{out.getvalue()}\nexit code {code}"


class _Stream:
    """Everything that comes on an endless answer of the control API."""

    def __init__(self, socket: str, path: str) -> None:
        self.path = path
        self._data = b""
        self._connection = UnixConnection(socket, 120)
        self._connection.request("GET", path)
        self._response = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._response.read1(65536):
                self._data += piece

    def text(self) -> str:
        """What has come until its end."""
        self._thread.join()
        self._connection.close()
        return self._data.decode("utf-8", "replace")


def _get(connection: HTTPConnection, path: str) -> str:
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return f"{response.getheaders()} {response.read().decode()}"


def _bytes(folder: Path) -> str:
    files = [path for path in folder.glob("*") if (path.is_file() and path.suffix != ".token") or path.name == "gateway.token"]
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in files)

"""Owns a daemon with fifty servers in files of every kind, and the comparison of what an edit has touched of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from tests.e2e.running import RunningDaemon, entry, puppet
from tests.processes import is_alive
from tests.supervisor.transports.http_rig import SERVERS
from tests.supervisor.transports.http_rig import puppet as http_puppet

from mcpvisor.daemon.cli.exits import CliError

LITE: Final = SERVERS / "lite.py"
URI: Final = "memo://a"
FACTS: Final = ("state", "wanted", "since", "pid", "generation", "restarts", "handshake_seconds", "subscriptions", "push")
"""What stays the same of a server that nobody has touched; no two handshakes take equally long."""

_UNMOVED: Final = frozenset({"probe_answered", "processes_sampled", "stderr_written", "resource_updated", "stdout_noise"})
"""Kinds of events that say nothing of an edit."""


def _is_living(pid: int | None) -> bool:
    return pid is not None and is_alive(pid)


def _named(changes: Mapping[str, str], which: str) -> set[str]:
    return {name for name, change in changes.items() if change == which}


class Client:
    """A client of the gateway with one session, one subscription and one stream, and nothing that would open another."""

    def __init__(self, url: str) -> None:
        self._url = url
        version = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        with self._post("initialize", version) as answer:
            self.session = answer.headers["mcp-session-id"]
        self._post("notifications/initialized", number=None).close()
        self.heard: list[str] = []
        self._stream = urllib.request.urlopen(self._request(None), timeout=300)
        threading.Thread(target=self._hear, daemon=True).start()
        with self._post("resources/subscribe", {"uri": URI}) as answer:
            assert "result" in json.load(answer)

    def ping(self) -> None:
        """Ask on its session. Raises HTTPError where there is none any more."""
        with self._post("ping") as answer:
            assert "result" in json.load(answer)

    def close(self) -> None:
        self._stream.close()

    def _hear(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # closed under its feet
            for line in self._stream:
                if line.startswith(b"data: {"):
                    message = json.loads(line[6:])
                    if message.get("method") == "notifications/resources/updated":
                        self.heard.append(message["params"]["uri"])

    def _post(self, method: str, params: Mapping[str, Any] | None = None, number: int | None = 1) -> Any:
        message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}
        message |= {"id": number} if number is not None else {}
        return urllib.request.urlopen(self._request(json.dumps(message).encode()), timeout=20)

    def _request(self, data: bytes | None) -> urllib.request.Request:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if hasattr(self, "session"):
            headers["Mcp-Session-Id"] = self.session
        return urllib.request.Request(self._url, data, headers)


class Fifty:
    """The daemon, its files, and all that happens to its servers. Files are named by what is odd about them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._parts = ExitStack()
        self.expected = Counter[str]()
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        with ExitStack() as parts:
            self.web = parts.enter_context(http_puppet("http_resource_subs.py"))
            self._start(parts)
            self._parts = parts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def _start(self, parts: ExitStack) -> None:
        self.elsewhere = self.folder / "elsewhere"
        (self.elsewhere / "named").mkdir(parents=True)
        self.secret = self.elsewhere / "secret"
        self.secret.write_text("first")
        self.named = self.elsewhere / "named" / "mcp.json"
        command = [sys.executable, str(SERVERS / "reload_writer.py"), str(self.named), "--told"]
        self.writer = parts.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        parts.callback(self.writer.kill)
        assert self.writer.stdout is not None
        assert self.writer.stdout.readline().startswith(b"READY")
        main = "".join(self.text(f"m{number}") for number in range(11))
        drop_in = "".join(self.text(f"t{number}") for number in range(14))
        drop_in += self.text("sealed", env={"KEY": f"${{file:{self.secret}}}"})
        self.running = RunningDaemon(self.folder / "d", drop_in, settings=main, more=[self.named])
        parts.callback(self._end)
        self.main = self.running.folder / "config" / "mcpvisor.toml"
        self.drop_ins = self.running.drop_ins
        self.put("json.json", self.json(**{f"j{number}": [] for number in range(12)}))
        self.put("web.toml", "".join(self.web_text(f"w{number}") for number in range(4)))
        notes = SERVERS / "resource_streams.py"
        self.put("notes.toml", "".join(puppet(f"n{n}", notes, "--list", URI, subscriptions=[URI]) for n in range(3)))
        self.put("solo.toml", self.text("solo"))
        (self.elsewhere / "linked.json").write_text(self.json(linked=[]))
        (self.drop_ins / "linked.json").symlink_to(self.elsewhere / "linked.json")
        self.map(1, self.json(mapped=[]))
        self.running.until_serving()
        threading.Thread(target=self._follow, daemon=True).start()
        self.running.until(lambda: len(self.snapshot()) == 50, "fifty servers")
        self.running.until_ready(40)
        self.client = Client(f"{self.running.addresses('gateway')[0]}/mcp/w0")
        parts.callback(self.client.close)
        self.settle()

    def _end(self) -> None:
        left = self.running.clear()
        print(f"--- {self.running.folder}/stderr\n{self.running.log_text()}")
        assert [] == left

    # What is written

    def text(self, name: str, *args: str, **keys: Any) -> str:
        """The entry of a server in TOML."""
        return puppet(name, LITE, *args, **keys)

    def web_text(self, name: str, query: str = "") -> str:
        """The entry of a server on the one HTTP process."""
        return entry(name, url=self.web.url + query, era="legacy", subscriptions=[URI])

    def json(self, **servers: list[str]) -> str:
        """A file of another program, with the arguments of each server."""
        entries = {name: {"command": sys.executable, "args": [str(LITE), *args]} for name, args in servers.items()}
        return json.dumps({"mcpServers": entries}, indent=2)

    def put(self, name: str, text: str) -> None:
        """Write a drop-in by a rename."""
        self.running.write(name, text)

    def map(self, number: int, text: str) -> None:
        """Swap a mounted ConfigMap, as the kubelet does."""
        new = self.drop_ins / f"..2026_{number}"
        new.mkdir()
        (new / "map.json").write_text(text)
        (self.drop_ins / "..tmp").symlink_to(new.name)
        (self.drop_ins / "..tmp").replace(self.drop_ins / "..data")
        if not (self.drop_ins / "map.json").is_symlink():
            (self.drop_ins / "map.json").symlink_to("..data/map.json")

    def write_step(self) -> list[str]:
        """Let `reload_writer.py` take its next step on the named file; the servers that it expects."""
        assert self.writer.stdin is not None
        assert self.writer.stdout is not None
        self.writer.stdin.write(b"\n")
        self.writer.stdin.flush()
        expected: list[str] = json.loads(self.writer.stdout.readline())["expect_running"]
        return expected

    # What is seen

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """The facts of each server."""
        return {one["name"]: {fact: one[fact] for fact in FACTS} for one in self.running.status()["servers"]}

    def reloads(self) -> Counter[str]:
        """How many reloads there were for what was seen in files, by outcome."""
        with urllib.request.urlopen(f"http://{self.running.addresses('metrics')[0]}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        found = re.findall(r'^mcpvisor_config_reloads_total{outcome="(\w+)",trigger="watch"} (\S+)', text, re.MULTILINE)
        return Counter({outcome: int(float(count)) for outcome, count in found})

    def settle(self) -> None:
        """Take all that has happened until now as the beginning."""
        self.touch()
        self.expected = self.reloads()
        self.before = self.snapshot()
        self.sessions = self.web_sessions()
        self.mark = len(self.events)

    def touch(self) -> None:
        """Have a resource change, and see that the client hears of it, once and on its stream.

        The event of it has come as well then, and with it all that was told before.
        """
        heard, told = len(self.client.heard), self._touches()
        self.web.control("touch", uri=URI)
        self.running.until(lambda: len(self.client.heard) > heard, "an update for the client")
        self.running.until(lambda: self._touches() > told, "the event of the update")
        assert [URI] == self.client.heard[heard:]

    def _touches(self) -> int:
        """How many events have told of the client's resource."""
        return sum((event["kind"], event.get("server")) == ("resource_updated", "w0") for event in self.events)

    def web_sessions(self) -> tuple[int, int]:
        """How many sessions and subscriptions the HTTP process was ever asked for."""
        state = self.web.state()
        return state["initializes"], state["subscribe_calls"]

    def step(self, what: str, edit: Callable[[], object], outcomes: Mapping[str, int] | None = None, /, **changes: str) -> None:
        """Edit, and see that these changes came of it, by this many reloads of each outcome, and nothing else.

        A change is `added`, `removed`, `replaced`, `updated`, `disabled` or `enabled`.
        """
        edit()
        self.expected.update({"applied": 1} if outcomes is None else outcomes)
        self.running.until(lambda: self.reloads() == self.expected, f"{what}: {self.expected}")
        self.running.until(lambda: self._is_done(changes), f"{what}: {changes}")
        self.touch()
        self.client.ping()
        after = self.snapshot()
        untouched = self.before.keys() - changes.keys()
        assert {name: self.before[name] for name in untouched} == {name: after.get(name) for name in untouched}, what
        assert self.before.keys() | _named(changes, "added") == after.keys() | _named(changes, "removed"), what
        assert changes.keys() == self.since().keys(), (what, self.since())
        for name, change in changes.items():
            self._check(what, name, change, after)
        web = sum(change == "replaced" for name, change in changes.items() if after.get(name, {}).get("push"))
        assert (self.sessions[0] + web, self.sessions[1] + web) == self.web_sessions(), what
        assert self.expected == self.reloads(), what
        self.before, self.sessions, self.mark = after, self.web_sessions(), len(self.events)

    def _is_done(self, changes: Mapping[str, str]) -> bool:
        status = self.running.status()
        found = {one["name"]: one for one in status["servers"]}
        for name, change in changes.items():
            is_old = name in found and found[name]["generation"] == self.before.get(name, {}).get("generation")
            if (change == "removed") == (name in found) or (change in {"replaced", "enabled"} and is_old):
                return False
            if change == "disabled" and found[name]["state"] != "disabled":
                return False
            if change in {"disabled", "removed"} and _is_living(self.before[name]["pid"]):
                return False
        return bool(status["healthy"]) and not any(one["replacing"] for one in found.values())

    def _check(self, what: str, name: str, change: str, after: Mapping[str, Mapping[str, Any]]) -> None:
        old, new, kinds = self.before.get(name, {}), after.get(name, {}), self.since()[name]
        first = {"added": "server_added", "removed": "server_removed"}.get(change, "server_updated")
        assert 1 == kinds.count(first), (what, name, kinds)
        assert not {"server_added", "server_removed", "server_updated"} & set(kinds) - {first}, (what, name, kinds)
        opened = {"added": 1, "replaced": 1, "enabled": 1}.get(change, 0)
        assert opened == kinds.count("session_opened"), (what, name, kinds)
        if change == "updated":
            assert old == new, what
            return
        assert not _is_living(old.get("pid")), (what, name)
        assert opened + old.get("generation", 0) == new.get("generation", 0) or change == "removed", (what, name, old, new)

    def since(self) -> dict[str, list[str]]:
        """The kinds of the events of each server since the last check, in their order."""
        found: dict[str, list[str]] = {}
        for event in self.events[self.mark :]:
            if event.get("server") and event["kind"] not in _UNMOVED:
                found.setdefault(event["server"], []).append(event["kind"])
        return found

    def _follow(self) -> None:
        with suppress(CliError, OSError):  # the daemon has ended
            for name, value in self.running.control.follow("/v1/events"):
                assert "event" == name, f"{value} events were lost"
                self.events.append(value)

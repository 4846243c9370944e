"""Secrets of servers stay in the servers: nothing that the daemon prints or serves shows one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.running import entry, puppet
from tests.e2e.siege import Besieged, Client, besieged

SERVERS = Path(__file__).parents[1] / "servers"
CANARY = "canary-7f3a9c51e2"
"""Begins every secret; what follows tells where it was written."""

VERBS = (("status",), ("status", "--json"), ("events",), ("config", "show"), ("tools",))


def entries(url: str) -> str:
    """Servers with a secret in each place that can hold one."""
    leaky = SERVERS / "leaky.py"
    headers = {"x-key": f"{CANARY}-header"}
    bearer = {"type": "bearer", "token": f"{CANARY}-bearer"}
    return "".join(
        [
            puppet("everywhere", leaky, "everywhere", env={"SECRET": f"{CANARY}-env"}, probe={"interval": "1s"}),
            puppet("argument", leaky, "everywhere", "${ARGUMENT}"),
            puppet("handshake", leaky, "initialize", env={"SECRET": f"{CANARY}-handshake"}, era="legacy"),
            puppet("ending", leaky, "exit", env={"SECRET": f"{CANARY}-exit"}),
            entry("command", "/no/such/${ARGUMENT}"),
            *(
                entry(path, url=f"{url}/{path}?key={CANARY}-query", headers=headers, auth=bearer, era="legacy")
                for path in ("unauthorized", "broken", "elsewhere", "refused")
            ),
            entry("nobody", url=f"http://127.0.0.1:9/mcp?token={CANARY}-nobody", headers=headers),
            entry("invalid", url=f"http://user:{CANARY}-password@127.0.0.1/"),
            entry("misspelt", url="http://127.0.0.1/", headers={"x": f"{CANARY}\n-broken"}),
            puppet("sample", SERVERS / "lite.py"),
        ]
    )


def test_canaries(tmp_path: Path):
    """Whatever servers do with their secrets, no log, status, event, metric or error holds one."""
    web = subprocess.Popen([sys.executable, SERVERS / "leaky.py", "http"], stdout=subprocess.PIPE, text=True)
    assert web.stdout is not None
    url = web.stdout.readline().strip()
    environ = {"ARGUMENT": f"{CANARY}-argument", "MCPVISOR_LOG__LEVEL": "debug"}
    shown: dict[str, str] = {}
    try:
        with besieged(tmp_path / "d", entries(url), env=environ, ready=("sample",)) as daemon:
            failing = ("handshake", "ending", "unauthorized", "broken", "elsewhere", "refused", "nobody", "command")
            for name in failing:
                daemon.until(lambda name=name: daemon.server(name)["state"] in SETTLED, f"{name} to fail")
            for name in ("everywhere", "argument"):
                daemon.until(lambda name=name: daemon.server(name)["tools"], f"{name} to list its tools")
            client = Client(daemon).open()
            for name in daemon.status()["servers"]:
                shown[f"explain {name['name']}"] = json.dumps(daemon.explain(name["name"]))
                shown[f"logs {name['name']}"] = json.dumps(daemon.control.get(f"/v1/servers/{name['name']}/logs"))
                shown[f"call {name['name']}"] = json.dumps(client.call(f"{name['name']}__say"))
            client.close()
            shown["events, live"] = live(daemon)
            shown["status"] = json.dumps(daemon.status())
            shown["metrics"] = daemon.metrics()
            for verb in VERBS:
                command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "--socket", str(daemon.socket), *verb]
                done = subprocess.run(command, capture_output=True, text=True, timeout=20, env={**os.environ, **environ})
                shown[" ".join(verb)] = done.stdout + done.stderr
        shown["log"] = daemon.log_text()
        shown["state"] = "".join(
            path.read_text(errors="replace") for path in (daemon.folder / "state").rglob("*") if path.is_file()
        )
    finally:
        web.kill()
        web.wait()
        web.stdout.close()
    found = {place: _around(text) for place, text in shown.items() if CANARY in text}

    assert {} == found
    assert [] == [place for place, text in shown.items() if len(text) < 3]
    assert "everywhere" in shown["log"]
    assert "***" in shown["explain everywhere"]


SETTLED = ("backoff", "failed", "crash_loop", "auth_required", "degraded")


def live(daemon: Besieged) -> str:
    """What the stream of events tells while a server says things that nobody asked for."""
    seen = []
    with contextlib.closing(daemon.control.follow("/v1/events", {"server": "everywhere"})) as stream:
        daemon.order("everywhere", "restart")
        for name, event in stream:
            seen.append(json.dumps([name, event]))
            if event.get("kind") == "server_state_changed" and event["new"] in ("ready", "degraded"):
                break
    assert any("server_notified" in one for one in seen), seen
    return "\n".join(seen)


def _around(text: str) -> str:
    at = text.index(CANARY)
    return text[max(0, at - 120) : at + 40]

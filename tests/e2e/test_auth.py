"""Credentials of servers under a whole daemon: fetched, rotated by a saved edit, told of truly, and never shown."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import nursery
from tests.e2e.running import entry
from tests.e2e.siege import Besieged, Client, besieged
from tests.supervisor.transports.http_rig import Puppet, puppet

CANARY = "canary-2c60d7"
"""Begins every secret, the fetched tokens too; what follows tells where it was written."""

NAMES = ("fetched", "refused", "query", "command", "hopeless")
VERBS = (("status",), ("status", "--json"), ("events",), ("config", "show"), ("check",), *(("explain", name) for name in NAMES))


@pytest.fixture
def server() -> Iterator[Puppet]:
    with puppet("oauth.py", "--canary", f"{CANARY}-token") as running:
        accepted = [f"{CANARY}-query", f"{CANARY}-command"]
        running.control("set", secret=f"{CANARY}-secret", accepted=accepted, quote=True)
        yield running


def entries(server: Puppet, **changes: str) -> str:
    """Servers with each kind of credential, one of which is refused by the endpoint and one by the server."""
    given = {"secret": f"{CANARY}-secret", **changes}
    client = {"type": "client_credentials", "client_id": "machine", "token_url": server.url.replace("/mcp", "/token")}
    script = f"print('X-Api-Key: {CANARY}-command')"
    keys = {"url": server.url, "era": "legacy", "probe": {"interval": "60s"}}
    return "".join(
        [
            entry("fetched", **keys, auth={**client, "client_secret": given["secret"]}),
            entry("refused", **keys, auth={**client, "client_secret": f"{CANARY}-wrong", "scope": "other"}),
            entry("query", **keys, auth={"type": "api_key", "query": "key", "key": f"{CANARY}-query"}),
            entry("command", **keys, header_command=[sys.executable, "-c", script]),
            entry("hopeless", **keys, header_command=[sys.executable, "-c", f"raise SystemExit('{CANARY}-hopeless'[:30])"]),
        ]
    )


def test_nothing_of_any_credential_is_shown(tmp_path: Path, server: Puppet):
    """Whatever the endpoint, the server and the commands repeat, no log, status, event, metric or error holds a secret."""
    shown: dict[str, str] = {}
    environ = {"MCPVISOR_LOG__LEVEL": "debug"}
    with besieged(tmp_path / "d", entries(server), env=environ, ready=("fetched", "query", "command")) as daemon:
        for name in ("refused", "hopeless"):
            daemon.until(lambda name=name: daemon.server(name)["state"] == "auth_required", f"{name} to need somebody")
        client = Client(daemon).open()
        assert "hello" in json.dumps(client.call("fetched__echo", text="hello"))
        server.control("set", refuse_all=True)
        for name in NAMES:
            shown[f"call {name}"] = json.dumps(client.call(f"{name}__echo", text="x"))
        client.close()
        for name in ("fetched", "query", "command"):
            daemon.until(lambda name=name: daemon.server(name)["state"] == "auth_required", f"{name} to need somebody")
        for name in NAMES:
            shown[f"explanation of {name}"] = json.dumps(daemon.explain(name))
        shown["status of all"] = json.dumps(daemon.status())
        shown["metrics"] = daemon.metrics()
        for verb in VERBS:
            more = [daemon.folder / "config"] if verb == ("check",) else []
            done = nursery.run(["--socket", daemon.socket, *verb, *more], env={**os.environ, **environ})
            shown[" ".join(verb)] = done.stdout + done.stderr
        shown["log"] = daemon.log_text()
    # The command of `hopeless` says part of its own text, which is no secret: it stands in its arguments for all to see.
    found = {place: _around(text) for place, text in shown.items() if CANARY in text.replace(f"{CANARY}-hopeless", "")}

    assert {} == found
    assert [] == [place for place, text in shown.items() if len(text) < 3]
    assert "***" in shown["explanation of refused"]
    assert "invalid_client" in shown["log"]


def test_a_saved_edit_rotates_in_place(tmp_path: Path, server: Puppet):
    """A new secret in the file is used for the next token; no session ends, and the expiry is seen in each place."""
    with besieged(tmp_path / "d", entries(server), ready=("fetched", "query", "command")) as daemon:
        daemon.until(lambda: daemon.server("refused")["state"] == "auth_required", "the refusal")
        before = server.state()["initializes"]
        server.control("set", secret=f"{CANARY}-second")
        daemon.write("servers.toml", entries(server, secret=f"{CANARY}-second"))
        daemon.until(lambda: "new configuration (auth): update" in daemon.log_text(), "the edit")
        server.control("revoke")
        client = Client(daemon).open()
        assert "hello" in json.dumps(client.call("fetched__echo", text="hello"))
        client.close()
        expiry = daemon.server("fetched")["token_expires_at"]
        assert before == server.state()["initializes"]
        assert _metric(daemon, "fetched") == pytest.approx(expiry, abs=1)
        assert "  token      expires " in _explained(daemon, "fetched")
        assert (None, None) == (daemon.server("refused")["token_expires_at"], _metric(daemon, "refused"))
        assert "401 Unauthorized: invalid_client" in _explained(daemon, "refused")


def _metric(daemon: Besieged, name: str) -> float | None:
    begin = f'mcpvisor_auth_token_expiry_timestamp_seconds{{server="{name}"}} '
    return next((float(line.removeprefix(begin)) for line in daemon.metrics().splitlines() if line.startswith(begin)), None)


def _explained(daemon: Besieged, name: str) -> str:
    return nursery.run(["--socket", daemon.socket, "explain", name]).stdout


def _around(text: str) -> str:
    at = text.index(CANARY)
    return text[max(0, at - 160) : at + 60]

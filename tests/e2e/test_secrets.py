"""Secrets of servers and handlers stay where they belong: nothing that the daemon prints, keeps or serves shows one."""

from __future__ import annotations

import contextlib
import json
import os
import pprint
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.e2e import canaries
from tests.e2e.canaries import CANARY, FAILING, SINGING
from tests.e2e.siege import Besieged, Client, besieged

from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.table_reader import TableReader

VERBS = (
    *(("status",), ("status", "--json"), ("events",), ("tools",), ("plan",), ("handlers",), ("events", "dead")),
    *(("doctor",), ("doctor", "--json"), ("plan", "--event", "state_changed"), ("connect", "cursor"), ("plan", "--json")),
)
"""What a person may type; verbs that are not there yet have nothing to tell but that."""

ORIGINS = ("--origin", "--all")
SETTLED = ("backoff", "failed", "crash_loop", "auth_required", "degraded")


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a server that repeats whatever it is sent."""
    command = [sys.executable, canaries.SERVERS / "leaky.py", "http"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def test_canaries(tmp_path: Path, web: str):
    """Whatever servers and handlers do with their secrets, no log, answer, event, metric, error or file of ours holds one.

    A secret that is replaced restarts those that have it in their environment and no others; the old one stays masked.
    """
    given = tmp_path / "credentials"
    given.mkdir(0o700)
    (given / "given").write_text(f"{CANARY}-given\n")
    kept = tmp_path / canaries.KEPT_SECRET
    kept.write_text(f"{CANARY}-kept\n")
    kept.chmod(0o600)
    environ = canaries.environ() | {"CREDENTIALS_DIRECTORY": str(given), "MCPVISOR_LOG__LEVEL": "debug"}
    servers = canaries.entries(web, tmp_path) + canaries.faulty() + canaries.handlers(web, tmp_path)
    shown: dict[str, str] = {}
    with besieged(tmp_path / "d", servers, env=environ, ready=("sample",)) as daemon:
        for name, text in canaries.broken_files().items():
            daemon.write(name, text)
        shown["reload"] = verb(daemon, environ, "reload", "--json")
        for name in FAILING:
            daemon.until(lambda name=name: daemon.server(name)["state"] in SETTLED, f"{name} to fail")
        for name in SINGING:
            daemon.until(lambda name=name: daemon.server(name)["tools"], f"{name} to list its tools")
        shown["events, live"] = live(daemon)
        shown["emit"] = verb(daemon, environ, "events", "emit", "--kind", "state_changed", "--server", "sample")
        look_around(daemon, shown)
        for words in VERBS:
            shown[" ".join(words)] = verb(daemon, environ, *words)
        shown["config show"] = verb(daemon, environ, "config", "show", *ORIGINS, str(daemon.folder / "config"))
        shown["config show, json"] = verb(daemon, environ, "config", "show", "--all", "--json", str(daemon.folder / "config"))
        shown["check"] = verb(daemon, environ, "check", str(daemon.folder / "config"))
        wrong = {"MCPVISOR_GATEWAY__AUTH": f"{CANARY}-setting", "MCPVISOR_LOG__LEVLE": f"{CANARY}-misspelt"}
        shown["check, wrong settings"] = verb(daemon, environ | wrong, "check", str(daemon.folder / "config"))
        shown["process"] = process(daemon, environ)
        rotate(daemon, kept)
        shown["logs, rotated"] = json.dumps(daemon.control.get("/v1/servers/everywhere/logs"))
    shown["log"] = daemon.log_text()
    shown["state"] = "".join(
        path.read_bytes().decode("utf-8", "replace") for path in (daemon.folder / "state").rglob("*") if path.is_file()
    )
    found = {place: _around(text) for place, text in shown.items() if "canary" in text.lower()}

    assert {} == found, json.dumps(found, indent=1)
    assert [] == [place for place, text in shown.items() if len(text) < 3]
    assert "everywhere" in shown["log"]
    assert "[servers.everywhere]" in shown["config show"]
    assert "servers.neighbour" in shown["config show, json"]
    assert all(f"handler {name}" in shown["log"] for name in ("program", "python"))
    assert shown["explain everywhere"].count("***") > 1
    assert shown["logs spelling"].count("***") >= 5 * 5, shown["logs spelling"]
    assert "/servers.d/broken.json:1" in shown["check"]
    assert {"no_key", "no_word", "wrong_auth"} <= set(re.findall('"server": "([a-z_]+)"', shown["reload"]))


def test_specs_print_no_secret(tmp_path: Path):
    """What the configuration becomes prints none of them, however it is printed: each is of the type of secrets."""
    for folder in (tmp_path, tmp_path / "servers.d"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    kept = tmp_path / canaries.KEPT_SECRET
    given = tmp_path / "given"
    main = tmp_path / "mcpvisor.toml"
    servers = canaries.entries("http://127.0.0.1:1", tmp_path) + canaries.faulty()
    main.write_text(
        f'[defaults]\nenv = {{ D = "{CANARY}-default" }}\n{servers}{canaries.handlers("http://127.0.0.1:1", tmp_path)}'
    )
    for file in (kept, given):
        file.write_text(f"{CANARY}-file")
    for file in (kept, given, main):
        file.chmod(0o600)

    loaded = load([tmp_path], {**os.environ, **canaries.environ(), "CREDENTIALS_DIRECTORY": str(tmp_path)})

    named = {name for one in loaded.loads for name in one.rejected}
    assert {*FAILING, *SINGING, "sample"} == set(loaded.specs)
    assert {"invalid", "misspelt", "env_list", "no_form"} <= named
    assert {"program", "hook", "proxied", "python", "rules", "heard"} == set(loaded.handlers)
    copied = [asdict(spec) for spec in (*loaded.specs.values(), *loaded.handlers.values())]
    for shown in (repr(loaded), pprint.pformat(loaded), repr(copied), json.dumps(copied, default=str)):
        assert "canary" not in shown, _around(shown)


def look_around(daemon: Besieged, shown: dict[str, str]) -> None:
    """What the control API, the gateway and the metrics tell."""
    client = Client(daemon).open()
    for name in [one["name"] for one in daemon.status()["servers"]]:
        shown[f"explain {name}"] = json.dumps(daemon.explain(name))
        shown[f"logs {name}"] = json.dumps(daemon.control.get(f"/v1/servers/{name}/logs"))
        shown[f"call {name}"] = json.dumps(client.call(f"{name}__say"))
    client.close()
    shown["status"] = json.dumps(daemon.status())
    shown["metrics"] = daemon.metrics()


def verb(daemon: Besieged, environ: dict[str, str], *words: str) -> str:
    """What a verb of the command line prints."""
    command = [sys.executable, "-m", "mcpvisor.daemon.cli.main", "--socket", str(daemon.socket), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environ})
    return done.stdout + done.stderr


def process(daemon: Besieged, given: dict[str, str]) -> str:
    """What everybody may see of the daemon's process, without what it was given itself."""
    proc = Path(f"/proc/{daemon.pid}")
    ours = [one for one in proc.joinpath("environ").read_text().split("\0") if one.partition("=")[0] not in given]
    limits = proc.joinpath("limits").read_text()
    assert "0" == next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()[4]
    return "\n".join([proc.joinpath("cmdline").read_text(), *ours])


def rotate(daemon: Besieged, kept: Path) -> None:
    """Replace a secret as a rename does, and see who is started anew."""
    before = {one["name"]: one for one in daemon.status()["servers"]}
    fresh = kept.with_name("fresh")
    fresh.write_text(f"{CANARY}-fresh\n")
    fresh.chmod(0o600)
    fresh.rename(kept)
    changes = daemon.control.post("/v1/reload", {})["changes"]
    assert [("everywhere", "restart", ["env"])] == [(one["server"], one["change"], one["fields"]) for one in changes]
    daemon.until(lambda: daemon.server("everywhere")["pid"] not in (None, before["everywhere"]["pid"]), "everywhere, anew")
    daemon.until(lambda: daemon.server("everywhere")["tools"], "everywhere to list its tools")
    daemon.order("neighbour", "restart")
    daemon.until(lambda: daemon.server("neighbour")["pid"] not in (None, before["neighbour"]["pid"]), "neighbour, anew")
    daemon.until(lambda: daemon.server("neighbour")["tools"], "neighbour to list its tools")
    for name in ("argument", "spelling", "sample"):
        assert before[name]["pid"] == daemon.server(name)["pid"]


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
    at = text.lower().index("canary")
    return text[max(0, at - 120) : at + 60]


EVERY_KEY = """
[servers.stdio]
command = "true"
limits = { files = 1 }
restart = { delay = "1s" }
probe = { slow = "1s" }
stop = { term = "1s" }
tools = { allow = [] }
env = { A = "1" }
subscriptions = [{ uri = "a:b" }]
[servers.http]
url = "https://x.test/"
tls = { ca_mode = "add" }
headers = { A = "1" }
auth = { type = "bearer", token = "x" }
[servers.key]
url = "https://x.test/"
auth = { type = "api_key", key = "x", header = "A" }
[servers.client]
url = "https://x.test/"
auth = { type = "client_credentials", client_id = "c", client_secret = "x", issuer = "https://x.test/" }
[servers.signing]
url = "https://x.test/"
auth = { type = "client_credentials", client_id = "c", private_key = "-----BEGIN", issuer = "https://x.test/" }
"""
EVERY_HANDLER = """
retry = { delay = "1s" }
circuit = { failures = 1 }
"""
OF_TYPES = {
    "log": "",
    "exec": 'command = ["true"]\nenv = { A = "1" }\n',
    "webhook": 'url = "https://x.test/"\nsecret = "x"\nheaders = { A = "1" }\ntls = { ca_mode = "add" }\n',
    "python": 'object = "m:o"\narguments = { a = "1" }\nenv = { A = "1" }\nlimits = { files = 1 }\n',
    "policy": 'rules = [{ action = "accept", content = { a = "1" } }]\n',
}


def test_every_key_is_known_to_hold_secrets_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A key of which nobody has decided whether a secret may stand in it has no canary: decide, in `canaries.py`."""
    tmp_path.chmod(0o755)
    text = EVERY_KEY + "".join(f'[handlers.{kind}]\ntype = "{kind}"\n{EVERY_HANDLER}{keys}' for kind, keys in OF_TYPES.items())
    (tmp_path / "mcpvisor.toml").write_text(text)
    (tmp_path / "mcpvisor.toml").chmod(0o644)
    asked: set[str] = set()
    item, all_items = TableReader.item, TableReader.all_items

    def note(reader: TableReader, key: str) -> None:
        path = next((one.path[:-1] for one in reader._items.values()), None)
        if path and path[0] in ("servers", "handlers"):
            of_type = f"{path[1]}:" if path[0] == "handlers" else ""
            asked.add(of_type + ".".join([*(step for step in path[2:] if isinstance(step, str)), key]))

    def noted_item(reader: TableReader, key: str):
        note(reader, key)
        return item(reader, key)

    def noted_all(reader: TableReader):
        note(reader, "*")
        return all_items(reader)

    monkeypatch.setattr(TableReader, "item", noted_item)
    monkeypatch.setattr(TableReader, "all_items", noted_all)
    load([tmp_path], {"HOME": "/", "PATH": os.environ["PATH"]})
    tables = {f"{key.rpartition('.')[0]}" for key in asked if "." in key}

    known = canaries.SECRET_KEYS | canaries.PLAIN_KEYS
    assert set() == asked - tables - known, "decide whether a secret may stand there"
    assert set() == known - asked, "these are no keys any more"
    assert set() == canaries.SECRET_KEYS & canaries.PLAIN_KEYS

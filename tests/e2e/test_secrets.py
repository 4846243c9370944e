"""Secrets of servers and handlers stay where they belong: nothing that the daemon prints, keeps or serves shows one."""

from __future__ import annotations

import argparse
import json
import os
import pprint
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from tests.e2e import canaries
from tests.e2e.canaries import CANARY, FAILING, SINGING, secret
from tests.e2e.leaks import leaks, writings
from tests.e2e.places import ACTED_ON, DOWN, LEFT_OUT, OF_A_SERVER, READ, READ_OF_A_SERVER, UP, WATCHED
from tests.e2e.running import puppet
from tests.e2e.telling import Told, told_by_a_daemon

import mcpvisor.daemon
from mcpvisor.daemon.cli.main import build_parser
from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.config.table_reader import TableReader

FAILING_ALOUD = ("handshake", "ending", "unauthorized", "broken", "refused", "by_post", "by_basic", "by_key")
"""Servers whose reason holds what they were sent."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What came out of one daemon over two runs, in which every secret was put to use."""
    return told_by_a_daemon(tmp_path_factory.mktemp("s"))


def test_canaries(told: Told):
    """Whatever servers, handlers, clients and operators do with secrets, no log, journal, answer, event, metric, error or file
    of ours holds one, in none of the writings in which it may come back.
    """
    found = leaks(told.shown, told.more, told.passed)

    assert {} == found, json.dumps(found, indent=1)


def test_the_canaries_were_put_to_use(told: Told):
    """Each secret got where it belongs, and those that got it have told it: what is not seen anywhere was said."""
    sent = {
        *("header", "bearer", "query", "key", "client", "hook", "hook-header", "moved"),
        *("echo-query", "echo-client", "printed", "echo-key/+=", "post/+=", "basic/+=", "odd"),
        *(f"gave-{word}" for word in ("access", "session-1", "cookie", "event")),
    }

    forms = {one: writings(secret(one)) | writings(quote_plus(secret(one))) for one in sent}

    assert set() == {one for one in sent if not any(form in told.received for form in forms[one])}
    assert "client_assertion=eyj" in told.received
    assert {"everywhere": secret("content/+="), "neighbour": secret("operator/+=")} == {
        name: answer["password"] for name, answer in told.answers.items()
    }
    assert any(secret("echo-client") in one or secret("gave-access") in one for one in told.results)
    assert all(told.passed[place][0] in told.shown[place] for place in told.passed)
    assert told.shown["logs spelling, up"].count("***") >= 6 * 5, told.shown["logs spelling, up"]
    assert len(canaries.KNOWN_TO_ALL) == len(told.gossip)
    assert all('"message": "no ***"' in said for said in told.gossip), told.gossip
    assert told.shown["/v1/servers/gossip/logs?lines=200, gossip"].count("***") > 150
    assert all(told.shown[f"screen, {words}"].count("***") > 20 for words in WATCHED[:3])
    assert "gossip" in told.shown[f"screen, {WATCHED[3]}"]
    assert told.shown["/v1/events?follow=false&backlog=1000, gossip"].count('"entry":"***"') > 1
    assert told.shown["logs neighbour, up"].count("***") >= 2 * 6, told.shown["logs neighbour, up"]
    assert all(told.shown[f"explain {name}, up"].count("***") > 1 for name in (*SINGING, *FAILING_ALOUD))
    assert told.shown["what a handler was told"].count("***") > 10
    assert {"no_key", "no_word", "wrong_auth"} <= set(re.findall('"server": "([a-z_]+)"', told.shown["reload, broken"]))
    assert "/servers.d/broken.json:1" in told.shown["check {config}, up"]


def test_every_place_was_looked_at(told: Told):
    """Nothing that was to be looked at was empty, and no verb and no route of the control API was left out."""
    typed = {*UP, *DOWN, *OF_A_SERVER}
    looked = {path.partition("?")[0] for path in READ} | {
        f"/v1/servers/{{server}}{path.partition('?')[0]}" for path in READ_OF_A_SERVER
    }
    sources = Path(mcpvisor.daemon.__path__[0]).rglob("*.py")
    routes = {found for file in sources for found in re.findall(r'Route\("(/[^"]+)"', file.read_text())}

    assert [] == [place for place, text in told.shown.items() if len(text) < 3]
    assert set() == _verbs(build_parser()) - {word for words in typed for word in _prefixes(words)} - LEFT_OUT.keys()
    assert routes == looked | ACTED_ON
    assert told.journal_records > 200
    assert told.journal_files > 0
    assert "everywhere" in told.shown["log"]
    assert "[servers.everywhere]" in told.shown["config show --origin --all {config}, up"]
    assert all(f"handler {name}" in told.shown["journal"] for name in ("program", "python", "hook", "moved", "unfound"))
    assert {400, 401, 403, 404, 421} <= set(told.refusals)


GIVEN = {
    "argument": ({"argument", "option"}, set[str]()),
    "everywhere": (set[str](), {"kept", "fresh"}),
    "spelling": (set[str](), {canaries.QUOTED, "env/+=", "password", "part/+=", "given", "inherited"}),
    "handshake": (set[str](), {"handshake"}),
    "ending": (set[str](), {"exit"}),
    "echo_printed/headers": ({"printed"}, set[str]()),
    "printed/headers": ({"printed"}, set[str]()),
    "unprinted/headers": ({"unprinted"}, set[str]()),
    "handler:program": ({"exec-argument"}, {"exec"}),
    "handler__python": (set[str](), {"python-env"}),
}
"""The canaries in the arguments and in the environment of processes that were given some."""


def test_a_secret_is_in_the_processes_that_are_given_it_and_no_others(told: Told):
    """No canary is in the arguments or the environment of the daemon, of its helpers, or of servers and handlers that it is
    not of, not for a moment.
    """
    by = {one.whose: [other for other in told.processes if other.whose == one.whose] for one in told.processes}
    given = {
        whose: (set[str]().union(*(one.arguments for one in all_of)), set[str]().union(*(one.environ for one in all_of)))
        for whose, all_of in by.items()
    }
    shared = {"environ-proxy"}

    assert {"daemon", "helper", "neighbour", "sample", "handler:written", *GIVEN} <= given.keys()
    assert (set[str](), set[str]()) == given.pop("daemon") == given.pop("helper")
    assert {whose: (arguments, environ - shared) for whose, (arguments, environ) in given.items()} == {
        whose: GIVEN.get(whose, (set[str](), set[str]())) for whose in given
    }
    assert all(shared <= environ for _, environ in given.values())
    assert "0" == next(line for line in told.shown["limits"].splitlines() if line.startswith("Max core file size")).split()[4]


def test_files_of_ours_are_ours_alone(told: Told):
    """Nobody else reads what lies in the state folder, but for the token of the gateway, or a backup of it."""
    assert {name: mode for name, mode in told.modes.items() if mode & 0o077} == {}


def test_a_fault_of_ours_tells_no_secret(tmp_path: Path):
    """A daemon that fails by a fault of its own says by which one, with exit code 1, and without the secrets in it."""
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "mcpvisor.toml").write_text(
        f'[daemon]\nstate_dir = "{tmp_path}/state"\n[control]\nlisten = "unix:{tmp_path}/control.sock"\n'
        '[gateway]\nlisten = "127.0.0.1:0"\n[metrics]\nlisten = []\n'
        + puppet("a", canaries.SERVERS / "lite.py", env={"A": "${FAULT}"})
    )
    command = [sys.executable, "-m", "tests.e2e.crashing", "run", "--config", str(folder)]
    root = Path(__file__).parents[2]
    environ = {**os.environ, "FAULT": secret("fault/+=")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=root, timeout=60)

    assert 1 == done.returncode
    assert "LookupError: no place for ***" in done.stderr
    assert {} == leaks({"stderr": done.stderr, "stdout": done.stdout})


def _prefixes(words: str) -> list[str]:
    split = words.split()
    return [" ".join(split[:count]) for count in (1, 2)]


def _verbs(parser: argparse.ArgumentParser, before: tuple[str, ...] = ()) -> set[str]:
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    found = {" ".join(before)} if before and (not below or parser.get_default("run")) else set[str]()
    for action in below:
        for name, verb in action.choices.items():
            found |= _verbs(verb, (*before, name))
    return found


def test_specs_print_no_secret(tmp_path: Path):
    """What the configuration becomes prints none of them, however it is printed: each is of the type of secrets."""
    for folder in (tmp_path, tmp_path / "servers.d"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    kept = tmp_path / canaries.KEPT_SECRET
    given = tmp_path / "given"
    key = tmp_path / "key.pem"
    main = tmp_path / "mcpvisor.toml"
    servers = canaries.entries("http://127.0.0.1:1", tmp_path) + canaries.echoing("http://127.0.0.1:1", key) + canaries.faulty()
    main.write_text(
        f'[defaults]\nenv = {{ D = "{CANARY}-default" }}\n{servers}{canaries.handlers("http://127.0.0.1:1", tmp_path)}'
    )
    for file in (kept, given):
        file.write_text(f"{CANARY}-file")
    key.write_text(canaries.private_key())
    for file in (kept, given, key, main):
        file.chmod(0o600)

    loaded = load([tmp_path], {**os.environ, **canaries.environ(), "CREDENTIALS_DIRECTORY": str(tmp_path)})

    named = {name for one in loaded.loads for name in one.rejected}
    assert {*FAILING, *SINGING, "sample"} == set(loaded.specs)
    assert {"invalid", "misspelt", "env_list", "no_form"} <= named
    assert {"program", "hook", "moved", "unfound", "untrusted", "proxied", "python", "rules", "heard", "written"} == set(
        loaded.handlers
    )
    copied = [asdict(spec) for spec in (*loaded.specs.values(), *loaded.handlers.values())]
    for shown in (repr(loaded), pprint.pformat(loaded), repr(copied), json.dumps(copied, default=str)):
        assert {} == leaks({"printed": shown})


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

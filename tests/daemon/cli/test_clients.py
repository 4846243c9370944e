"""What `connect` writes for each client: a file that the program's own reader, and ours where it knows the form, can read."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.daemon.cli.clients import CLIENTS, Client, Gateway
from mcpvisor.daemon.cli.connecting import show_entry
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.config.load import load
from mcpvisor.supervisor.secret import reveal
from mcpvisor.supervisor.spec import HttpTarget, StdioLaunch

URL = "http://127.0.0.1:7433/mcp"
BY_URL = Gateway(name="mcpvisor", url=URL, token="canary")
BY_REFERENCE = Gateway(name="mcpvisor", url=URL)
BY_STDIO = Gateway(name="mcpvisor", command=("/opt/mcpvisor/bin/mcpvisor", "stdio"))
OPEN = Gateway(name="mcpvisor", url=URL, is_open=True)
IDS = [client.name for client in CLIENTS]


def written(client: Client, gateway: Gateway) -> dict[str, Any]:
    """The file as its program reads it."""
    text = client.write(client, gateway)
    return tomllib.loads(text) if client.name == "codex" else json.loads(text)


def entry(data: dict[str, Any]) -> dict[str, Any]:
    """The one entry of a file, wherever its program keeps entries."""
    roots = [data.get("mcpServers"), data.get("servers"), data.get("mcp_servers"), data.get("mcp", {}).get("servers")]
    [servers] = [root for root in roots if root]
    assert ["mcpvisor"] == list(servers)
    return servers["mcpvisor"]


@pytest.mark.parametrize("client", CLIENTS, ids=IDS)
def test_the_token_is_where_it_is_asked_for_alone(client: Client) -> None:
    """A file holds the token only where that is wanted, else a reference of its program's form, or none."""
    assert "canary" in json.dumps(written(client, BY_URL))
    assert "MCPVISOR_TOKEN" in json.dumps(written(client, BY_REFERENCE))
    assert not {"headers", "http_headers", "bearer_token_env_var"} & set(entry(written(client, OPEN)))
    for gateway in (BY_REFERENCE, BY_STDIO, OPEN):
        assert "canary" not in client.write(client, gateway)
    assert "Bearer" not in client.write(client, BY_STDIO)


REFERENCES = {
    "claude-code": ("headers", "Bearer ${MCPVISOR_TOKEN}"),
    "claude-desktop": ("headers", "Bearer ${MCPVISOR_TOKEN}"),
    "vscode": ("headers", "Bearer ${input:MCPVISOR_TOKEN}"),
    "cursor": ("headers", "Bearer ${env:MCPVISOR_TOKEN}"),
    "windsurf": ("headers", "Bearer ${env:MCPVISOR_TOKEN}"),
    "opencode": ("headers", "Bearer {env:MCPVISOR_TOKEN}"),
    "gemini": ("headers", "Bearer ${MCPVISOR_TOKEN}"),
    "kiro": ("headers", "Bearer ${MCPVISOR_TOKEN}"),
}


@pytest.mark.parametrize("client", CLIENTS, ids=IDS)
def test_each_client_has_its_own_words(client: Client) -> None:
    """The key of the address, the word for the transport and the form of a reference are those of the program."""
    by_url = entry(written(client, BY_REFERENCE))
    key = {"windsurf": "serverUrl", "gemini": "httpUrl"}.get(client.name, "url")
    kind = {"claude-code": "http", "vscode": "http", "opencode": "remote"}.get(client.name)

    assert (URL, kind) == (by_url[key], by_url.get("type"))
    if client.name == "codex":
        assert "MCPVISOR_TOKEN" == by_url["bearer_token_env_var"]
    else:
        table, text = REFERENCES[client.name]
        assert {"Authorization": text} == by_url[table]
    started = entry(written(client, BY_STDIO))
    assert ["/opt/mcpvisor/bin/mcpvisor", "stdio"] == (
        started["command"] if client.name == "opencode" else [started["command"], *started["args"]]
    )
    assert [{"promptString"}] == [
        {one["type"] for one in written(client, BY_REFERENCE).get("inputs", [{"type": "promptString"}])}
    ]


@pytest.mark.parametrize("gateway", [BY_URL, BY_STDIO], ids=["url", "stdio"])
@pytest.mark.parametrize("client", CLIENTS, ids=IDS)
def test_our_own_reader_takes_the_file(
    client: Client, gateway: Gateway, tmp_path: Path, known_forms: Callable[[str], bool]
) -> None:
    """A file of a form that the daemon reads comes out as the gateway's address with its token, or as the command."""
    if not known_forms(client.name):
        return
    tmp_path.chmod(0o755)
    file = tmp_path / ("config.toml" if client.name == "codex" else "servers.json")
    file.write_text(client.write(client, gateway))
    file.chmod(0o644)
    loaded = load([file], {"PATH": "/usr/bin:/bin", "HOME": "/root"})
    target = loaded.specs["mcpvisor"].target

    assert () == loaded.problems
    if gateway.url is None:
        assert isinstance(target, StdioLaunch)
        assert ("/opt/mcpvisor/bin/mcpvisor", ("stdio",)) == (target.command, target.args)
    else:
        assert isinstance(target, HttpTarget)
        assert (URL, "Bearer canary") == (reveal(target.url), reveal(dict(target.headers)["Authorization"]))


@pytest.fixture
def known_forms() -> Callable[[str], bool]:
    """Whether the daemon reads files of that client."""
    return lambda name: name not in {"opencode", "codex"}


@pytest.mark.parametrize("name", ["x]\n[mcp_servers.evil", "x\x9b2J", "a.b", "", "\u0430"])
def test_no_name_says_more_than_a_name(name: str) -> None:
    """What no server can be called is refused before a daemon is asked: in a client's file it would be more than a key."""
    arguments = argparse.Namespace(client="codex", server=name, socket="/no/socket")
    with pytest.raises(CliError, match="is no name of a server") as refused:
        show_entry(arguments)
    assert (Exit.USAGE, True) == (refused.value.exit, str(refused.value).isprintable())

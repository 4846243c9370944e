"""Owns the verb `connect`: what a client's file has to say to use the gateway, and who may read the token for it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.clients import CLIENTS, VARIABLE, Client, Gateway
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.output import clean_line, say, say_json, tell
from mcpvisor.daemon.cli.screen import screen_of
from mcpvisor.daemon.cli.table import table
from mcpvisor.daemon.cli.token_file import read_token, readers_of
from mcpvisor.daemon.cli.verb import Verbs, add_verb
from mcpvisor.supervisor.cleaning import escape_json

_HEADER: Final = ("CLIENT", "NAME", "BY", "FILE")
_ANYWHERE: Final = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}


_EXAMPLES: Final = ("mcpvisor connect", "mcpvisor connect claude-code", "mcpvisor connect cursor --server github")


def register(verbs: Verbs) -> None:
    """Add the verb of this family."""
    connect = add_verb(
        verbs, "connect", show_entry, "print what a client's file has to say to use the gateway", examples=_EXAMPLES
    )
    connect.add_argument("client", nargs="?", metavar="CLIENT", help="such as claude-code; without it, those that are known")
    connect.add_argument("--server", metavar="NAME", help="one server, under its own names (default: all of them)")
    connect.add_argument("--stdio", action="store_true", help="by the command `mcpvisor stdio`, which needs no token")
    connect.add_argument("--token", action="store_true", help="write the token itself, not a reference to it")


def show_entry(arguments: argparse.Namespace) -> int:
    """`connect`: 0 with the entry on stdout, and where it belongs on stderr; 77 where `--token` may not be read."""
    client = _client(arguments.client) if arguments.client is not None else None
    _check_name(arguments.server)
    facts = ControlClient(arguments.socket).get("/v1/version")
    url = _url(facts["addresses"].get("gateway", ()), arguments.server)
    if client is None:
        return _show_clients(facts, url, arguments)
    by_url = url is not None and client.speaks_http and not arguments.stdio
    token_file = Path(facts["gateway_token"]) if facts["gateway_token"] is not None and by_url else None
    gateway = Gateway(
        name=arguments.server or "mcpvisor",
        url=url if by_url else None,
        command=None if by_url else _command(arguments),
        token=read_token(token_file) if token_file is not None and arguments.token else "",
        is_open=facts["gateway_token"] is None,
    )
    text = client.write(client, gateway)
    if arguments.json:
        say_json(_view(client, gateway, token_file, text))
        return int(Exit.DONE)
    say(escape_json(text))
    tell(f"for {client.title}: {client.file}{f'; it {client.note}' if client.note else ''}")
    for line in _about_token(token_file, client, has_token=bool(gateway.token)):
        tell(line)
    return int(Exit.DONE)


def _client(name: str) -> Client:
    found = next((client for client in CLIENTS if client.name == name), None)
    if found is None:
        raise CliError(Exit.USAGE, f"no client is known as {name!r}: {', '.join(client.name for client in CLIENTS)}")
    return found


def _check_name(server: str | None) -> None:
    """Refuse what no server can be called: in a client's file it could say more than a name does."""
    from mcpvisor.daemon.config.names import EXPECTED, is_name

    if server is not None and not is_name(server):
        raise CliError(Exit.USAGE, f"--server: {clean_line(repr(server))} is no name of a server: {EXPECTED}")


def _show_clients(facts: Mapping[str, Any], url: str | None, arguments: argparse.Namespace) -> int:
    if arguments.json:
        clients = [{"name": one.name, "title": one.title, "file": one.file, "http": one.speaks_http} for one in CLIENTS]
        say_json({"clients": clients, "url": url, "token_file": facts["gateway_token"]})
        return int(Exit.DONE)
    rows = [(one.name, one.title, "url" if one.speaks_http and url else "mcpvisor stdio", one.file) for one in CLIENTS]
    for line in table(_HEADER, rows, screen_of(arguments).width):
        say(line)
    tell(f"the gateway is at {url or 'unix sockets only: clients use `mcpvisor stdio`'}; `mcpvisor connect CLIENT` says more")
    return int(Exit.DONE)


def _url(addresses: Sequence[str], server: str | None) -> str | None:
    """The URL of the first TCP listener; None where there is none."""
    found = next((one for one in addresses if not one.startswith("unix:")), None)
    if found is None:
        return None
    for everywhere, here in _ANYWHERE.items():
        found = found.replace(everywhere, here)
    return f"{found}/mcp" + (f"/{quote(server, safe='')}" if server is not None else "")


def _command(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The command line of the shim, which a client starts with another PATH and folder than ours."""
    script = Path(sys.argv[0])
    program = (
        str(script.absolute()) if script.name == "mcpvisor" and script.exists() else shutil.which("mcpvisor") or "mcpvisor"
    )
    named = arguments.socket or os.environ.get("MCPVISOR_SOCKET")
    socket = ("--socket", named) if named else ()
    return (program, "stdio", *socket, *((arguments.server,) if arguments.server is not None else ()))


def _view(client: Client, gateway: Gateway, token_file: Path | None, text: str) -> dict[str, Any]:
    """What `connect --json` prints; fields are added, never changed."""
    return {
        "client": client.name,
        "file": client.file,
        "url": gateway.url,
        "command": list(gateway.command) if gateway.command is not None else None,
        "token_file": str(token_file) if token_file is not None else None,
        "token_variable": VARIABLE if token_file is not None and not gateway.token else None,
        "text": text,
    }


def _about_token(file: Path | None, client: Client, *, has_token: bool) -> list[str]:
    """What a person has to know of the token."""
    if file is None:
        return []
    if has_token:
        return ["the token is in it: whoever reads that file may use every tool; close it to others (chmod 600)"]
    where = f"the token is in {file}" if os.access(file, os.R_OK) else f"the token is in {file}, which you may not read"
    how = "" if "input" in client.reference else f"; have it in the client's environment as {VARIABLE}, or say --token"
    return [clean_line(f"{where}{readers_of(file)}{how}")]

"""Owns where the gateway is for a client on this machine: its address, its path, and what is presented there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from mcpvisor.daemon.cli.client import ControlClient
from mcpvisor.daemon.cli.exits import CliError, Exit
from mcpvisor.daemon.cli.token_file import read_token
from mcpvisor.supervisor.errors import SpecError
from mcpvisor.supervisor.transports.address import Address, parse_address

UNIX_PREFIX: Final = "unix:"

_MCP_PATH: Final = "/mcp"
_ANYWHERE: Final = {"http://0.0.0.0:": "http://127.0.0.1:", "http://[::]:": "http://[::1]:"}
"""A listener on every address of the machine is reached on its own one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One endpoint of the gateway: a unix socket's path or an address, the path on it, and the headers of each request."""

    where: Path | Address
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        return f"{UNIX_PREFIX}{self.where}" if isinstance(self.where, Path) else str(self.where.origin)


FindDoor = Callable[[], Door]
"""Says where the gateway is now; blocks for a moment, and raises CliError."""


def named_door(gateway: str, server: str | None, token_file: Path | None) -> Door:
    """The door at `unix:/path` or at a URL, whose path is `/mcp` where it has none. Raises CliError."""
    if gateway.startswith(UNIX_PREFIX):
        return Door(where=Path(gateway.removeprefix(UNIX_PREFIX)), path=_path(_MCP_PATH, server), headers=_local())
    try:
        address = parse_address(gateway)
    except SpecError as error:
        raise CliError(Exit.USAGE, f"--gateway: {error}; or give unix:/path") from error
    base = urlsplit(gateway).path.rstrip("/") or _MCP_PATH
    token = read_token(token_file) if token_file is not None else None
    return Door(where=address, path=_path(base, server), headers={"host": address.origin.authority, **_bearer(token)})


def found_door(control_socket: str | None, server: str | None, token_file: Path | None) -> Door:
    """The door that the daemon itself names on its control socket; a unix socket first. Raises CliError."""
    facts = ControlClient(control_socket).get("/v1/version")
    address = _best(facts["addresses"].get("gateway", ()))
    path = _path(_MCP_PATH, server)
    if address.startswith(UNIX_PREFIX):
        return Door(where=Path(address.removeprefix(UNIX_PREFIX)), path=path, headers=_local())
    named = facts.get("gateway_token")
    if token_file is None and named is not None:
        token_file = Path(named)
    token = read_token(token_file) if token_file is not None else None
    return Door(where=parse_address(address), path=path, headers={**_local(), **_bearer(token)})


def _best(addresses: Sequence[str]) -> str:
    """The listener to use: a unix socket that we may open needs no token."""
    sockets = [one for one in addresses if one.startswith(UNIX_PREFIX)]
    open_to_us = [one for one in sockets if os.access(one.removeprefix(UNIX_PREFIX), os.W_OK)]
    best = next(iter([*open_to_us, *(one for one in addresses if one not in sockets), *sockets]), None)
    if best is None:
        raise CliError(Exit.NO_ANSWER, "the daemon has no gateway")
    for everywhere, here in _ANYWHERE.items():
        best = here + best.removeprefix(everywhere) if best.startswith(everywhere) else best
    return best


def _path(base: str, server: str | None) -> str:
    return base if server is None else f"{base}/{quote(server, safe='')}"


def _local() -> dict[str, str]:
    """A name under which every gateway serves its own machine, whatever address it listens on."""
    return {"host": "localhost"}


def _bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def refusal(door: Door, server: str | None, status: int, body: Any) -> CliError | None:
    """What the first answer of an endpoint says to one who has no session; None where it can be spoken to."""
    said = body.get("error") if isinstance(body, dict) else None
    words = said.get("message") if isinstance(said, dict) else said
    text = str(words) if words else f"HTTP status {status}"
    match status:
        case 400:
            return None  # "Missing session ID": what a gateway says to a request that begins nothing
        case 404 if server is not None:
            return CliError(Exit.NO, f"no server is called {server!r} at the gateway {door}: see `mcpvisor status`")
        case 401 | 403:
            return CliError(Exit.PERMISSION, f"the gateway {door} refused us: {text}")
        case _:
            return CliError(Exit.NO_ANSWER, f"the gateway {door} cannot be used: {text}")

"""Owns which MCP clients are known, the file that each keeps its servers in, and how it writes an entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

VARIABLE: Final = "MCPVISOR_TOKEN"
"""The variable of the client's environment that is to hold the gateway's token."""

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What a client is to use: a URL, or the command of `mcpvisor stdio`; one of the two is None.

    `token` is what stands behind `Bearer`: the token itself or, empty, a reference in the client's own form. `is_open` is
    whether no token is asked for.
    """

    name: str
    url: str | None = None
    command: tuple[str, ...] | None = None
    token: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client; `reference` is how its file names a variable of its environment, `write` makes the whole file."""

    name: str
    title: str
    file: str
    write: Callable[[Client, Gateway], str]
    reference: str = "${%s}"
    speaks_http: bool = True
    note: str = ""

    def authorisation(self, gateway: Gateway) -> str:
        """The value of the header that carries the token."""
        return f"Bearer {gateway.token or self.reference % VARIABLE}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _started(gateway: Gateway) -> Entry:
    program, *arguments = gateway.command or ("mcpvisor", "stdio")
    return {"command": program, "args": arguments}


def _reached(client: Client, gateway: Gateway, key: str = "url", **more: Any) -> Entry:
    headers = {} if gateway.is_open else {"headers": {"Authorization": client.authorisation(gateway)}}
    return {**more, key: gateway.url, **headers}


def _servers(kind: str | None, key: str = "url") -> Callable[[Client, Gateway], str]:
    """`mcpServers`, as most have it; `kind` is the word for HTTP where one is wanted, `key` that of the address."""

    def write(client: Client, gateway: Gateway) -> str:
        more = {"type": kind} if kind else {}
        entry = _started(gateway) if gateway.url is None else _reached(client, gateway, key, **more)
        return _json({"mcpServers": {gateway.name: entry}})

    return write


def _vscode(client: Client, gateway: Gateway) -> str:
    """`servers`; the token is asked for once and kept by the editor."""
    if gateway.url is None:
        return _json({"servers": {gateway.name: {"type": "stdio", **_started(gateway)}}})
    servers = {gateway.name: _reached(client, gateway, type="http")}
    if gateway.token or gateway.is_open:
        return _json({"servers": servers})
    asked = {"type": "promptString", "id": VARIABLE, "description": "Token of the mcpvisor gateway", "password": True}
    return _json({"inputs": [asked], "servers": servers})


def _opencode(client: Client, gateway: Gateway) -> str:
    """`mcp.servers`; the program and its arguments are one list."""
    entry: Entry = {"type": "local", "command": list(gateway.command or ("mcpvisor", "stdio"))}
    if gateway.url is not None:
        entry = _reached(client, gateway, type="remote")
    return _json({"$schema": "https://opencode.ai/config.json", "mcp": {"servers": {gateway.name: entry}}})


def _codex(client: Client, gateway: Gateway) -> str:
    """TOML; the token comes from a variable that is named, or stands in a header."""
    lines = [f"[mcp_servers.{gateway.name}]"]
    if gateway.url is None:
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in _started(gateway).items()]
        return "\n".join(lines)
    lines.append(f"url = {json.dumps(gateway.url)}")
    if gateway.token:
        lines.append(f"http_headers = {{ Authorization = {json.dumps(client.authorisation(gateway))} }}")
    elif not gateway.is_open:
        lines.append(f"bearer_token_env_var = {json.dumps(VARIABLE)}")
    return "\n".join(lines)


_DESKTOP: Final = "~/.config/Claude/claude_desktop_config.json (macOS: ~/Library/Application Support/Claude/)"

CLIENTS: Final[Sequence[Client]] = (
    Client(name="claude-code", title="Claude Code", file=".mcp.json of the project", write=_servers("http")),
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        file=_DESKTOP,
        write=_servers(None),
        speaks_http=False,
        note="starts programs only, so that it has to run on the machine of the daemon",
    ),
    Client(
        name="vscode",
        title="VS Code",
        file=".vscode/mcp.json of the project",
        write=_vscode,
        reference="${input:%s}",
        note="asks for the token once, and keeps it",
    ),
    Client(name="cursor", title="Cursor", file="~/.cursor/mcp.json", write=_servers(None), reference="${env:%s}"),
    Client(
        name="windsurf",
        title="Windsurf",
        file="~/.codeium/windsurf/mcp_config.json",
        write=_servers(None, "serverUrl"),
        reference="${env:%s}",
    ),
    Client(name="opencode", title="OpenCode", file="~/.config/opencode/opencode.json", write=_opencode, reference="{env:%s}"),
    Client(name="codex", title="Codex", file="~/.codex/config.toml", write=_codex),
    Client(name="gemini", title="Gemini CLI", file="~/.gemini/settings.json", write=_servers(None, "httpUrl")),
    Client(name="kiro", title="Kiro", file="~/.kiro/settings/mcp.json", write=_servers(None)),
)

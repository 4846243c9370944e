"""Owns whose form a file has: ours or another program's, where in it the servers are, and which folder its program works in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.daemon.config.settings import SECTIONS


class Dialect(Enum):
    """Whose words a file uses; the value is how people are told."""

    MCP_SERVERS = "mcpServers, as Claude, Cursor, Windsurf, Kiro and others have it"
    VS_CODE = "servers, as VS Code has it"
    OPENCODE = "mcp, as OpenCode has it"
    CODEX = "mcp_servers, as Codex has it"
    BARE = "servers without a table around them"


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one file of another program: its dialect, and the path of the table that holds the servers."""

    dialect: Dialect
    root: KeyPath


ROOTS: Final = {"mcpServers": Dialect.MCP_SERVERS, "servers": Dialect.VS_CODE, "mcp_servers": Dialect.CODEX}
"""The keys under which servers stand at the top of a file; `mcp` has them too, or a table of them."""

_SAID: Final = '"mcpServers" (Claude, Cursor, Windsurf, Kiro and others), "servers" (VS Code) or "mcp" (OpenCode)'

OUR_TABLES: Final = (*SECTIONS, "servers", "handlers", "routes", "routing", "defaults")

_COMMENT = re.compile(r"//.*|#.*|[$_].*", re.DOTALL)
_SAYS_WHAT: Final = ("command", "cmd", "url", "serverUrl", "httpUrl", "uri")

_FOLDERS_OF_PROJECTS: Final = frozenset({".vscode", ".cursor", ".roo", ".codex", ".github"})
"""Folders in the root of a project that hold a file of servers; the program then works in that root."""


def is_comment(key: str) -> bool:
    """Whether a key of somebody's JSON is a remark, or speaks of the file itself."""
    return _COMMENT.fullmatch(key) is not None


def is_ours(document: Document) -> bool:
    """Whether a file is in our own form: TOML, but for that of Codex, which has none of our tables."""
    data = document.data
    return document.file.suffix == ".toml" and ("mcp_servers" not in data or any(key in data for key in OUR_TABLES))


def form_of(document: Document) -> Form | None:
    """The form of another program's file; None for one that says nothing, which is "no servers".

    Raises ConfigError where it says something, and no servers can be found in it.
    """
    data = document.data
    roots = [key for key in ROOTS if key in data]
    if len(roots) > 1:
        raise ConfigError(document.problem((roots[1],), f"stands beside {roots[0]}", expected="one of the two"))
    if roots:
        return Form(ROOTS[roots[0]], (roots[0],))
    if "mcp" in data:
        return _within_mcp(data["mcp"])
    keys = [key for key in data if not is_comment(key)]
    if not keys:
        return None
    if all(isinstance(data[key], dict) for key in keys) and any(_is_entry(data[key]) for key in keys):
        return Form(Dialect.BARE, ())
    near = next((near for key in keys if (near := document.near(key, ["mcp", *reversed(ROOTS)]))), "")
    raise ConfigError(document.problem((keys[0],), "the file has no table of servers", expected=_SAID, near=near))


def _within_mcp(table: Any) -> Form:
    """OpenCode has its servers in `mcp`, or one level deeper; VS Code's settings have them there too, beside `inputs`."""
    inner = table.get("servers") if isinstance(table, dict) else None
    if isinstance(inner, dict) and not _is_entry(inner):
        return Form(Dialect.VS_CODE if "inputs" in table else Dialect.OPENCODE, ("mcp", "servers"))
    return Form(Dialect.OPENCODE, ("mcp",))


def _is_entry(value: Mapping[str, Any]) -> bool:
    """Whether a table says which server it is."""
    return any(isinstance(value.get(key), str | list) for key in _SAYS_WHAT)


def workspace_of(file: Path, home: str) -> Path | None:
    """The folder that a program works in when it reads `file`, where the place of the file tells; else None.

    A file below the home folder is of a user, not of a project.
    """
    absolute = file.absolute()
    folder = absolute.parent
    if folder.name == "settings" and folder.parent.name == ".kiro":
        root = folder.parent.parent
    elif folder.name in _FOLDERS_OF_PROJECTS:
        root = folder.parent
    elif absolute.name == ".mcp.json":
        root = folder
    else:
        return None
    return None if home and root == Path(home) else root

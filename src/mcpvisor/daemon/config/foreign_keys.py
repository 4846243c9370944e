"""Owns the keys of other programs' entries: one table of which of ours each one means, or why it means nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mcpvisor.daemon.config import foreign_values as values
from mcpvisor.daemon.config.dialects import Dialect
from mcpvisor.daemon.config.foreign_values import Reading


@dataclass(frozen=True, slots=True)
class Means:
    """A key of another program that has a meaning here: `read` makes our keys and values of what is written."""

    read: Reading


@dataclass(frozen=True, slots=True)
class Nothing:
    """A key of another program that is known, and has no use here."""

    why: str


_CLIENTS = Nothing("approvals are the client's; not used here")
_SIGN_IN = Nothing("nobody can sign in at a daemon; use headers, or an entry in TOML with auth")
_TASKS = Nothing("how long a task may take is call_max here")

_EVERYBODY: Final[Mapping[str, Means | Nothing]] = {
    # what is run or called
    "cmd": Means(values.renamed("command")),
    "serverUrl": Means(values.renamed("url")),
    "httpUrl": Means(values.streamable_url),
    "uri": Means(values.renamed("url")),
    "transportType": Means(values.renamed("type")),
    "environment": Means(values.renamed("env")),
    "envs": Means(values.renamed("env")),
    "http_headers": Means(values.renamed("headers")),
    "auth": Means(values.credentials),
    # whether it runs
    "disabled": Means(values.inverted("enabled")),
    "isActive": Means(values.renamed("enabled")),
    # how long
    "timeout": Means(values.limit("call_timeout")),
    "tool_timeout_sec": Means(values.limit("call_timeout")),
    "startupTimeout": Means(values.limit("start_timeout")),
    "startup_timeout_sec": Means(values.limit("start_timeout")),
    "startup_timeout_ms": Means(values.milliseconds("start_timeout")),
    # what is shown
    "tools": Means(values.tools),
    "includeTools": Means(values.only_tools),
    "enabled_tools": Means(values.only_tools),
    "excludeTools": Means(values.renamed("tools", "deny")),
    "disabledTools": Means(values.renamed("tools", "deny")),
    "disabled_tools": Means(values.renamed("tools", "deny")),
    # how it is kept running
    "restartPolicy": Means(values.restart_policy),
    "lifecycle": Means(values.lifecycle),
    # known, and of no use
    "envFile": Nothing("the file is not read; put its variables into env"),
    "env_keys": Nothing("they are kept where only that program finds them; put them into env"),
    "autoApprove": _CLIENTS,
    "alwaysAllow": _CLIENTS,
    "trust": _CLIENTS,
    "default_tools_approval_mode": _CLIENTS,
    "oauth": _SIGN_IN,
    "oauth_resource": _SIGN_IN,
    "scopes": _SIGN_IN,
    "headersHelper": Nothing("not run; write it as header_command into an entry in TOML"),
    "taskConfig": _TASKS,
    "watchPaths": Nothing("files of a server are not watched; restart it by hand"),
    "dev": Nothing("files of a server are not watched; restart it by hand"),
    "sandbox": Nothing("servers run as the daemon's user, without a sandbox of their own"),
    "sandboxEnabled": Nothing("servers run as the daemon's user, without a sandbox of their own"),
    "supports_parallel_tool_calls": Nothing("calls run side by side; concurrency = 1 has them one after another"),
    "experimental_environment": Nothing("servers run where the daemon runs"),
}

_OF_ONE: Final[Mapping[Dialect, Mapping[str, Means | Nothing]]] = {
    Dialect.VS_CODE: {"type": Means(values.http_or_sse)},
    Dialect.OPENCODE: {"timeout": Means(values.milliseconds("start_timeout"))},
    Dialect.CODEX: {
        "env_vars": Means(values.inherited),
        "bearer_token": Means(values.bearer),
        "bearer_token_env_var": Means(values.bearer_variable),
        "env_http_headers": Means(values.header_variables),
        "tools": _CLIENTS,
    },
}
"""Keys that mean in one program what they mean in no other."""


def meaning_of_key(key: str, dialect: Dialect) -> Means | Nothing | None:
    """What a key of another program means; None where it means what ours of that name does, or is not known."""
    own = _OF_ONE.get(dialect, {})
    return own[key] if key in own else _EVERYBODY.get(key)

"""Owns the keys of other programs' entries: one table of which of ours each one means, or why it means nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mcpvisor.daemon.config import foreign_values as values
from mcpvisor.daemon.config.dialects import Dialect
from mcpvisor.daemon.config.entry_scope import Item, Scope
from mcpvisor.daemon.config.foreign_values import Reading, Values


@dataclass(frozen=True, slots=True)
class Means:
    """A key of another program that means one of ours: `ours`, with a dot before a key within a table.

    `reading` makes our keys and values of what is written; without it the value is the same.
    """

    ours: str
    reading: Reading | None = None

    def read(self, item: Item, scope: Scope) -> Values:
        """What is written, under our keys."""
        return (self.reading or values.renamed(*self.ours.split(".")))(item, scope)


@dataclass(frozen=True, slots=True)
class Nothing:
    """A key of another program that is known, and has no use here."""

    why: str


_CLIENTS = Nothing("approvals are the client's; not used here")
_SIGN_IN = Nothing("nobody can sign in at a daemon; use headers, or an entry in TOML with auth")
_TASKS = Nothing("how long a task may take is call_max here")

EVERYBODY: Final[Mapping[str, Means | Nothing]] = {
    # what is run or called
    "cmd": Means("command"),
    "serverUrl": Means("url"),
    "httpUrl": Means("url", values.streamable_url),
    "uri": Means("url"),
    "transportType": Means("type"),
    "environment": Means("env"),
    "envs": Means("env"),
    "http_headers": Means("headers"),
    "auth": Means("auth", values.credentials),
    # whether it runs
    "disabled": Means("enabled", values.inverted("enabled")),
    "isActive": Means("enabled"),
    # how long
    "timeout": Means("call_timeout", values.limit("call_timeout")),
    "tool_timeout_sec": Means("call_timeout", values.limit("call_timeout")),
    "startupTimeout": Means("start_timeout", values.limit("start_timeout")),
    "startup_timeout_sec": Means("start_timeout", values.limit("start_timeout")),
    "startup_timeout_ms": Means("start_timeout", values.milliseconds("start_timeout")),
    # what is shown
    "tools": Means("tools", values.tools),
    "includeTools": Means("tools.allow", values.only_tools),
    "enabled_tools": Means("tools.allow", values.only_tools),
    "excludeTools": Means("tools.deny"),
    "disabledTools": Means("tools.deny"),
    "disabled_tools": Means("tools.deny"),
    # how it is kept running
    "restartPolicy": Means("restart", values.restart_policy),
    "lifecycle": Means("era", values.lifecycle),
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
"""Keys that mean the same whoever writes them."""

OF_ONE: Final[Mapping[Dialect, Mapping[str, Means | Nothing]]] = {
    Dialect.VS_CODE: {"type": Means("type", values.http_or_sse)},
    Dialect.OPENCODE: {"timeout": Means("start_timeout", values.milliseconds("start_timeout"))},
    Dialect.CODEX: {
        "env_vars": Means("inherit_env", values.inherited),
        "bearer_token": Means("auth", values.bearer),
        "bearer_token_env_var": Means("auth", values.bearer_variable),
        "env_http_headers": Means("headers", values.header_variables),
        "tools": _CLIENTS,
    },
}
"""Keys that mean in one program what they mean in no other."""


def meaning_of_key(key: str, dialect: Dialect) -> Means | Nothing | None:
    """What a key of another program means; None where it means what ours of that name does, or is not known."""
    own = OF_ONE.get(dialect, {})
    return own[key] if key in own else EVERYBODY.get(key)

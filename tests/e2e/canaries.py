"""Owns the places where a secret can be written, each with a canary of its own, and the servers and handlers that sing.

A new key of the configuration has to be named here: in `SECRET_KEYS`, with a canary in `entries` or `handlers`, or in
`PLAIN_KEYS`, where nobody writes a secret.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from tests.e2e.running import entry, puppet, toml

SERVERS = Path(__file__).parents[1] / "servers"
CANARY: Final = "canary-7f3a9c51e2"
"""Begins every secret; what follows tells where it was written."""

SECRET_KEYS: Final = frozenset(
    {
        *("args", "command", "env.*", "headers.*", "url", "header_command"),
        *("auth.token", "auth.key", "auth.client_secret", "auth.private_key"),
        *("exec:command", "exec:env.*", "webhook:headers.*", "webhook:proxy", "webhook:secret", "webhook:url"),
        *("python:arguments.*", "python:env.*", "policy:rules.content.*"),
    }
)
"""Keys of servers, and after a colon those of a type of handlers; `*` is any key of a table."""

PLAIN_KEYS: Final = frozenset(
    {
        *("allow", "call_max", "call_timeout", "concurrency", "cwd", "drain", "enabled", "era", "inherit_env", "max_message"),
        *("overlap", "prefix", "queue", "replay_on_session_loss", "required", "rollback", "sharing", "start_timeout"),
        *("transport", "trust_hints", "type", "wait_ready", "auth.audience", "auth.client_auth", "auth.client_id"),
        *("auth.header", "auth.issuer", "auth.key_id", "auth.query", "auth.resource", "auth.scope", "auth.token_url"),
        *("auth.type", "limits.cpu", "limits.files", "limits.memory", "limits.tasks", "probe.failures", "probe.interval"),
        *("probe.slow", "probe.timeout", "restart.crash_loop_retry", "restart.delay", "restart.intensity"),
        *("restart.max_delay", "restart.max_memory", "restart.policy", "restart.prevent_codes", "restart.stable_after"),
        *("restart.success_codes", "stop.stdin", "stop.term", "subscriptions", "subscriptions.force", "subscriptions.poll"),
        *("subscriptions.uri", "tls.ca", "tls.ca_mode", "tls.client_cert", "tls.client_key", "tools.allow", "tools.deny"),
        *("tools.describe", "tools.rename"),
        *(
            f"{kind}:{key}"
            for kind in ("exec", "log", "policy", "python", "webhook")
            for key in ("circuit.failures", "circuit.open_for", "concurrency", "deadline", "queue", "type")
        ),
        *(
            f"{kind}:retry.{key}"
            for kind in ("exec", "log", "policy", "python", "webhook")
            for key in ("attempts", "delay", "max_delay")
        ),
        *("exec:cwd", "exec:inherit_env", "log:level", "policy:rules", "policy:rules.action", "policy:rules.asks"),
        *("policy:rules.defaults", "policy:rules.mode", "policy:rules.requires", "policy:rules.server", "policy:rules.tool"),
        *("python:cwd", "python:entry_point", "python:inherit_env", "python:limits.cpu", "python:limits.files"),
        *("python:limits.memory", "python:limits.tasks", "python:object", "python:path", "webhook:allow_http"),
        *("webhook:connect_timeout", "webhook:tls.ca", "webhook:tls.ca_mode", "webhook:tls.client_cert"),
        "webhook:tls.client_key",
    }
)

FAILING: Final = (
    *("handshake", "ending", "command", "unauthorized", "broken", "elsewhere", "refused", "nobody", "keyed", "in_query"),
    *("client", "printed", "unprinted", "pem"),
)
"""Servers that never come up, and say why."""
SINGING: Final = ("everywhere", "argument", "neighbour", "spelling")
"""Servers that come up, and tell what they know."""

KEPT_SECRET: Final = "kept"
"""The file of a secret that is rotated; its text begins with the canary."""


def environ() -> dict[str, str]:
    """Variables of the daemon that hold secrets."""
    return {
        "ARGUMENT": f"{CANARY}-argument",
        "INHERITED_TOKEN": f"{CANARY}-inherited",
        "PART": f"{CANARY}-part/+=",
        "PRINTED": f"{CANARY}-printed",
    }


def entries(url: str, folder: Path) -> str:
    """Servers with a secret in each place that can hold one; `url` is where `leaky.py http` listens."""
    leaky = SERVERS / "leaky.py"
    program = [sys.executable, str(leaky)]
    headers = {"x-key": f"{CANARY}-header"}
    bearer = {"type": "bearer", "token": f"{CANARY}-bearer"}
    client = {"type": "client_credentials", "client_id": "c", "token_url": f"{url}/unauthorized"}
    key = folder / "not-a-key.pem"
    key.write_text(f"{CANARY}-pem\n")
    key.chmod(0o600)

    def web(name: str, path: str = "refused", **keys: Any) -> str:
        return entry(name, url=f"{url}/{path}", era="legacy", **keys)

    return "".join(
        [
            puppet(
                "everywhere", leaky, "everywhere", env={"SECRET": f"${{file:{folder}/{KEPT_SECRET}}}"}, probe={"interval": "1s"}
            ),
            puppet("argument", leaky, "everywhere", "${ARGUMENT}", "--api-key", f"{CANARY}-option"),
            puppet("neighbour", leaky, "everywhere", f"@{folder}/{KEPT_SECRET}"),
            puppet(
                "spelling",
                leaky,
                "environ",
                env={
                    "WRITTEN": f"{CANARY}-env/+=",
                    "URL": f"https://me:{CANARY}-password@db.test/x",
                    "SENTENCE": "for me: ${PART}, and nobody else",
                    "GIVEN": "${cred:given}",
                },
                inherit_env=["INHERITED_TOKEN"],
            ),
            puppet("handshake", leaky, "initialize", env={"SECRET": f"{CANARY}-handshake"}, era="legacy"),
            puppet("ending", leaky, "exit", env={"SECRET": f"{CANARY}-exit"}),
            entry("command", "/no/such/${ARGUMENT}"),
            *(
                web(path, f"{path}?key={CANARY}-query", headers=headers, auth=bearer)
                for path in ("unauthorized", "broken", "elsewhere", "refused")
            ),
            entry("nobody", url=f"http://127.0.0.1:9/mcp?token={CANARY}-nobody", headers=headers),
            web("keyed", auth={"type": "api_key", "header": "X-Mine", "key": f"{CANARY}-key"}),
            web("in_query", auth={"type": "api_key", "query": "k", "key": f"{CANARY}-query-key"}),
            web("client", auth={**client, "client_secret": f"{CANARY}-client"}),
            web("printed", header_command=[*program, "headers", "${PRINTED}"]),
            web("unprinted", header_command=[*program, "exit", "--token", f"{CANARY}-unprinted"]),
            entry("pem", url="https://127.0.0.1:9/", tls={"client_cert": str(key), "client_key": str(key)}),
            puppet("sample", SERVERS / "lite.py"),
        ]
    )


def faulty() -> str:
    """Entries that are refused, with a secret at the wrong place or in the wrong form."""
    client = {"type": "client_credentials", "client_id": "c", "issuer": "https://127.0.0.1/"}
    return "".join(
        [
            entry("invalid", url=f"http://user:{CANARY}-password@127.0.0.1/"),
            entry("misspelt", url="http://127.0.0.1/", headers={"x": f"{CANARY}\n-broken"}),
            entry("header_text", url="http://127.0.0.1/", headers=f"{CANARY}-text"),
            entry("env_list", "true", env=[f"{CANARY}-list"]),
            entry("wrong_key", "true", tokn=f"{CANARY}-unknown"),
            entry("wrong_auth", url="http://127.0.0.1/", auth=f"{CANARY}-auth"),
            entry("no_key", url="http://127.0.0.1/", auth={**client, "private_key": "${ARGUMENT}"}),
            entry("no_word", "true", allow=["${ARGUMENT}"], era="${ARGUMENT}"),
            entry("no_form", "true", env={"A": f"${{NONE|{CANARY}}}", "B": f"${{B:+{CANARY}}}"}),
        ]
    )


def broken_files() -> dict[str, str]:
    """Drop-ins that cannot be read, with a secret next to the fault."""
    return {
        "broken.json": '{"mcpServers": {"a": {"command": "x", "env": {"K": "' + CANARY + '-json" "L": 1}}}}',
        "broken.toml": f'[servers.b]\ncommand = "x"\nenv = {{ K = "{CANARY}-toml\n',
        "twice.json": '{"mcpServers": {"a": {"command": "x", "env": {"K": "' + CANARY + '-1", "K": "' + CANARY + '-2"}}}}',
    }


def handlers(url: str, folder: Path) -> str:
    """Handlers that fail with their secrets, and one that answers with them."""
    program = [sys.executable, str(SERVERS / "leaky.py")]
    module = folder / "singing.py"
    module.write_text(
        "import os, sys\n"
        "class Sings:\n"
        "    def __init__(self, token): self.token = token\n"
        "    async def deliver(self, event):\n"
        "        print(self.token, os.environ['SECRET'], file=sys.stderr)\n"
        "        raise ValueError(self.token + os.environ['SECRET'])\n"
    )
    module.chmod(0o644)
    retry = {"attempts": 1}
    signing = f"{CANARY}-signing-0123456789abcdef"
    hook = {"type": "webhook", "retry": retry, "secret": signing}
    tables: dict[str, dict[str, Any]] = {
        "program": {
            "type": "exec",
            "retry": retry,
            "command": [*program, "exit", "--password", f"{CANARY}-exec-argument"],
            "env": {"SECRET": f"{CANARY}-exec"},
        },
        "hook": {**hook, "url": f"{url}/broken?key={CANARY}-hook", "headers": {"x-key": f"{CANARY}-hook-header"}},
        "proxied": {
            **hook,
            "url": f"http://localhost/sk-{CANARY}-path0123456789abcdef",
            "proxy": f"http://me:{CANARY}-proxy@127.0.0.1:9",
        },
        "python": {
            "type": "python",
            "retry": retry,
            "path": str(folder),
            "object": "singing:Sings",
            "arguments": {"token": f"{CANARY}-python"},
            "env": {"SECRET": f"{CANARY}-python-env"},
        },
        "rules": {"type": "policy", "rules": [{"action": "accept", "content": {"password": f"{CANARY}-content"}}]},
        "heard": {"type": "log"},
    }
    text = "".join(
        f"[handlers.{name}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    takers = [name for name in tables if name != "rules"]
    return f'{text}[[routes]]\nevent = "state_changed"\nserver = "sample"\nhandler = {toml(takers)}\n'

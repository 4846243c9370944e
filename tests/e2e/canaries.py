"""Owns the places where a secret can be written, each with a canary of its own, and the servers and handlers that sing.

A new key of the configuration has to be named here: in `SECRET_KEYS`, with a canary in `entries` or `handlers`, or in
`PLAIN_KEYS`, where nobody writes a secret.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.e2e.running import entry, puppet, toml

SERVERS = Path(__file__).parents[1] / "servers"
CANARY: Final = "canary-7f3a9c51e2"
"""Begins every secret; what follows tells where it was written."""
END: Final = "e94b-yranac"
"""Ends every secret: one that was cut off in front is seen by it."""


def secret(place: str) -> str:
    """The canary of a place; `place` may hold characters that are written otherwise in addresses, JSON and the like."""
    return f"{CANARY}-{place}-{END}"


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
    *("client", "discovering", "redirected", "printed", "unprinted", "pem", "by_post", "by_basic", "by_key", "no_token"),
)
"""Servers that never come up, and say why."""
ECHOING: Final = ("echo_token", "echo_printed", "echo_query")
"""HTTP servers that come up, and repeat what each request holds."""
SINGING: Final = ("everywhere", "argument", "neighbour", "spelling", "gossip", *ECHOING)
"""Servers that come up, and tell what they know."""

QUOTED: Final = 'it\'s "a\\b" & <c> ~!*()'
"""A place of characters each of which somebody escapes, and somebody else does not."""

GOSSIP: Final = "gossip"
"""The file from which the server of that name has what it tells of others."""

KNOWN_TO_ALL: Final = (
    *("argument", "option", "kept", "given", "part/+=", "inherited", "environ-proxy", "password", "handshake", "exit"),
    *("bearer", "query", "nobody", "echo-query", "header", "key", "query-key", "client", "printed", "unprinted"),
    *("echo-client", "echo-key/+=", "post/+=", "basic/+=", "odd", "exec-argument", "exec", "signing-0123456789abcdef"),
    *("hook", "moved", "unfound", "untrusted", "hook-header", "proxy", "python", "python-env", "content/+=", "gateway"),
    *("discover", "discovering", "redirected/+=", "gave-access", "gave-refresh"),
)
"""The places of secrets that are masked whoever tells them; each of the others may be an ordinary word, or is in no entry."""

KNOWN_AGAIN: Final = ("gave-access", "given", "argument", "bearer", "client", "gateway", "fresh")
"""Those of versions and tokens that a daemon finds at its start, while its files are broken."""

TOLD: Final = "told"
"""The file into which the handler `written` puts every event that it gets."""

KEPT_SECRET: Final = "kept"
"""The file of a secret that is rotated; its text begins with the canary."""


def private_key() -> str:
    """A key of a client, in PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def environ() -> dict[str, str]:
    """Variables of the daemon that hold secrets."""
    return {
        "ARGUMENT": secret("argument"),
        "INHERITED_TOKEN": secret("inherited"),
        "HTTP_PROXY": f"http://me:{secret('environ-proxy')}@127.0.0.1:9",
        "PART": secret("part/+="),
        "PRINTED": secret("printed"),
    }


def entries(url: str, folder: Path) -> str:
    """Servers with a secret in each place that can hold one; `url` is where `leaky.py http` listens."""
    leaky = SERVERS / "leaky.py"
    program = [sys.executable, str(leaky)]
    headers = {"x-key": secret("header")}
    bearer = {"type": "bearer", "token": secret("bearer")}
    client = {"type": "client_credentials", "client_id": "c", "token_url": f"{url}/unauthorized"}
    key = folder / "not-a-key.pem"
    key.write_text(secret("pem\n"))
    key.chmod(0o600)

    def web(name: str, path: str = "refused", **keys: Any) -> str:
        return entry(name, url=f"{url}/{path}", era="legacy", **keys)

    return "".join(
        [
            puppet(
                "everywhere",
                leaky,
                "everywhere",
                env={"SECRET": f"${{file:{folder}/{KEPT_SECRET}}}", "RECEIVED": f"{folder}/everywhere.answer"},
                probe={"interval": "1s"},
            ),
            puppet("argument", leaky, "everywhere", "${ARGUMENT}", "--api-key", secret("option")),
            puppet(
                "neighbour", leaky, "everywhere", f"@{folder}/{KEPT_SECRET}", env={"RECEIVED": f"{folder}/neighbour.answer"}
            ),
            puppet(
                "spelling",
                leaky,
                "environ",
                env={
                    "WRITTEN": secret("env/+="),
                    "URL": f"https://me:{secret('password')}@db.test/x",
                    "SENTENCE": "for me: ${PART}, and nobody else",
                    "GIVEN": "${cred:given}",
                    "QUOTED": secret(QUOTED),
                },
                inherit_env=["INHERITED_TOKEN"],
            ),
            puppet("gossip", leaky, "everywhere", f"@{folder}/{GOSSIP}"),
            puppet("handshake", leaky, "initialize", env={"SECRET": secret("handshake")}, era="legacy"),
            puppet("ending", leaky, "exit", env={"SECRET": secret("exit")}),
            entry("command", "/no/such/${ARGUMENT}"),
            *(
                web(path, f"{path}?key={secret('query')}", headers=headers, auth=bearer)
                for path in ("unauthorized", "broken", "elsewhere", "refused")
            ),
            entry("nobody", url=f"http://127.0.0.1:9/mcp?token={secret('nobody')}", headers=headers),
            web("keyed", auth={"type": "api_key", "header": "X-Mine", "key": secret("key")}),
            web("in_query", auth={"type": "api_key", "query": "k", "key": secret("query-key")}),
            web("client", auth={**client, "client_secret": secret("client")}),
            web(
                "discovering",
                f"discover?key={secret('discover')}",
                headers=headers,
                auth={"type": "client_credentials", "client_id": "c", "client_secret": secret("discovering")},
            ),
            web(
                "redirected",
                auth={
                    **client,
                    "token_url": f"{url}/elsewhere?as=post",
                    "client_auth": "post",
                    "client_secret": secret("redirected/+="),
                },
            ),
            web("printed", header_command=[*program, "headers", "${PRINTED}"]),
            web("unprinted", header_command=[*program, "exit", "--token", secret("unprinted")]),
            entry("pem", url="https://127.0.0.1:9/", tls={"client_cert": str(key), "client_key": str(key)}),
            puppet("sample", SERVERS / "lite.py"),
        ]
    )


def echoing(url: str, key: Path) -> str:
    """Servers that repeat what they get; `url` is where `echoing.py` listens, `key` a file with a private key."""
    program = [sys.executable, str(SERVERS / "leaky.py")]
    client = {"type": "client_credentials", "client_id": "c"}

    def at(name: str, token: str, path: str = "mcp", **keys: Any) -> str:
        return entry(name, url=f"{url}/{path}", era="legacy", auth={**client, "token_url": f"{url}/{token}", **keys})

    return "".join(
        [
            at("echo_token", "token", f"mcp?key={secret('echo-query')}", client_secret=secret("echo-client")),
            entry("echo_printed", url=f"{url}/mcp", era="legacy", header_command=[*program, "headers", "${PRINTED}"]),
            entry(
                "echo_query",
                url=f"{url}/mcp",
                era="legacy",
                auth={"type": "api_key", "query": "k", "key": secret("echo-key/+=")},
            ),
            at("by_post", "token/refused", client_auth="post", client_secret=secret("post/+=")),
            at("by_basic", "token/refused", client_auth="basic", client_secret=secret("basic/+=")),
            at("by_key", "token/refused", private_key=f"${{file:{key}}}"),
            at("no_token", "token/odd", client_auth="post", client_secret=secret("odd")),
        ]
    )


def faulty() -> str:
    """Entries that are refused, with a secret at the wrong place or in the wrong form."""
    client = {"type": "client_credentials", "client_id": "c", "issuer": "https://127.0.0.1/"}
    return "".join(
        [
            entry("invalid", url=f"http://user:{secret('userinfo')}@127.0.0.1/"),
            entry("misspelt", url="http://127.0.0.1/", headers={"x": f"{CANARY}\n-broken-{END}"}),
            entry("header_text", url="http://127.0.0.1/", headers=secret("text")),
            entry("env_list", "true", env=[secret("list")]),
            entry("wrong_key", "true", tokn=secret("unknown")),
            entry("wrong_auth", url="http://127.0.0.1/", auth=secret("auth")),
            "[handlers.wrong_hook]\n"
            + "".join(
                f"{key} = {toml(value)}\n"
                for key, value in {
                    "type": "webhook",
                    "url": f"https://me:{secret('hook-user')}@127.0.0.1/?k={secret('hook-k')}",
                    "secret": secret("hook-secret"),
                    "proxy": f"socks5://me:{secret('wrong-proxy')}@127.0.0.1",
                }.items()
            ),
            entry("no_key", url="http://127.0.0.1/", auth={**client, "private_key": "${ARGUMENT}"}),
            entry("no_word", "true", allow=["${ARGUMENT}"], era="${ARGUMENT}"),
            entry("no_form", "true", env={"A": f"${{NONE|{secret('form')}}}", "B": f"${{B:+{secret('form')}}}"}),
        ]
    )


def file_of_others() -> str:
    """What another program has for its servers, with secrets as people write them."""
    server = {"command": "npx", "args": ["--api-key", secret("others-option")], "env": {"TOKEN": secret("others-env")}}
    url = f"https://me:{secret('others-user')}@a.test/mcp?key={secret('others-query')}"
    web = {"url": url, "headers": {"Authorization": f"Bearer {secret('others-header')}"}}
    return json.dumps({"mcpServers": {"local": server, "web": web}})


def broken_files() -> dict[str, str]:
    """Drop-ins that cannot be read, with a secret next to the fault."""
    return {
        "broken.json": '{"mcpServers": {"a": {"command": "x", "env": {"K": "' + secret("json") + '" "L": 1}}}}',
        "broken.toml": f'[servers.b]\ncommand = "x"\nenv = {{ K = "{secret("toml")}\n',
        "twice.json": '{"mcpServers": {"a": {"command": "x", "env": {"K": "'
        + secret("1")
        + '", "K": "'
        + secret("2")
        + '"}}}}',
    }


SINGS = """
import os, sys, warnings
class Sings:
    def __init__(self, token): self.token = token
    async def deliver(self, event):
        print(self.token, os.environ["SECRET"], file=sys.stderr)
        warnings.warn(self.token)
        raise ValueError(self.token + os.environ["SECRET"])
"""


def handlers(url: str, folder: Path) -> str:
    """Handlers that fail with their secrets, one that answers with them, and one that writes down what it is told."""
    program = [sys.executable, str(SERVERS / "leaky.py")]
    module = folder / "singing.py"
    module.write_text(SINGS)
    module.chmod(0o644)
    retry = {"attempts": 1}
    hook = {"type": "webhook", "retry": retry, "secret": secret("signing-0123456789abcdef")}
    key = {"x-key": secret("hook-header")}
    tables: dict[str, dict[str, Any]] = {
        "program": {
            "type": "exec",
            "retry": retry,
            "command": [*program, "exit", "--password", secret("exec-argument")],
            "env": {"SECRET": secret("exec")},
        },
        "hook": {**hook, "url": f"{url}/broken?key={secret('hook')}", "headers": key},
        "moved": {**hook, "url": f"{url}/elsewhere?key={secret('moved')}", "headers": key},
        "unfound": {**hook, "url": f"https://{'x' * 70}.invalid/?key={secret('unfound')}", "headers": key},
        "untrusted": {**hook, "url": f"{url.replace('http:', 'https:')}/?key={secret('untrusted')}", "headers": key},
        "proxied": {
            **hook,
            "url": f"http://localhost/sk-{secret('path')}-0123456789abcdef",
            "proxy": f"http://me:{secret('proxy')}@127.0.0.1:9",
        },
        "python": {
            "type": "python",
            "retry": retry,
            "path": str(folder),
            "object": "singing:Sings",
            "arguments": {"token": secret("python")},
            "env": {"SECRET": secret("python-env")},
        },
        "rules": {"type": "policy", "rules": [{"action": "accept", "content": {"password": secret("content/+=")}}]},
        "heard": {"type": "log"},
        "written": {"type": "exec", "command": ["/usr/bin/tee", "-a", str(folder / TOLD)]},
    }
    text = "".join(
        f"[handlers.{name}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    takers = [name for name in tables if name not in ("rules", "written")]
    routes = [
        {"event": "state_changed", "server": "sample", "handler": takers},
        {"event": "elicitation", "server": "neighbour", "handler": "operator"},
        {"event": "elicitation", "handler": "rules"},
        {"event": "log_message", "server": ["everywhere", "argument", "gossip", *ECHOING], "handler": ["written", "heard"]},
        {"event": "state_changed", "server": [*FAILING, *SINGING], "handler": "written"},
    ]
    return text + "".join("[[routes]]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in one.items()) for one in routes)

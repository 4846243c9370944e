"""What the configuration adds up to: where each key comes from, and that no secret is shown."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.daemon.config.effective import Effective
from mcpvisor.daemon.config.masking import masked
from mcpvisor.daemon.config.printed import as_json, as_toml

MAIN = """
[log]
level = "warning"
[metrics]
listen = "127.0.0.1:1"
[defaults]
call_timeout = "2m"
restart = { delay = "3s", max_delay = "9s" }
env = { SHARED = "canary-in-defaults" }
[servers.files]
command = "npx"
args = ["-y", "--api-key=canary-in-args", "--token", "canary-in-option", "/srv", "${HOME:-canary-in-default}"]
env = { TOKEN = "canary-in-env", REF = "${cred:files}", MIXED = "Bearer ${env:T:-}" , "odd name" = "canary-odd" }
restart = { delay = "5s" }
[handlers.hook]
type = "webhook"
url = "https://example.com/hook?key=canary-in-query"
secret = ["canary-canary-canary-secret", "${cred:hook}"]
headers = { Authorization = "Bearer canary-in-header" }
proxy = "http://user:canary-in-proxy@proxy:1"
[handlers.code]
type = "python"
object = "m:o"
arguments = { password = "canary-in-arguments", deep = { more = ["canary-deeper"] }, pin = 1234 }
[[routes]]
event = "state_changed"
handler = "hook"
"""
DROP_IN = """
[servers.docs]
url = "https://mcp.example.com/mcp?token=canary-in-url"
auth = { type = "client_credentials", client_id = "me", client_secret = "canary-client", issuer = "https://a.example" }
headers = { X-Team = "canary-in-docs" }
[servers.key]
url = "https://mcp.example.com/mcp"
auth = { type = "bearer", token = "Bearer ${cred:t} canary-behind" }
"""
OTHER = '{"mcpServers": {"my tool": {"command": "x", "env": {"K": "canary-json"}, "timeout": 7, "apiKey": "canary-unknown"}}}'


@pytest.fixture
def shown(etc: Path, environ: dict[str, str], write: Callable[[Path, str | bytes], Path]) -> Callable[..., Effective]:
    """The configuration of this page, with more of the environment, and with defaults on demand."""
    write(etc / "mcpvisor.toml", MAIN)
    write(etc / "servers.d/10-docs.toml", DROP_IN)
    write(etc / "servers.d/20-other.json", OTHER)

    def show(*, whole: bool = False, **more: str) -> Effective:
        return Effective([etc], {**environ, **more}, 0, whole=whole)

    return show


def origins(effective: Effective) -> dict[str, str]:
    return {f"{one['table']}.{key['key']}": key["origin"] for one in as_json(effective.tables)["tables"] for key in one["keys"]}


def test_each_key_says_where_it_comes_from(shown: Callable[..., Effective], etc: Path, tmp_path: Path) -> None:
    """The environment wins over credentials, these over files, and files over defaults; each key names its own line."""
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "mcpvisor_log__format").write_text("json")
    (credentials / "mcpvisor_log__level").write_text("error")
    effective = shown(MCPVISOR_LOG__LEVEL="debug", CREDENTIALS_DIRECTORY=str(credentials))
    found = origins(effective)
    main, docs = f"{etc}/mcpvisor.toml", f"{etc}/servers.d/10-docs.toml"

    assert "environment MCPVISOR_LOG__LEVEL" == found["log.level"]
    assert "credential MCPVISOR_LOG__FORMAT" == found["log.format"]
    assert f"{main}:5" == found["metrics.listen"]
    assert "default" == found["daemon.strict"]
    assert f"{main}:7" == found["servers.files.call_timeout"] == found["servers.docs.call_timeout"]
    assert (f"{main}:14", f"{main}:8") == (found["servers.files.restart.delay"], found["servers.files.restart.max_delay"])
    assert (f"{main}:9", f"{main}:13") == (found["servers.files.env.SHARED"], found["servers.files.env.TOKEN"])
    assert f"{docs}:3" == found["servers.docs.url"]
    assert f"{etc}/servers.d/20-other.json:1" == found["servers.my-tool.call_timeout"]
    assert f"{main}:26" == found["routes[0].event"]
    values = {key["key"]: key["value"] for one in as_json(effective.tables)["tables"][:2] for key in one["keys"]}
    assert ("debug", "json") == (values["level"], values["format"])


def test_no_secret_is_shown_in_any_form(shown: Callable[..., Effective]) -> None:
    """A secret in any place that can hold one is masked, and a reference is shown as it is written."""
    effective = shown(whole=True)
    text = "\n".join(as_toml(effective.tables, origins=True))

    assert "canary" not in text + json.dumps(as_json(effective.tables))
    assert "1234" not in text
    assert 'env.REF = "${cred:files}"' in text
    assert 'env.MIXED = "Bearer ${env:T:-}"' in text
    assert 'args = ["-y", "--api-key=***", "--token", "***", "/srv", "${HOME:-***}"]' in text
    assert 'url = "https://mcp.example.com/mcp?***"' in text
    assert 'auth.token = "Bearer ${cred:t}***"' in text
    assert 'auth.client_id = "me"' in text
    assert 'secret = ["***", "${cred:hook}"]' in text


def test_what_is_printed_is_toml_that_says_the_same(shown: Callable[..., Effective]) -> None:
    """The output is valid TOML with every table, and with the defaults where they are asked for."""
    plain, whole = (tomllib.loads("\n".join(as_toml(shown(whole=one).tables, origins=one))) for one in (False, True))

    assert ["files", "docs", "key", "my-tool"] == list(plain["servers"])
    assert {"call_timeout": "2m", "restart": {"delay": "5s", "max_delay": "9s"}} == {
        key: plain["servers"]["files"][key] for key in ("call_timeout", "restart")
    }
    assert "queue" not in plain["servers"]["files"]
    assert 64 == whole["servers"]["files"]["queue"]
    assert "9s" == whole["servers"]["files"]["restart"]["max_delay"]
    assert "5/60s" == whole["servers"]["docs"]["restart"]["intensity"]
    assert "args" not in whole["servers"]["docs"]
    assert 1000 == whole["handlers"]["hook"]["queue"]
    assert [{"event": "state_changed", "handler": "hook"}] == plain["routes"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("env", "A"), "x", "***"),
        (("env", "A"), "", ""),
        (("env", "A"), 5, "***"),
        (("env", "A"), "a${VAR}b", "***${VAR}***"),
        (("headers", "Authorization"), "Bearer ${cred:t}", "Bearer ${cred:t}"),
        (("headers", "Authorization"), "Basic abc", "Basic ***"),
        (("env", "A"), "${VAR:-60s}", "${VAR:-60s}"),
        (("env", "A"), "${VAR:-hunter2}", "${VAR:-***}"),
        (("call_timeout",), "${VAR:-60s}", "${VAR:-60s}"),
        (("auth", "private_key"), "/etc/keys/docs.pem", "/etc/keys/docs.pem"),
        (("auth", "private_key"), "-----BEGIN PRIVATE KEY-----\nMIIE/x\n", "***"),
        (("auth", "issuer"), "https://u:p@a.example/", "https://***@a.example/"),
        (("url",), "https://a.example/x", "https://a.example/x"),
        (("cwd",), "/srv/x", "/srv/x"),
        (("cwd",), "ghp_abcdefghijklmnopqrstuvwx", "***"),
        (("required",), True, True),
        (("queue",), 5, 5),
        (("command",), ["prog", "--password", "hunter2222"], ["prog", "--password", "***"]),
        (("args",), ["sk-abcdefghijklmnopqrstuv"], ["***"]),
        (("subscriptions",), [{"uri": "memo://a", "poll": "60s"}], [{"uri": "memo://a", "poll": "60s"}]),
        (("arguments", "deep"), {"a": ["x"]}, {"a": ["***"]}),
    ],
)
def test_what_is_masked(path: tuple[str, ...], value: Any, expected: Any) -> None:
    """Texts of keys that bear secrets are masked but for their references, and what looks like a secret is masked anywhere."""
    assert expected == masked(path, value)

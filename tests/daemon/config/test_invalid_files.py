"""One file for each mistake: the place, the key path and the words of what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config.load import load

FILES = Path(__file__).parent / "testdata/invalid"

EXPECTED = {
    "allow.toml": (
        "3",
        "servers.a.allow[1]",
        '"everything": not a word that is known here; expected a list of "sampling", "roots"',
    ),
    "api-key-ours.toml": ("3", "servers.a.auth.header", "is set by the daemon itself"),
    "api-key-place.toml": (
        "3",
        "servers.a.auth.type",
        'says not where the key goes; expected header = "X-Api-Key" or query = "key"',
    ),
    "api-key-twice.toml": ("4", "servers.a.headers.x-key", "auth sets this header too"),
    "args-element.toml": ("5", "servers.a.args[1]", "is a list; expected a text"),
    "args-text.toml": ("3", "servers.a.args", "is a text; expected a list"),
    "auth-both.toml": ("3", "servers.a.auth", "header_command gives the credentials too; expected one of the two"),
    "auth-type-missing.toml": ("3", "servers.a.auth", 'the type is missing; expected one of "bearer", "api_key"'),
    "backoff-bounds.toml": ("3", "servers.a.restart.max_delay", "max_delay is shorter than delay"),
    "bad-name.toml": ("1", 'servers."my server"', "cannot be the name of a server; expected letters, digits and -"),
    "both.toml": ("3", "servers.a.url", "an entry has command or url, not both"),
    "codex-variable.toml": ("3", "mcp_servers.a.bearer_token_env_var", "cannot be the name of a variable"),
    "choice.toml": ("3", "servers.a.era", '"ancient": not a word that is known here; expected one of "auto", "legacy"'),
    "client-id-missing.toml": ("3", "servers.a.auth.type", 'the client is missing; expected client_id = "..."'),
    "client-key-file.toml": ("3", "servers.a.auth.private_key", "no-such-key.pem"),
    "client-key-unknown.toml": ("3", "servers.a.auth.token_uri", 'unknown key; did you mean "token_url"?'),
    "client-key.toml": (
        "3",
        "servers.a.auth.private_key",
        "the key is no private key in PEM form; expected an RSA key, or one on",
    ),
    "client-plain.toml": ("3", "servers.a.auth.token_url", "is not https, and a secret would be sent there"),
    "client-secret-missing.toml": (
        "3",
        "servers.a.auth.type",
        'the secret is missing; expected client_secret = "${cred:NAME}" or private_key',
    ),
    "defaults-key.toml": ("2", "defaults.call_timeuot", 'unknown key; did you mean "call_timeout"?'),
    "defaults-value.toml": ("2", "defaults.probe.failures", "0: not allowed here; expected a whole number, at least 1"),
    "duration.toml": ("3", "servers.a.call_timeout", '"5 minutes": not a duration; expected seconds as a number'),
    "empty.json": ("", "", "the file is empty"),
    "empty.toml": ("", "", "the file is empty"),
    "entry-not-table.toml": ("2", "servers.a", "is a text; expected a table with command or url"),
    "env-inherit.toml": ("3", "servers.a.inherit_env", "NOTIFY_SOCKET belongs to the daemon and is never inherited"),
    "env-value.toml": ("5", "servers.a.env.B", "is a list; expected a text"),
    "header-and-auth.toml": ("6", "servers.a.headers.authorization", "auth sets this header too"),
    "header-command-empty.toml": (
        "3",
        "servers.a.header_command",
        'names no program; expected a list such as ["program", "argument"]',
    ),
    "header-command-stdio.toml": ("3", "servers.a.header_command", "belongs to a server with a url"),
    "header-command-text.toml": ("3", "servers.a.header_command", "is a text; expected a list"),
    "header-ours.toml": ("3", "servers.a.headers.Host", "is set by the daemon itself"),
    "header-value.toml": ("3", "servers.a.headers.X-Key", "the value holds a line break"),
    "intensity.toml": ("5", "servers.a.restart.intensity", '"often": not a restart window; expected ends within'),
    "json-clash.json": ("4", 'mcpServers."a/b"', 'its name becomes "a-b", as that of "a b" does'),
    "json-comment.json": ("2", "", 'a comment that begins with "/*" here never ends'),
    "json-input.json": ("3", "servers.a.headers.K", "${input:key} is a value that an editor asks for"),
    "json-key-twice.json": ("4", "mcpServers.a", "written twice in one object; the first is at line 3"),
    "json-lifecycle.json": ("2", "mcpServers.a.lifecycle", 'not a word that is known here; expected "initialize", "auto"'),
    "json-mcp-list.json": ("2", "mcp", "is a list; expected mcp as one object of servers"),
    "json-control.json": (
        "3",
        "",
        r"not valid JSON: Invalid control character: in a string a line end is written \n, a tab \t",
    ),
    "json-nan.json": ("1", "", "not valid JSON: NaN is no JSON number"),
    "json-no-root.json": ("2", "mcpservers", "the file has no table of servers; expected"),
    "json-restart-policy.json": ("3", "mcpServers.a.restartPolicy.initialDelayMs", "0: not allowed here; expected a whole"),
    "json-root.json": ("1", "", "not a configuration; expected one object"),
    "json-syntax.json": ("4", "", "not valid JSON: Expecting ',' delimiter"),
    "json-two-roots.json": ("3", "servers", "stands beside mcpServers; expected one of the two"),
    "json-workspace.json": ("2", "mcpServers.a.args[0]", "${workspaceFolder} is a folder that an editor has open"),
    "later-auth.toml": ("3", "servers.a.auth.type", 'not supported in this version; expected one of "bearer", "api_key"'),
    "later-key.toml": ("3", "servers.a.prefix", "not supported in this version"),
    "later-tools-key.toml": ("4", "servers.a.tools.rename", "not supported in this version"),
    "latin1.toml": ("1", "", "byte 5 is not UTF-8; expected UTF-8 text"),
    "long-name.toml": ("1", "servers.abcdefghijklmnopqrstuvwxyz0123456", "at most 32 characters"),
    "negative-duration.toml": ("3", "servers.a.drain", "-1: a duration is a finite number that is not negative"),
    "nothing-to-run.toml": ("1", "servers.a", 'it has neither command nor url, only "comand"'),
    "number.toml": ("3", "servers.a.concurrency", "0: not allowed here; expected a whole number, at least 1"),
    "quoted-flag.toml": ("3", "servers.a.enabled", "is a text; expected true or false, without quotes"),
    "route-handler-missing.toml": ("4", "routes[0]", "the handler is missing; expected handler = the name of a handler"),
    "sharing.toml": ("3", "servers.a.sharing", '"mine": not a word that is known here; expected one of "shared", "per-client"'),
    "setting-later.toml": ("2", "gateway.auth", '"oidc": not a word that is known here; expected one of "auto", "open"'),
    "setting-listen.toml": ("2", "metrics.listen", 'not an address with a port; expected "HOST:PORT"'),
    "setting-unknown.toml": ("2", "gateway.first_list_wiat", 'unknown key; did you mean "first_list_wait"?'),
    "setting-value.toml": (
        "2",
        "log.level",
        'not a word that is known here; expected one of "debug", "info", "warning", "error"',
    ),
    "size.toml": ("3", "servers.a.max_message", '"32 megs": not a size; expected bytes as a whole number'),
    "surrogate.json": ("3", "mcpServers.a.args[0]", "holds half a character"),
    "tls-half.toml": ("3", "servers.a.tls.ca_mode", "expected ca beside ca_mode"),
    "token-missing.toml": ("3", "servers.a.auth.type", 'the token is missing; expected token = "${cred:NAME}"'),
    "toml-dotted-twice.toml": ("4", "servers.a.env.X", "written twice; the first is at line 3"),
    "toml-key-twice.toml": ("7", "servers.b.command", "written twice; the first is at line 5"),
    "toml-syntax.toml": ("2", "", "not valid TOML: Invalid value"),
    "toml-table-twice.toml": ("4", "servers.a", "written twice; the first is at line 1"),
    "toml-unclosed.toml": ("4", "", "not valid TOML"),
    "type-contradicts.toml": ("2", "servers.a.type", "says another transport than url does"),
    "type-unknown.toml": ("2", "servers.a.type", 'unknown transport; expected "stdio", "http"'),
    "unknown-key-nested.toml": ("3", "servers.a.restart.polcy", 'unknown key; did you mean "policy"?'),
    "unknown-key.toml": ("3", "servers.a.call_timeuot", 'unknown key; did you mean "call_timeout"?'),
    "unknown-table.toml": ("1", "server", 'unknown table; did you mean "servers"?'),
    "url-colons.toml": ("2", "servers.a.url", "has two colons in the host"),
    "url-scheme.toml": ("2", "servers.a.url", 'the scheme "ws" is not served'),
    "url-user.toml": ("2", "servers.a.url", "holds a user or a password before the host"),
    "variable-form.toml": ("3", "servers.a.args[0]", "${lower} is not a known form; expected ${VAR}"),
    "variable-open.toml": ("2", "servers.a.command", '"${" has no "}"'),
    "variable-unset.toml": ("3", "servers.a.env.T", "the variable NO_SUCH_VARIABLE is not set"),
    "wrong-kind-key.toml": ("3", "servers.a.cwd", "belongs to a server with a command"),
}


def test_every_file_is_expected() -> None:
    """No file of mistakes lies about without a test."""
    assert sorted(path.name for path in FILES.iterdir()) == sorted(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_mistake_is_named_with_its_place(
    name: str, etc: Path, environ: dict[str, str], write: Callable[[Path, bytes], Path]
) -> None:
    """A mistake gives an error with file, line, key path and what was expected, and never the value of a secret."""
    line, key, text = EXPECTED[name]
    file = write(etc / name, (FILES / name).read_bytes())

    problem = load([file], environ).problems[0]

    assert (file, line, key) == (problem.file, str(problem.line or ""), problem.key_path)
    assert text in problem.error
    assert str(problem).startswith(f"{file}:{line}" if line else f"{file}: ")
    assert "sekret" not in str(problem) + str(problem.as_json())

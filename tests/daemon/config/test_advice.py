"""What `check` advises against although it works: a table of command lines and addresses, and where the hint stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcpvisor.daemon.config.advice import open_to_others, secret_words, unprotected
from mcpvisor.daemon.config.load import Loaded
from mcpvisor.daemon.config.packages import unpinned
from mcpvisor.supervisor.secret_looks import holds_secret

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["server", "--api-key", "abcdef123456"], [2]),
        (["server", "--api-key=abcdef123456"], [1]),
        (["server", "--github-token", "abcdef123456"], [2]),
        (["server", "-token", "abcdef123456"], [2]),
        (["server", "--API_KEY=abcdef123456"], [1]),
        (["server", "--db-password", "hunter2222"], [2]),
        (["server", "--secret-access-key=abcdef123456"], [1]),
        (["server", "sk-proj-abcdefghijklmnop1234"], [1]),
        (["server", "sk-ant-api03-abcdefghijklmnop"], [1]),
        (["server", "ghp_abcdefghijklmnopqrstuvwx"], [1]),
        (["server", "github_pat_11ABCDEFG0abcdefghijkl"], [1]),
        (["server", "xoxb-123456789012-abc"], [1]),
        (["server", "AKIAIOSFODNN7EXAMPLE"], [1]),
        (["server", "--header", f"Authorization: Bearer {JWT}"], [2]),
        (["server", JWT], [1]),
        (["server", "postgres://user:pass@db/x"], [1]),
        (["mcp-remote", "https://x.example", "--header", "X:1", "--token", "abcdefgh"], [5]),
        # What is no secret, and what is none that stands there.
        (["server", "--token-file", "/run/token"], []),
        (["server", "--token", "/run/token"], []),
        (["server", "--token", "--verbose"], []),
        (["server", "--token"], []),
        (["server", "--api-key-env", "MY_API_KEY"], []),
        (["server", "--api-key-env=MY_API_KEY"], []),
        (["server", "--monkey", "business-as-usual"], []),
        (["server", "--keyboard=abcdef123456"], []),
        (["server", "--token", "${cred:token}"], []),
        (["server", "--token=${cred:token}"], []),
        (["server", "https://example.com/a:b@c"], []),
        (["server", "--key", "no"], []),
        (["server", "desk-lamp-in-the-corner-room"], []),
        (["token", "abcdef123456"], []),
    ],
)
def test_a_secret_in_a_command_line_is_found_by_its_name_or_its_shape(words: list[str], at: list[int]) -> None:
    """A secret is found by the option before it or by its shape, nothing else is, and no sentence holds it."""
    found = secret_words(words)

    assert at == [advice.at for advice in found]
    assert not [one for one in found if len(words[one.at]) > 8 and words[one.at].rpartition("=")[2] in one.text]


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("npx -y @scope/server", "@scope/server@1.2.3"),
        ("npx server", "server@1.2.3"),
        ("/usr/bin/npx -y server@latest --flag", "server@1.2.3"),
        ("npx -y server@^1.0.0", "server@1.2.3"),
        ("npx -y @scope/server@1", "@scope/server@1.2.3"),
        ("npx --package=@scope/server -- run", "@scope/server@1.2.3"),
        ("npx -p @scope/server run", "@scope/server@1.2.3"),
        ("npx --registry https://npm.example server", "server@1.2.3"),
        ("npm exec -- server", "server@1.2.3"),
        ("pnpm dlx server", "server@1.2.3"),
        ("bunx server", "server@1.2.3"),
        ("bun x server", "server@1.2.3"),
        ("npx --api-key s3cr3t-word server", "server@1.2.3"),
        ("npx -y --token s3cr3t-word", None),
        ("uvx mcp-server-time", "mcp-server-time==1.2.3"),
        ("uvx mcp-server-time@latest", "mcp-server-time==1.2.3"),
        ("uvx --python 3.12 mcp-server-time", "mcp-server-time==1.2.3"),
        ("uvx --from mcp-server-time>=1 time", "mcp-server-time==1.2.3"),
        ("uv tool run mcp-server-time", "mcp-server-time==1.2.3"),
        ("pipx run mcp-server-time", "mcp-server-time==1.2.3"),
        ("pipx run --spec mcp-server-time time", "mcp-server-time==1.2.3"),
        ("docker run -i --rm -e KEY mcp/time", "time:1.2.3 or time@sha256:..."),
        ("docker run -i --rm registry.example:5000/mcp/time:latest x", "time:1.2.3 or time@sha256:..."),
        ("podman container run --volume=/a:/b mcp/time", "time:1.2.3 or time@sha256:..."),
        # Pinned, of this machine, or nothing that is fetched.
        ("npx -y @scope/server@1.2.3", None),
        ("npx -y server@2026.8.31", None),
        ("npx ./server", None),
        ("npx -y github:owner/server", None),
        ("npx -y", None),
        ("npm run serve", None),
        ("bun run server.ts", None),
        ("uvx mcp-server-time==2026.1.1", None),
        ("uvx mcp-server-time@2026.1.1", None),
        ("uvx --from git+https://example.com/x time", None),
        ("uvx --from /srv/x time", None),
        ("uv run server.py", None),
        ("uv --directory /srv/x run server", None),
        ("docker run -i --rm mcp/time:1.4", None),
        ("docker run -i mcp/time@sha256:00ff", None),
        ("docker compose up", None),
        ("docker", None),
        ("node server.js", None),
        ("", None),
    ],
)
def test_a_package_of_any_version_is_found(line: str, package: str | None) -> None:
    """What is fetched in whatever version is newest is named with the way to pin it; what is pinned is not."""
    advice = unpinned(line.split())

    assert package == (advice.text.rpartition(", as ")[2] if advice is not None else None)


@pytest.mark.parametrize(
    ("url", "is_told"),
    [
        ("http://mcp.example.com/mcp", True),
        ("http://10.0.0.7:8000/mcp", True),
        ("http://[2001:db8::1]/mcp", True),
        ("https://mcp.example.com/mcp", False),
        ("http://localhost:8000/mcp", False),
        ("http://files.localhost/mcp", False),
        ("http://127.0.0.1/mcp", False),
        ("http://127.9.9.9/mcp", False),
        ("http://[::1]:80/mcp", False),
        ("http://[", False),
    ],
)
def test_plain_http_to_other_machines_is_told(url: str, is_told: bool) -> None:
    """Plain HTTP is told of where it leaves this machine."""
    assert is_told == bool(unprotected(url))


def test_a_gateway_that_asks_nobody_is_told_where_others_reach_it() -> None:
    """Only TCP addresses beyond this machine are told of, and only where nobody is asked who he is."""
    listen = ["0.0.0.0:7433", "[::]:7433", "127.0.0.1:7433", "[::1]:1", "localhost:1", "unix:/run/x.sock", "10.0.0.1:1"]

    assert ["0.0.0.0:7433", "[::]:7433", "10.0.0.1:1"] == open_to_others(listen, "open")
    assert [] == open_to_others(listen, "auto")


def test_shapes_of_tokens_are_known() -> None:
    """A word is not taken for a token because it is long."""
    assert holds_secret(f"x={JWT}")
    assert not holds_secret("a-very-long-name-of-a-folder-in-which-everything-lies-0123456789")


def test_the_hint_stands_where_the_word_is_written(load_text: Callable[..., Loaded]) -> None:
    """Each piece of advice has the place of the very word, and the entry runs."""
    loaded = load_text("""
[gateway]
listen = "0.0.0.0:7433"
auth = "open"
[servers.a]
command = "npx"
args = [
  "-y",
  "@scope/server",
  "--api-key=sekret-sekret",
]
[servers.b]
url = "http://mcp.example.com/mcp"
[servers.c]
command = "uvx mcp-server-time"
[servers.d]
url = "https://mcp.example.com/mcp"
header_command = ["print", "--token=sekret-sekret"]
[handlers.e]
type = "exec"
command = ["mail", "--password", "sekret-sekret"]
""")
    told = [(hint.line, hint.key_path, hint.message.partition(":")[0].partition(";")[0]) for hint in loaded.hints]

    assert () == loaded.problems
    assert [
        (3, "gateway.listen", "0.0.0.0"),
        (9, "servers.a.args[1]", "whatever version of @scope/server is newest runs at the next start"),
        (10, "servers.a.args[2]", "--api-key looks like a secret"),
        (13, "servers.b.url", "is plain http to another machine"),
        (15, "servers.c.command", "a whole command line"),
        (15, "servers.c.command", "whatever version of mcp-server-time is newest runs at the next start"),
        (18, "servers.d.header_command[1]", "--token looks like a secret"),
        (21, "handlers.e.command[2]", "what follows --password looks like a secret"),
    ] == sorted(told, key=lambda one: ["gateway", "servers", "handlers"].index(one[1].split(".")[0]))
    assert "sekret" not in "".join(str(hint) + str(hint.as_json()) for hint in loaded.hints)

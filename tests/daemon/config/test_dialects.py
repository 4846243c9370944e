"""Files of other programs: each dialect's golden file means here what it meant there, read as it is and when it is imported."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.config import golden

from mcpvisor.daemon.config.dialects import Dialect
from mcpvisor.daemon.config.importing.drafts import drafts_of
from mcpvisor.daemon.config.importing.file_text import text_of
from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.spec import Era, HttpTarget, HttpTransport, RestartPolicy, RestartRule, ServerSpec, StdioLaunch

Load = Callable[..., Loaded]


def comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def loaded_json(load_text: Load, entries: dict[str, Any], root: str = "mcpServers", **environ: str) -> Loaded:
    return load_text(json.dumps({root: entries} if root else entries, indent=1), "a.json", **environ)


def command_of(spec: ServerSpec) -> StdioLaunch:
    assert isinstance(spec.target, StdioLaunch)
    return spec.target


@pytest.mark.parametrize("dialect", golden.DIALECTS)
def test_each_golden_file_is_imported_as_expected(
    dialect: str, etc: Path, environ: dict[str, str], write: Callable[[Path, str], Path]
) -> None:
    """The import of a golden file gives the entries and the comments that stand beside it, and they load without a fault."""
    file, expected = golden.put(dialect, etc, environ["HOME"])

    text = text_of([drafts_of(file, environ)])
    imported = load([write(etc / "imported.toml", text)], environ | golden.VARIABLES)

    assert tomllib.loads(expected) == tomllib.loads(text)
    assert comments(expected) == comments(text)
    assert () == imported.problems


@pytest.mark.parametrize("dialect", golden.DIALECTS)
def test_read_as_it_is_a_golden_file_means_the_same(
    dialect: str, etc: Path, environ: dict[str, str], write: Callable[[Path, str], Path]
) -> None:
    """A golden file that a daemon reads unchanged gives the very servers that its import gives."""
    file, expected = golden.put(dialect, etc, environ["HOME"])
    environ |= golden.VARIABLES

    read = load([file], environ).specs
    imported = load([write(etc / "imported.toml", expected)], environ).specs

    assert {name: replace(spec, origin="", shown_name="") for name, spec in read.items()} == {
        name: replace(spec, origin="") for name, spec in imported.items()
    }


def test_every_dialect_has_a_golden_file(tmp_path: Path, environ: dict[str, str]) -> None:
    """Each form that is known is that of a golden file."""
    forms = {drafts_of(golden.put(name, tmp_path / name, "/root").file, environ).form for name in golden.DIALECTS}

    assert {dialect.value for dialect in Dialect} == forms


class TestWhatFilesHold:
    """Where the servers of a file are found."""

    @pytest.mark.parametrize("name", ["a.toml", "mcpvisor.toml"])
    def test_the_file_of_codex_beside_ours(self, load_text: Load, name: str) -> None:
        """TOML with `mcp_servers` and none of our tables is Codex's, in servers.d and by itself, whatever else it holds."""
        loaded = load_text('model = "m"\n[tui]\nx = 1\n[mcp_servers."a b"]\ncommand = "true"\nnovel = 1\n', name)

        assert () == loaded.problems
        assert ["a-b"] == list(loaded.specs)
        assert {"not a key that is used here", 'carried over under the name "a-b"'} == {h.message for h in loaded.hints}

    @pytest.mark.parametrize("ours", ["[servers.b]\ncommand = 'true'\n", "[log]\nlevel = 'info'\n"])
    def test_beside_tables_of_ours_it_is_unknown(self, load_text: Load, ours: str) -> None:
        """With a table of ours the file is ours, and `mcp_servers` is a mistake that is named."""
        loaded = load_text(f"{ours}[mcp_servers.a]\ncommand = 'true'\n")

        assert ["mcp_servers: unknown table"] == [problem.error.split(";")[0] for problem in loaded.problems]

    @pytest.mark.parametrize(
        ("text", "line", "error"),
        [
            ('{\n "mcpServers": {},\n "servers": {}\n}', 3, "servers: stands beside mcpServers; expected one of the two"),
            ('{\n "mcp": []\n}', 2, "mcp: is a list; expected mcp as one object of servers"),
            ('{\n "mcp": {"servers": {"servers": 1}, "inputs": []}\n}', 2, "is a number; expected a table with command or url"),
            ('{\n "mcpServer": {"a": {"command": "true"}}\n}', 2, 'did you mean "mcpServers"?'),
            ('{\n "a": {"comand": "true"}\n}', 2, "a: the file has no table of servers; expected"),
            ('{\n "a": {"command": "true"},\n "b": 1\n}', 2, "a: the file has no table of servers; expected"),
            ('{\n "servers": [{"name": "a", "command": "true"}]\n}', 2, "servers: is a list; expected servers as one object"),
        ],
    )
    def test_what_is_no_table_of_servers(self, load_text: Load, text: str, line: int, error: str) -> None:
        """A file in which no servers are found says so with its line and what was meant, never nothing."""
        (problem,) = load_text(text, "a.json").problems

        assert line == problem.line
        assert error in problem.error

    @pytest.mark.parametrize(
        ("data", "names"),
        [
            ({"a": {"command": "true"}, "_note": "x", "b": {"url": "http://h.test/"}}, ["a", "b"]),
            ({"mcp": {"servers": {"a": {"command": "true"}}, "inputs": []}}, ["a"]),
            ({"mcp": {"servers": {"command": ["true"]}, "b": {"command": "true"}}}, ["servers", "b"]),
            ({"mcp": {"allowed": ["a"]}, "mcpServers": {"a": {"command": "true"}}}, ["a"]),
            ({"mcpServers": {}}, []),
            ({"$schema": "x"}, []),
        ],
    )
    def test_where_servers_are(self, load_text: Load, data: dict[str, Any], names: list[str]) -> None:
        """A map without a table around it, the table within a table, and a server of an odd name are all found."""
        loaded = load_text(json.dumps(data), "a.json")

        assert ((), names) == (loaded.problems, list(loaded.specs))


class TestKeys:
    """What the keys of other programs mean."""

    def test_a_key_without_use_is_told_once(self, load_text: Load) -> None:
        """Of many entries with the same key that has no use, the first is named and the others are counted."""
        entry = {"command": "true", "autoApprove": ["x"], "icon": "i"}
        loaded = loaded_json(load_text, {"a": entry, "b": entry, "c": {**entry, "icom": 1}})

        assert [
            ("mcpServers.a.autoApprove", "approvals are the client's; not used here (and in 2 more places)"),
            ("mcpServers.a.icon", "not a key that is used here (and in 2 more places)"),
            ("mcpServers.c.icom", "not a key that is used here"),
        ] == [(hint.key_path, hint.message) for hint in loaded.hints]

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (None, RestartPolicy()),
            ({}, RestartPolicy(delay=1.0, max_delay=30.0)),
            ({"initialDelayMs": 250}, RestartPolicy(delay=0.25, max_delay=30.0)),
            ({"initialDelayMs": 60000, "maxDelayMs": 500}, RestartPolicy(delay=0.5, max_delay=0.5)),
        ],
    )
    def test_a_policy_of_restarts(self, load_text: Load, policy: Any, expected: RestartPolicy) -> None:
        """Delays in milliseconds are ours, with the other program's defaults; no policy is our own, which restarts."""
        loaded = loaded_json(load_text, {"a": {"command": "true", "restartPolicy": policy}})

        assert expected == loaded.specs["a"].restart
        assert RestartRule.ALWAYS is loaded.specs["a"].restart.policy

    def test_what_a_policy_loses_is_told(self, load_text: Load) -> None:
        """A factor other than two, an end of all tries, and null are hints; nonsense is an error of the entry."""
        policies = [
            {"backoffMultiplier": 3, "maxRestartAttempts": 5, "x": 1},
            None,
            {"backoffMultiplier": 2.0},
            [],
            {"maxDelayMs": "1"},
        ]
        loaded = loaded_json(
            load_text, {f"s{n}": {"command": "true", "restartPolicy": policy} for n, policy in enumerate(policies)}
        )

        assert ["backoffMultiplier", "maxRestartAttempts", "x", "restartPolicy"] == [
            hint.key_path.split(".")[-1] for hint in loaded.hints
        ]
        assert ["s3", "s4"] == [problem.server for problem in loaded.problems]

    @pytest.mark.parametrize(
        ("word", "era"), [("initialize", Era.LEGACY), ("auto", Era.AUTO), ("discover", Era.MODERN), (None, Era.AUTO)]
    )
    def test_a_lifecycle_is_an_era(self, load_text: Load, word: str | None, era: Era) -> None:
        """How a server is greeted says which era of the protocol it speaks."""
        assert era is loaded_json(load_text, {"a": {"command": "true", "lifecycle": word}}).specs["a"].era

    def test_no_tools_at_all_are_none(self, load_text: Load) -> None:
        """An empty list of the only tools shows none, where ours would show all."""
        keys = {"tools": [], "includeTools": [], "enabled_tools": []}
        specs = loaded_json(load_text, {f"s{n}": {"command": "true", key: []} for n, key in enumerate(keys)}).specs

        assert [((), ("*",))] * 3 == [(spec.tools.allow, spec.tools.deny) for spec in specs.values()]

    @pytest.mark.parametrize(
        ("keys", "hint"),
        [
            ({"env": {"A": "1"}, "environment": {"A": "2"}}, "not used: env says env already"),
            ({"environment": {"A": "1"}, "env": {"A": "2"}}, "not used: environment says env already"),
            ({"env": {"A": "1"}, "environment": {"A": "1"}}, ""),
        ],
    )
    def test_of_two_keys_that_mean_the_same_the_first_counts(self, load_text: Load, keys: dict[str, Any], hint: str) -> None:
        """The other one is named, unless it says the same."""
        loaded = loaded_json(load_text, {"a": {"command": "true", **keys}})

        assert (("A", Secret("1")),) == command_of(loaded.specs["a"]).env
        assert [hint] * bool(hint) == [one.message for one in loaded.hints]

    def test_headers_of_several_keys_are_one_table(self, load_text: Load) -> None:
        """Codex's headers, and those whose values are in variables, go together; what is written wins."""
        text = """
        [mcp_servers.a]
        url = "http://h.test/"
        http_headers = { X-A = "a", X-B = "b" }
        env_http_headers = { X-B = "OTHER", X-C = "THIRD" }
        """
        target = load_text(text, "a.toml", THIRD="c", OTHER="o").specs["a"].target

        assert isinstance(target, HttpTarget)
        assert [("X-A", "a"), ("X-B", "b"), ("X-C", "c")] == [(name, reveal(value)) for name, value in target.headers]

    def test_http_of_vs_code_falls_back(self, load_text: Load) -> None:
        """VS Code's "http" tries the older transport too; everybody else's does not."""
        entry = {"a": {"type": "http", "url": "http://h.test/"}}
        targets = [loaded_json(load_text, entry, root).specs["a"].target for root in ("servers", "mcpServers")]

        assert [HttpTransport.AUTO, HttpTransport.STREAMABLE_HTTP] == [
            target.transport for target in targets if isinstance(target, HttpTarget)
        ]


class TestVariables:
    """What the variables of other programs stand for."""

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("${A}", "1"),
            ("${env:A}", "1"),
            ("${NO:-d}", "d"),
            ("${env:NO:-d}", "d"),
            ("${env:NO | value:d e}", "d e"),
            ("${env:A|value:d}", "1"),
            ("${value:x}", "x"),
            ("${value:x}${A}", "x1"),
            ("$${A}", "${A}"),
            ("a${/}b${pathSeparator}c", "a/b/c"),
            ("{env:A}", "{env:A}"),
        ],
    )
    def test_forms(self, load_text: Load, written: str, value: str) -> None:
        """Each form of a variable has the value that it has there."""
        loaded = loaded_json(load_text, {"a": {"command": "true", "args": [written]}}, A="1")

        assert () == loaded.problems
        assert [value] == [reveal(arg) for arg in command_of(loaded.specs["a"]).args]

    def test_braces_of_opencode(self, load_text: Load, etc: Path, write: Callable[[Path, str], Path]) -> None:
        """OpenCode's variables stand in single braces, and its files are relative to its own."""
        write(etc / "servers.d/secret", "s\n")
        loaded = loaded_json(load_text, {"a": {"type": "local", "command": ["true", "{env:A}", "{file:secret}"]}}, "mcp", A="1")

        assert ["1", "s"] == [reveal(arg) for arg in command_of(loaded.specs["a"]).args]

    def test_a_command_of_opencode_without_a_word(self, load_text: Load) -> None:
        """An empty list names no program."""
        (problem,) = loaded_json(load_text, {"a": {"type": "local", "command": []}}, "mcp").problems

        assert "mcp.a.command: is an empty list; expected the program to start" == problem.fault

    @pytest.mark.parametrize(
        ("written", "error"),
        [
            ("x ${input:key} y", "${input:key} is a value that an editor asks for; a daemon cannot ask: write ${cred:key}"),
            (
                "${workspaceFolder}/x",
                "${workspaceFolder} is a folder that an editor has open; a daemon has none: write its path",
            ),
            ("${workspaceFolder:other}", "${workspaceFolder:other} is a folder that an editor has open"),
            ("${op://vault/item/field}", "${op:...} is a secret of 1Password"),
            ("${env:NO | env:A}", 'a variable with "|" can have one plain text behind it'),
            ("${env:NO}", "the variable NO is not set in the environment of the daemon"),
            ("${command:pick}", "${command:pick} is not a known form"),
        ],
    )
    @pytest.mark.parametrize("key", ["args", "env", "url"])
    def test_what_a_daemon_cannot_have(self, load_text: Load, written: str, error: str, key: str) -> None:
        """A variable without a value is one error of its entry, which names it, and no other entry suffers."""
        bad = {
            "args": {"command": "true", "args": ["a", written]},
            "env": {"command": "true", "env": {"K": written}},
            "url": {"url": written},
        }
        loaded = loaded_json(load_text, {"a": bad[key], "b": {"command": "true"}}, A="1")

        (problem,) = loaded.problems
        assert error in problem.error
        assert problem.key_path.startswith(f"mcpServers.a.{key}")
        assert ["b"] == list(loaded.specs)

    def test_inputs_with_a_default(self, load_text: Load) -> None:
        """An input of VS Code has its default, where it has one."""
        text = json.dumps(
            {
                "inputs": [{"id": "a", "default": "${A}"}, {"id": "b"}],
                "servers": {"s": {"command": "true", "args": ["${input:a}"]}, "t": {"command": "${input:b}"}},
            }
        )
        loaded = load_text(text, "a.json")

        assert ("${A}",) == command_of(loaded.specs["s"]).args
        assert ["t"] == [problem.server for problem in loaded.problems]

    @pytest.mark.parametrize(
        ("place", "root"),
        [
            (".vscode/mcp.json", "."),
            (".cursor/mcp.json", "."),
            (".kiro/settings/mcp.json", "."),
            (".mcp.json", "."),
            ("mcp.json", None),
        ],
    )
    def test_the_folder_of_a_project(
        self, etc: Path, environ: dict[str, str], write: Callable[[Path, str], Path], place: str, root: str | None
    ) -> None:
        """Where the place of a file tells the project, its folder is the workspace, and where its servers start."""
        (etc / place).parent.mkdir(parents=True, exist_ok=True)
        there = {"command": "${workspaceFolder}/x", "args": ["${workspaceFolderBasename}"], "cwd": "sub"}
        entries = {"a": {"command": "true"}, "b": there}
        file = write(etc / place, json.dumps({"mcpServers": entries}))

        specs = load([file], environ).specs
        at_home = load([file], environ | {"HOME": str(etc)}).specs

        assert str(etc) == command_of(specs["a"]).cwd if root else command_of(specs["a"]).cwd is None
        if root:
            b = command_of(specs["b"])
            assert (f"{etc}/x", (etc.name,), f"{etc}/sub") == (b.command, b.args, b.cwd)
        assert ["a"] == list(at_home)
        assert command_of(at_home["a"]).cwd is None

    def test_a_bare_variable_is_text(self, load_text: Load) -> None:
        """`$NAME` is plain text in every file; where a whole value is one, it is said."""
        loaded = loaded_json(load_text, {"a": {"command": "true", "env": {"K": "$A", "L": "a$A"}}}, A="1")

        assert [("mcpServers.a.env.K", "is plain text here; the variable would be ${A}")] == [
            (hint.key_path, hint.message) for hint in loaded.hints
        ]
        assert (("K", Secret("$A")), ("L", Secret("a$A"))) == command_of(loaded.specs["a"]).env

"""What the pages say of other programs' files, and of their import, is what the code does."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from mcpvisor.daemon.cli.main import build_parser, main
from mcpvisor.daemon.cli.tree import options_of, verbs_of
from mcpvisor.daemon.config.dialects import Dialect
from mcpvisor.daemon.config.foreign_keys import Means, Nothing, meaning_of_key

DOCS = Path(__file__).parents[2] / "docs"
IMPORT = (DOCS / "import.md").read_text()
CONFIGURATION = (DOCS / "configuration.md").read_text()
SECTION = CONFIGURATION[CONFIGURATION.index("## Files of other programs") : CONFIGURATION.index("## Reload")]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in SECTION.splitlines() if line.startswith("| ")
][1:]
DIALECTS = {"VS Code": Dialect.VS_CODE, "OpenCode": Dialect.OPENCODE, "Codex": Dialect.CODEX}
OURS = {"type", "cwd", "enabled", "required"}
NO_KEYS = {"default", "inputs", "sse", "command", "streamable_http", "headersHelper"}
SOURCE = """{
  "mcpServers": {
    "notes": {
      "command": "npx",
      "args": ["-y", "@example/notes@1.2.3", "--token", "hush"],
      "env": { "NOTES_LEVEL": "${LEVEL}" },
      "autoApprove": ["read"]
    }
  }
}
"""


class Terminal(io.StringIO):
    """A stdin at which a person sits."""

    def isatty(self) -> bool:
        return True


def words(text: str) -> list[str]:
    """The keys in a cell; a key with its value is the key."""
    return re.findall(r"`([A-Za-z_]+)(?: = [^`]*)?`", text)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_words_of_each_program_mean_what_the_table_says(row: list[str]) -> None:
    """A word that is said to be read has a meaning, and one behind "not" is known to have none."""
    dialect = DIALECTS.get(row[0], Dialect.MCP_SERVERS)
    read, _, unread = row[3].partition("not ")

    assert [] == [w for w in words(read) if w not in OURS | NO_KEYS and not isinstance(meaning_of_key(w, dialect), Means)]
    if not unread.startswith("chains"):
        assert [] == [
            w
            for w in words(unread)
            if w != "mcpServers" and not isinstance(meaning_of_key(w, dialect), Nothing) and w != "auth"
        ]


def test_the_options_are_those_of_the_verb() -> None:
    """Every option of the verb is in the table of the page, and no other."""
    (verb,) = (verb for verb in verbs_of(build_parser()) if verb.words == ("import",))
    options = {name for option in options_of(verb.parser) for name in option.names} - {"-h", "--help", "--color"}

    assert options == set(re.findall(r"^\| `(--[a-z]+)", IMPORT, re.MULTILINE))


def test_the_example_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed example is what the command says of such a file."""
    project, etc = tmp_path / "project", tmp_path / "etc"
    (project / ".cursor").mkdir(parents=True)
    (etc / "servers.d").mkdir(parents=True)
    (project / ".cursor/mcp.json").write_text(SOURCE)
    monkeypatch.chdir(project)
    monkeypatch.setenv("MCPVISOR_CONFIG", str(etc))
    monkeypatch.setattr("sys.stdin", Terminal(""))

    main(["import", ".cursor/mcp.json"])
    out, err = capsys.readouterr()
    example = re.search(r"```\n\$ mcpvisor import \.cursor/mcp\.json\n(.*?)```", IMPORT, re.DOTALL)

    assert example
    shown = out + err.partition("mcpvisor:")[0].rstrip() + "\n"
    assert example[1] == shown.replace(str(project), "/home/ann/project").replace(str(etc), "/etc/mcpvisor")

"""`import`: what is shown before anything is written, what is refused, and that nothing is ever overwritten."""

from __future__ import annotations

import io
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.daemon.cli.main import main
from mcpvisor.daemon.config.check import check

CURSOR = """{
  "mcpServers": {
    "notes": {
      "command": "npx",
      "args": ["-y", "@example/notes", "--token", "sekret-one"],
      "env": { "NOTES_KEY": "sekret-two", "NODE_OPTIONS": "--require /tmp/x.js", "LEVEL": "${LEVEL}" },
      "autoApprove": ["x"]
    },
    "docs": { "url": "https://docs.test/mcp?key=sekret-three", "headers": { "X-Key": "sekret-four" } }
  }
}
"""


class Terminal(io.StringIO):
    """A stdin at which a person sits."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder, which the environment names, and no terminal."""
    etc = tmp_path / "etc"
    (etc / "servers.d").mkdir(parents=True)
    for one in (tmp_path, etc, etc / "servers.d"):
        one.chmod(0o755)
    monkeypatch.setenv("MCPVISOR_CONFIG", str(etc))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    return etc


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    """Writes another program's file, below the folder of the test."""

    def put(text: str | bytes, name: str = "mcp.json") -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return put


def entries(**servers: dict[str, Any]) -> str:
    return json.dumps({"mcpServers": servers}, indent=1)


def written(folder: Path) -> list[str]:
    return sorted(one.name for one in (folder / "servers.d").iterdir())


def test_what_would_run_is_shown_and_then_written(folder, source, capsys):
    """Every command line and address is shown with its secrets masked, what is lost is listed, and the entries load."""
    file = source(CURSOR)

    code = main(["import", str(file), "--yes"])
    out, err = capsys.readouterr()
    target = folder / "servers.d/mcp.toml"
    data = tomllib.loads(target.read_text())["servers"]

    assert 0 == code
    assert "    runs     npx -y @example/notes --token ***\n" in out
    assert "    env      NOTES_KEY=***\n" in out
    assert "    env      NODE_OPTIONS=--require /tmp/x.js\n" in out
    assert "    calls    https://docs.test/mcp?key=***\n" in out
    assert "    needs    the variable LEVEL in the daemon's environment\n" in out
    assert f"not carried over: {file}:7:7: mcpServers.notes.autoApprove: approvals are the client's" in out
    assert [5, 6, 9, 9] == sorted(int(line.split(":")[2]) for line in out.splitlines() if "    secret: " in line)
    assert f"2 servers written to {target}" in err
    assert "sekret" not in out + err
    assert ["-y", "@example/notes", "--token", "sekret-one"] == data["notes"]["args"]
    assert "sekret-four" == data["docs"]["headers"]["X-Key"]
    assert 0o600 == target.stat().st_mode & 0o777
    assert 0 == check([folder], {**os.environ, "LEVEL": "info"}).exit_code


def test_without_a_terminal_nothing_is_written(folder, source, capsys):
    """A script that did not say --yes gets the remedy and exit code 64, and sees what would have been written."""
    assert 64 == main(["import", str(source(CURSOR))])

    out, err = capsys.readouterr()
    assert "runs     npx" in out
    assert "say --yes" in err
    assert [] == written(folder)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("\n", 1), ("", 1), ("sure\n", 1)])
def test_a_person_is_asked(folder, source, capsys, monkeypatch, answer, code):
    """At a terminal it is written after a yes, and after nothing else."""
    monkeypatch.setattr("sys.stdin", Terminal(answer))

    assert code == main(["import", str(source(CURSOR))])
    assert "Write 2 servers? A daemon would run them as its own user. [y/N]" in capsys.readouterr().err
    assert (["mcp.toml"] if code == 0 else []) == written(folder)


def test_a_file_that_is_there_is_not_overwritten(folder, source, capsys):
    """The file is named, with the option that writes another."""
    there = folder / "servers.d/mcp.toml"
    there.write_text("# mine\n")

    assert 1 == main(["import", str(source(CURSOR)), "--yes"])
    assert f"nothing was written: {there}: is there already, and is not overwritten; expected --to" in capsys.readouterr().err
    assert "# mine\n" == there.read_text()


def test_a_link_is_not_written_through(folder, source, tmp_path):
    """A link that leads nowhere yet is there too."""
    link = folder / "servers.d/mcp.toml"
    link.symlink_to(tmp_path / "elsewhere.toml")

    assert 1 == main(["import", str(source(CURSOR)), "--yes"])
    assert not (tmp_path / "elsewhere.toml").exists()


def test_a_name_that_is_taken_is_refused(folder, source, capsys):
    """Both places are named, nothing is written, and the others can be imported without it."""
    (folder / "servers.d/a.toml").write_text('[servers.docs]\nurl = "https://other.test/mcp"\n[servers.broken]\n')
    file = source(CURSOR)

    assert 1 == main(["import", str(file), "--yes"])
    assert f'the name "docs" of {file}:9 is taken by {folder}/servers.d/a.toml:1' in capsys.readouterr().err
    assert ["a.toml"] == written(folder)

    assert 0 == main(["import", str(file), "--yes", "--only", "notes"])
    assert ["a.toml", "mcp.toml"] == written(folder)
    assert ["notes"] == list(tomllib.loads((folder / "servers.d/mcp.toml").read_text())["servers"])


def test_a_bad_entry_keeps_its_name_too(folder, source, capsys):
    """The name of an entry that cannot be used is taken all the same."""
    (folder / "servers.d/a.toml").write_text("[servers.docs]\n")

    assert 1 == main(["import", str(source(CURSOR)), "--yes"])
    assert '"docs"' in capsys.readouterr().err


def test_one_name_in_two_files(folder, source, capsys):
    """Of two programs that know a server by one name, nothing is taken before somebody chooses."""
    files = [source(entries(a={"command": "x"}), f".{program}/mcp.json") for program in ("cursor", "vscode")]

    assert 1 == main(["import", *map(str, files), "--yes"])
    assert f'the name "a" is in both {files[0]}:3 and {files[1]}:3' in capsys.readouterr().err
    assert [0, 1] == [main(["import", str(file), "--yes"]) for file in files]
    assert ["cursor-mcp.toml"] == written(folder)


def test_an_unknown_name_is_wrong_usage(folder, source, capsys):
    """A server that was asked for and is in no file is named, with those that are there."""
    assert 64 == main(["import", str(source(CURSOR)), "--only", "nots", "--yes"])
    assert "no server is called nots; there are: docs, notes" in capsys.readouterr().err


def test_what_cannot_be_carried_over(folder, source, capsys):
    """The rest is written, the exit code says that something is missing, and a comment has what may be done."""
    file = source(
        entries(
            good={"command": "x"},
            bad={"comand": "x"},
            asks={"command": "x", "args": ["${input:key}"]},
            text="npx",
            **{"goo d": {"command": "y"}, "goo-d": {"command": "z"}},
        )
    )

    assert 1 == main(["import", str(file), "--yes"])
    out, err = capsys.readouterr()
    text = (folder / "servers.d/mcp.toml").read_text()
    assert "2 servers written" in err
    lost = out.partition("could not be carried over:")[2]
    assert [True] * 4 == [f"    {name}: {file}" in lost for name in ("bad", "asks", "text", "goo-d")]
    assert ["good", "goo-d"] == list(tomllib.loads(text)["servers"])
    assert "y" == tomllib.loads(text)["servers"]["goo-d"]["command"]
    assert '#   [servers.asks]\n#   command = "x"\n#   args = ["${cred:key}"]\n' in text
    assert 0 == check([folder], os.environ).exit_code

    uncommented = (
        text.replace("#   [servers.asks]", "[servers.asks]").replace("#   command", "command").replace("#   args", "args")
    )
    assert ["good", "asks", "goo-d"] == list(tomllib.loads(uncommented)["servers"])


def test_of_nothing_nothing_is_written(folder, source, capsys):
    """Where no server can be carried over there is no file either."""
    assert 1 == main(["import", str(source(entries(bad={"comand": "x"}))), "--yes"])
    assert "nothing was written: no server could be carried over" in capsys.readouterr().err
    assert [] == written(folder)


def test_for_programs(folder, source, capsys):
    """`--json` has the same, before and after it is written; secrets are in neither."""
    file = source(CURSOR)

    assert 64 == main(["import", str(file), "--json"])
    before = json.loads(capsys.readouterr().out)
    assert 0 == main(["import", str(file), "--json", "--yes"])
    out = capsys.readouterr().out
    after = json.loads(out)

    assert (False, True) == (before["written"], after["written"])
    assert str(folder / "servers.d/mcp.toml") == after["to"]
    (told,) = after["files"]
    assert (str(file), ["notes", "docs"]) == (told["file"], [one["name"] for one in told["servers"]])
    assert {"what": "runs", "text": "npx -y @example/notes --token ***"} in told["servers"][0]["shown"]
    assert ["mcpServers.notes.autoApprove"] == [one["key"] for one in told["servers"][0]["not_carried_over"]]
    assert "sekret" not in out


HOSTILE = "\x1b[2Jx\n[servers.evil]\ncommand = 'evil'\n\u202e\u2028\r#"


def test_what_a_file_says_steers_nothing(folder, source, capsys):
    """Control characters in names, keys and values neither reach the terminal nor end a comment or a string."""
    file = source(
        entries(**{HOSTILE: {"command": HOSTILE, "args": [HOSTILE], "env": {"A": HOSTILE}, HOSTILE: 1, "disabled": HOSTILE}})
    )
    good = source(entries(**{HOSTILE: {"command": "x", "args": [HOSTILE], HOSTILE: 1}}), "good.json")

    assert [1, 0] == [main(["import", str(one), "--yes"]) for one in (file, good)]
    out, err = capsys.readouterr()
    text = (folder / "servers.d/good.toml").read_text()
    (entry,) = tomllib.loads(text)["servers"].values()
    assert [] == [c for c in (out + err + text).replace("\n", "") if not c.isprintable()]
    assert {"command": "x", "args": [HOSTILE]} == entry
    assert r"runs     x $'\x1b[2Jx\n[servers.evil]\ncommand = \'evil\'\n\u202e\u2028\r#'" in out


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("big.json", b" " * (5 * 1024 * 1024), "larger than 4 MiB"),
        ("deep.json", b'{"mcpServers":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper than 32 levels"),
        ("half.json", b'{"mcpServers": {', "not valid JSON"),
        ("empty.json", b"", "the file is empty"),
        ("none.json", b"{}", "holds no servers"),
        ("ours.toml", b'[servers.a]\ncommand = "x"\n', "is in our own form already"),
        ("goose.yaml", b"extensions: {}\n", "YAML is not read"),
        ("list.json", b'{"mcpServers": []}', "expected mcpServers as one object of servers"),
        ("latin.json", b'{"mcpServers": {"\xe9": {}}}', "is not UTF-8"),
    ],
)
def test_what_cannot_be_read(folder, source, capsys, name, content, error):
    """A file that is too large, too deep, broken, or not another program's is one error that names it."""
    file = source(content, name)

    assert 78 == main(["import", str(file), "--yes"])
    message = capsys.readouterr().err
    assert message.startswith(f"mcpvisor: {file}:")
    assert error in message
    assert [] == written(folder)


def test_what_is_no_file(folder, tmp_path, capsys):
    """A folder, a pipe, a loop of links and nothing at all are named, and nothing waits for them."""
    (loop := tmp_path / "loop.json").symlink_to(loop)
    os.mkfifo(pipe := tmp_path / "pipe.json")

    for path, error in (
        (tmp_path, "is a folder"),
        (pipe, "is no regular file"),
        (loop, "its symbolic links form a loop"),
        (tmp_path / "none.json", "no such file"),
    ):
        assert 78 == main(["import", str(path), "--yes"])
        assert error in capsys.readouterr().err


@pytest.mark.parametrize("to", ["new.toml", "etc", "etc/servers.d"])
def test_where_it_goes(folder, source, tmp_path, to):
    """--to is a new file, a folder of a configuration, or its servers.d."""
    assert 0 == main(["import", str(source(CURSOR)), "--to", str(tmp_path / to), "--yes"])

    expected = tmp_path / to if to.endswith(".toml") else folder / "servers.d/mcp.toml"
    assert "[servers.notes]" in expected.read_text()
    assert [] == [one for one in expected.parent.iterdir() if one.name.startswith(".")]


@pytest.mark.parametrize(
    ("to", "mode", "error"), [("none", 0o755, "is no folder of a configuration"), ("etc", 0o777, "run: chmod o-w")]
)
def test_where_it_cannot_go(folder, source, tmp_path, capsys, to, mode, error):
    """A folder that is not there is not made, and one that others may write is named with what mends it."""
    (folder / "servers.d").chmod(mode)

    assert 1 == main(["import", str(source(CURSOR)), "--to", str(tmp_path / to), "--yes"])
    assert error in capsys.readouterr().err
    assert [] == written(folder)

"""How many servers there may be in all files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpvisor.daemon.config import crowds
from mcpvisor.daemon.config.applied import Applied, decide
from mcpvisor.daemon.config.load import Loaded, load


def toml(*names: str) -> str:
    """A drop-in of these servers."""
    return "".join(f'[servers.{name}]\ncommand = "true"\n' for name in names)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "MAX_SERVERS", 5)


@pytest.fixture
def files(etc: Path, environ: dict[str, str], write) -> Loaded:
    """Five servers in three files, one of them another program's."""
    write(etc / "mcpvisor.toml", toml("m"))
    write(etc / "servers.d/a.toml", toml("a1", "a2"))
    write(etc / "servers.d/b.json", '{"mcpServers": {"b1": {"command": "true"}, "b2": {"command": "true"}}}')
    return load([etc], environ)


def test_as_many_as_may_be(files: Loaded):
    """At the limit all of them are there."""
    assert (["m", "a1", "a2", "b1", "b2"], ()) == (list(files.specs), files.problems)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("servers.d/c.toml", toml("c"), "c.toml:1:1: servers: holds 1 server, which makes 6 with those of the files before it"),
        ("servers.d/a.toml", toml(*"abcdef"), "a.toml:1:1: servers: holds 6 servers, which makes 7 with those of the"),
        ("servers.d/b.json", '{"mcpServers": {"b": {}, "c": {}, "d": {}}}', "mcpServers: holds 3 servers, which makes 6 with"),
        ("mcpvisor.toml", toml(*"abcdef"), "mcpvisor.toml:1:1: servers: holds 6 servers; expected at most 5 in all files"),
    ],
)
def test_a_file_too_many_is_not_used(files: Loaded, etc: Path, environ, write, file: str, text: str, told: str):
    """The file with which there are more is named with the numbers; what ran of it before, and all else, goes on."""
    before = decide(None, files, 0.0)
    assert isinstance(before, Applied)
    write(etc / file, text)
    loaded = load([etc], environ, previous=before.basis)
    after = decide(before, loaded, 1.0)
    assert isinstance(after, Applied)
    (problem,) = after.rejected

    assert told in str(problem)
    assert "; expected at most 5 in all files" in str(problem)
    assert before.specs == after.specs

"""Folders, links and secrets: what is watched for a configuration, and that it is followed when it is another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.daemon.config.watched import Watched, edit, started, watching

from mcpvisor.daemon.config import watch

pytestmark = pytest.mark.anyio

Write = Callable[[Path, str], Path]


@pytest.fixture
def other_file_system() -> Iterator[Path]:
    """A folder on another file system than that of the tests' own."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


# Folders


async def test_a_folder_that_comes_later(etc: Path, write: Write) -> None:
    """A `servers.d` that is made while the daemon runs is watched, with what was put there at once."""
    (etc / "servers.d").rmdir()
    async with watching(etc) as watched:
        (etc / "servers.d").mkdir(mode=0o755)
        write(etc / "servers.d/a.toml", "# 1\n")
        await watched.until(1)
        await edit(watched, etc / "servers.d/a.toml")


@pytest.mark.parametrize("which", ["servers.d", "."])
async def test_a_folder_made_anew(etc: Path, write: Write, which: str) -> None:
    """A folder that is deleted and made again is watched again, each time."""
    write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(etc) as watched:
        for _ in range(2):
            calls = watched.calls
            shutil.rmtree(etc / which)
            await watched.until(calls + 1)
            (etc / "servers.d").mkdir(mode=0o755, parents=True)
            write(etc / "servers.d/a.toml", "# 2\n")
            await watched.until(calls + 2)
            await edit(watched, etc / "servers.d/a.toml")


async def test_a_folder_that_is_another_at_once(etc: Path, write: Write) -> None:
    """A folder that is moved away for another one is one change, and the new one is watched."""
    write(etc / "servers.d/a.toml", "# 1\n")
    (etc / "next").mkdir()
    write(etc / "next/a.toml", "# 2\n")
    async with watching(etc) as watched:
        (etc / "servers.d").rename(etc / "last")
        (etc / "next").rename(etc / "servers.d")
        await watched.until(1)
        await edit(watched, etc / "servers.d/a.toml")


async def test_a_chain_of_links_to_a_folder(etc: Path, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `servers.d` that is a link to a link is watched where it leads to, and followed when either link changes."""
    monkeypatch.setattr(watch, "_FOLDERS", 0.2)
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        write(tmp_path / f"v{number}/a.toml", f"# {number}\n")
    (tmp_path / "current").symlink_to("v1")
    (etc / "servers.d").rmdir()
    (etc / "servers.d").symlink_to(tmp_path / "current")
    async with watching(etc) as watched:
        await edit(watched, tmp_path / "v1/a.toml")
        (tmp_path / "next").symlink_to("v2")
        (tmp_path / "next").replace(tmp_path / "current")
        await watched.until(2)
        await edit(watched, tmp_path / "v2/a.toml")
        (etc / "next").symlink_to(tmp_path / "v1")
        (etc / "next").replace(etc / "servers.d")
        await watched.until(4)
        await edit(watched, tmp_path / "v1/a.toml")


async def test_several_roots(etc: Path, write: Write, tmp_path: Path) -> None:
    """Folders and single files of several places are watched, each through its folder; their neighbours count for nothing."""
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root in roots:
        root.mkdir()
    files = [write(roots[0] / "mcp.json", "{}"), write(roots[1] / "extra.toml", "# 1\n"), roots[2] / "mcpvisor.toml"]
    async with watching(etc, *files[:2], roots[2]) as watched:
        for file in (*files, etc / "mcpvisor.toml", etc / "servers.d/a.toml"):
            await edit(watched, file)
        write(roots[0] / "other.json", "{}")
        await watched.until_looked()
        write(roots[0] / "new", "{ }").replace(files[0])
        await watched.until(6)


async def test_a_folder_without_its_parent(etc: Path, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tells when the folder of a single file goes and comes again; a look at the folders does."""
    monkeypatch.setattr(watch, "_FOLDERS", 0.2)
    (tmp_path / "deep/down").mkdir(parents=True)
    file = write(tmp_path / "deep/down/mcp.json", "{}")
    async with watching(file) as watched:
        shutil.rmtree(tmp_path / "deep")
        await watched.until(1)
        (tmp_path / "deep/down").mkdir(parents=True)
        write(file, "{ }")
        await watched.until(2)
        await edit(watched, file)


# Links


def config_map(folder: Path, number: int, *names: str) -> None:
    """What the kubelet does: a new folder with the new files, and `..data` swapped to it; the names never change."""
    new = folder / f"..2026_{number}"
    new.mkdir()
    for name in names:
        (new / name).write_text(f"# {number}\n")
    old = (folder / "..data").readlink() if (folder / "..data").is_symlink() else None
    (folder / "..data_tmp").symlink_to(new.name)
    (folder / "..data_tmp").replace(folder / "..data")
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    if old is not None:
        shutil.rmtree(folder / old)


async def test_swaps_of_a_config_map(etc: Path) -> None:
    """Each swap of a mounted ConfigMap is one change, although no name of a file is touched."""
    config_map(etc / "servers.d", 1, "a.toml", "b.toml")
    config_map(etc, 1, "mcpvisor.toml")
    async with watching(etc) as watched:
        config_map(etc / "servers.d", 2, "a.toml", "b.toml")
        await watched.until(1)
        config_map(etc / "servers.d", 3, "a.toml", "b.toml")
        await watched.until(2)
        config_map(etc, 2, "mcpvisor.toml")
        await watched.until(3)
        config_map(etc, 3, "mcpvisor.toml")
        await watched.until(4)


async def test_a_named_file_of_a_config_map(etc: Path) -> None:
    """The same where a single file is named."""
    config_map(etc, 1, "mcp.json")
    async with watching(etc / "mcp.json") as watched:
        for number in (2, 3):
            config_map(etc, number, "mcp.json")
            await watched.until(number - 1)


async def test_the_target_of_a_link(etc: Path, write: Write, other_file_system: Path) -> None:
    """An edit of the file that a link leads to is seen at once, on another file system too, in place or by a rename."""
    target = write(other_file_system / "elsewhere.toml", "# 1\n")
    (etc / "mcpvisor.toml").symlink_to(target)
    async with watching(etc) as watched:
        await edit(watched, target)
        for number in (2, 3):
            write(other_file_system / "new", f"# {number}\n").replace(target)
            await watched.until(number)
        await edit(watched, target)


async def test_a_target_that_comes_later(etc: Path, write: Write, tmp_path: Path) -> None:
    """A link to nothing is watched for its target."""
    (etc / "mcpvisor.toml").symlink_to(tmp_path / "later.toml")
    async with watching(etc) as watched:
        write(tmp_path / "later.toml", "# 1\n")
        await watched.until(1)


# Secrets


async def test_a_secret_file(etc: Path, write: Write, tmp_path: Path) -> None:
    """A secret that entries are made of is watched like the files themselves, with the links to it."""
    (tmp_path / "secrets").mkdir()
    secret, link = write(tmp_path / "secrets/one", "1"), etc / "link"
    link.symlink_to(write(tmp_path / "two", "1"))
    async with watching(etc, secrets=[secret, link]) as watched:
        secret.write_text("2")
        await watched.until(1)
        (tmp_path / "secrets/new").write_text("3")
        (tmp_path / "secrets/new").replace(secret)
        await watched.until(2)
        (tmp_path / "two").write_text("2")
        await watched.until(3)
        secret.unlink()
        await watched.until(4)
        os.utime(link)
        await watched.until_looked()
        await edit(watched, etc / "mcpvisor.toml")


async def test_a_secret_that_changes_while_it_is_read(etc: Path, write: Write, tmp_path: Path) -> None:
    """What counts is what it held right before: at the start, and in a reload that brings in another."""
    one, two = write(tmp_path / "one", "1"), write(tmp_path / "two", "1")
    watched = Watched(etc, secrets=[one])
    one.write_text("2")
    async with started(watched):
        await watched.until(1)

        def bring_in() -> None:
            watched.on_change = lambda: None
            watched.secrets.append(two)
            watched.read()
            two.write_text("2")

        watched.on_change = bring_in
        (etc / "mcpvisor.toml").write_text("# 1\n")
        await watched.until(3)
        await edit(watched, two)

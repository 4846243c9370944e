"""The watcher, with real files and the system's own hints: one call for one change, and none for none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.daemon.config.watched import QUIET, edit, watching

from mcpvisor.daemon.config import absences, watch

pytestmark = pytest.mark.anyio

Write = Callable[[Path, str], Path]


# How programs write


def in_place(file: Path) -> None:
    file.write_text("# new\n")


def vim(file: Path) -> None:
    """With a backup: a file to try what the folder allows, the old one renamed, the new one written, the old one gone."""
    (file.parent / "4913").write_text("")
    (file.parent / "4913").unlink()
    (file.parent / f".{file.name}.swp").write_text("b0VIM")
    backup = file.rename(f"{file}~")
    file.write_text("# new\n")
    backup.unlink()
    (file.parent / f".{file.name}.swp").unlink()


def emacs(file: Path) -> None:
    """A lock that is a link to nowhere, a copy of the old, the new one written in place."""
    lock = file.parent / f".#{file.name}"
    lock.symlink_to("somebody@somewhere.1234:1700000000")
    (file.parent / f"#{file.name}#").write_text("# ne")
    shutil.copy(file, f"{file}~")
    file.write_text("# new\n")
    (file.parent / f"#{file.name}#").unlink()
    lock.unlink()


def renamed_over(file: Path) -> None:
    """As sed -i, rsync and careful editors do."""
    temporary = file.parent / f".{file.name}.Xy12Zw"
    temporary.write_text("# new\n")
    temporary.replace(file)


def removed_and_made(file: Path) -> None:
    """As git does."""
    file.unlink()
    file.write_text("# new\n")


def mapped(file: Path) -> None:
    """Through a hard link beside it, which is what some tools that keep owners do."""
    beside = file.parent / ".link"
    beside.hardlink_to(file)
    beside.write_text("# new\n")
    beside.unlink()


@pytest.mark.parametrize("program", [in_place, vim, emacs, renamed_over, removed_and_made, mapped])
@pytest.mark.parametrize("name", ["mcpvisor.toml", "servers.d/a.toml"])
async def test_one_call_for_each_edit(etc: Path, write: Write, program: Callable[[Path], None], name: str) -> None:
    """Whatever way a program writes a file is one change, the second time as well."""
    file = write(etc / name, "# 0\n")
    async with watching(etc) as watched:
        program(file)
        await watched.until(1)
        file.write_text("# between\n")
        await watched.until(2)
        program(file)
        await watched.until(3)
        await edit(watched, etc / "servers.d/zz-marker.toml")


async def test_many_files_at_once(etc: Path) -> None:
    """A checkout of many files is one change."""
    async with watching(etc) as watched:
        for number in range(100):
            (etc / f"servers.d/{number}.toml").write_text(f"# {number}\n")
        await watched.until(1)
        await edit(watched, etc / "servers.d/zz-marker.toml")


@pytest.mark.parametrize("name", ["mcpvisor.toml", "servers.d/new.toml"])
async def test_a_slow_write_is_one_change(etc: Path, write: Write, name: str) -> None:
    """A file that is written with pauses is looked at once its writer has closed it, be it an old one or a new one."""
    write(etc / "mcpvisor.toml", "# 0\n")
    async with watching(etc) as watched:
        with (etc / name).open("w") as stream:
            for number in range(3):
                await anyio.sleep(QUIET * 2)  # the pause of a slow writer is the subject
                stream.write(f"# piece {number}\n")
                stream.flush()
            assert 0 == watched.calls
        await watched.until(1)
        await edit(watched, etc / "servers.d/zz-marker.toml")


async def test_a_write_that_never_ends(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that somebody holds open for writing counts as it is after a while."""
    monkeypatch.setattr(watch, "LONGEST_WRITE", 0.6)
    async with watching(etc) as watched:
        with (etc / "mcpvisor.toml").open("w") as stream:
            stream.write("# 1\n")
            stream.flush()
            await watched.until(1)


async def test_hints_that_never_end(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is never a quiet moment, the files are looked at all the same."""
    monkeypatch.setattr(watch, "LONGEST_STIR", 0.6)
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc) as watched, anyio.create_task_group() as group:

        async def stir() -> None:
            while True:
                os.utime(file)
                await anyio.sleep(QUIET / 10)

        write(etc / "servers.d/a.toml", "# 1\n")
        group.start_soon(stir)
        await watched.until(1)
        group.cancel_scope.cancel()


# What is no change


async def test_the_same_content_is_no_change(etc: Path, write: Write) -> None:
    """A new time stamp, another mode and the same bytes written again are looked at, and are nothing."""
    file = write(etc / "mcpvisor.toml", "# 0\n")
    async with watching(etc) as watched:
        for touch in (
            lambda: os.utime(file),
            lambda: file.chmod(0o600),
            lambda: file.write_text("# 0\n"),
            lambda: write(etc / "mcpvisor.toml.tmp", "# 0\n").rename(file),
            lambda: write(etc / "servers.d/.hidden", "passed over"),
            lambda: write(etc / "servers.d/a.toml~", "passed over"),
        ):
            touch()
            await watched.until_looked()
        assert 0 == watched.calls
        await edit(watched, etc / "servers.d/zz-marker.toml")


async def test_the_same_time_and_size_is_a_change(etc: Path, write: Write) -> None:
    """Contents are compared, whatever the clock says."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    before = file.stat()
    async with watching(etc) as watched:
        file.write_text("# 2\n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        await watched.until(1)


async def test_the_noise_of_neighbours_is_no_hint(etc: Path, write: Write) -> None:
    """Other files that are written to in the same folder keep nobody waiting, and nothing is read for them."""
    file, noise = write(etc / "one.json", "{}"), write(etc / "noise.log", "")
    async with watching(file) as watched:
        with noise.open("a") as stream:
            for _ in range(10):
                stream.write("line\n")
                stream.flush()
                await anyio.sleep(QUIET / 5)
        assert 1 == watched.rounds
        await edit(watched, file)
        assert 2 == watched.rounds


async def test_who_else_may_write_a_file_is_a_change(etc: Path, write: Write) -> None:
    """A chmod by which a file is no longer believed, and the one that mends it, are edits like any other."""
    file = write(etc / "mcpvisor.toml", "# 0\n")
    async with watching(etc) as watched:
        file.chmod(0o666)
        await watched.until(1)
        file.chmod(0o644)
        await watched.until(2)


# Absences


async def test_a_drop_in_that_is_gone(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop-in that goes for good is one change, after its time; whoever removes it is told since when it is gone."""
    monkeypatch.setattr(absences, "ABSENCE", 0.5)
    file = write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(etc) as watched:
        file.unlink()
        await watched.until_looked()
        assert 0 == watched.calls
        await watched.until(1)
        assert [file] == list(watched.gone[-1])
        assert anyio.current_time() - watched.gone[-1][file] >= 0.5
        await edit(watched, etc / "mcpvisor.toml")


async def test_a_drop_in_that_is_away_for_a_moment(etc: Path, write: Write) -> None:
    """One that comes back as it was is no change; one that comes back as another is one."""
    file = write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(etc) as watched:
        file.unlink()
        await watched.until_looked()
        write(file, "# 1\n")
        await watched.until_looked()
        assert 0 == watched.calls
        file.unlink()
        await watched.until_looked()
        write(file, "# 2\n")
        await watched.until(1)


async def test_other_news_do_not_wait_for_an_absence(etc: Path, write: Write) -> None:
    """While a drop-in is away another edit is seen at once, and the time of the absence goes on."""
    file = write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(etc) as watched:
        file.unlink()
        await watched.until_looked()
        since = anyio.current_time()
        await edit(watched, etc / "mcpvisor.toml")
        assert watched.gone[-1][file] <= since


async def test_a_named_file_that_is_gone_is_told_at_once(etc: Path, write: Write) -> None:
    """It is a fault, and not a removal; so it is when the folder cannot be listed any more."""
    file = write(etc / "one.toml", "# 1\n")
    write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(file, etc) as watched:
        file.unlink()
        await watched.until(1)
        shutil.rmtree(etc / "servers.d")
        await watched.until(2)
        assert [{}, {}] == watched.gone

"""The watcher, with real files and the system's own hints."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcpvisor.daemon.config import watch
from mcpvisor.daemon.config.look import Digester, fingerprint
from mcpvisor.daemon.config.watch import ConfigWatcher

pytestmark = pytest.mark.anyio

Write = Callable[[Path, str], Path]

QUIET = 0.15


class Seen:
    """Counts the calls of a watcher, and lets a test wait for one."""

    def __init__(self) -> None:
        self.calls = 0
        self._called = anyio.Event()

    async def changed(self) -> None:
        self.calls += 1
        self._called.set()
        self._called = anyio.Event()

    async def until(self, calls: int) -> None:
        """Waits for that many calls, five seconds at most."""
        with anyio.fail_after(20):
            while self.calls < calls:
                await self._called.wait()


@asynccontextmanager
async def watching(*paths: Path, interval: float = 60.0, secrets: tuple[Path, ...] = ()) -> AsyncIterator[Seen]:
    """A watcher that runs, and has had its first look of its own."""
    seen = Seen()
    digests = {path: Digester()(path) for path in secrets}
    watcher = ConfigWatcher(paths, seen.changed, secrets=lambda: digests, quiet=QUIET, interval=interval)
    async with anyio.create_task_group() as group:
        await group.start(watcher.run)
        yield seen
        group.cancel_scope.cancel()


async def _settled(folder: Path, seen: Seen, calls: int) -> None:
    """Proves that nothing more was seen: one real edit afterwards is exactly one more call."""
    await anyio.sleep(QUIET * 3)  # what is asserted is that no call comes in a time in which one would have come
    marker = folder / "servers.d/zz-marker.toml"
    marker.write_text(f"# {seen.calls}\n")
    await seen.until(calls + 1)
    assert calls + 1 == seen.calls


async def test_an_edit_in_place(etc: Path, write: Write) -> None:
    """A file written in place is one change."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc) as seen:
        file.write_text("# 2\n")
        await seen.until(1)
        await _settled(etc, seen, 1)


async def test_atomic_renames(etc: Path, write: Write) -> None:
    """A file that is replaced by a rename is seen each time, not only the first."""
    write(etc / "mcpvisor.toml", "# 0\n")
    async with watching(etc) as seen:
        for number in (1, 2, 3):
            write(etc / "mcpvisor.toml.tmp", f"# {number}\n").rename(etc / "mcpvisor.toml")
            await seen.until(number)
        await _settled(etc, seen, 3)


async def test_a_slow_write_is_one_change(etc: Path, write: Write) -> None:
    """A file that is written piece by piece is looked at when it is quiet, once."""
    file = write(etc / "mcpvisor.toml", "# 0\n")
    async with watching(etc) as seen:
        with file.open("w") as stream:
            for number in range(8):
                stream.write(f"# piece {number}\n")
                stream.flush()
                await anyio.sleep(QUIET / 4)  # the pause of a slow writer is the subject
        await seen.until(1)
        await _settled(etc, seen, 1)


async def test_the_same_content_is_no_change(etc: Path, write: Write) -> None:
    """A new time stamp, another mode and the same bytes written again are nothing."""
    file = write(etc / "mcpvisor.toml", "# 0\n")
    async with watching(etc) as seen:
        os.utime(file)
        file.chmod(0o600)
        file.write_text("# 0\n")
        write(etc / "mcpvisor.toml.tmp", "# 0\n").rename(file)
        write(etc / "servers.d/.hidden", "passed over")
        await _settled(etc, seen, 0)


async def test_a_file_comes_and_goes(etc: Path, write: Write) -> None:
    """A drop-in that is written, and one that is deleted, are changes."""
    async with watching(etc) as seen:
        file = write(etc / "servers.d/a.toml", "# 1\n")
        await seen.until(1)
        file.unlink()
        await seen.until(2)


async def test_a_folder_made_anew(etc: Path, write: Write) -> None:
    """A folder that is deleted and made again is watched again."""
    write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(etc) as seen:
        shutil.rmtree(etc / "servers.d")
        await seen.until(1)
        (etc / "servers.d").mkdir(mode=0o755)
        write(etc / "servers.d/a.toml", "# 2\n")
        await seen.until(2)
        before = seen.calls
        write(etc / "servers.d/a.toml", "# 3\n")
        await seen.until(before + 1)


async def test_a_swapped_link(etc: Path, write: Write) -> None:
    """A mounted ConfigMap changes by a swap of a link that no configured name mentions; that is seen."""
    drop_ins = etc / "servers.d"
    for number in (1, 2):
        (drop_ins / f"..{number}").mkdir()
        write(drop_ins / f"..{number}/a.toml", f"# {number}\n")
    (drop_ins / "..data").symlink_to("..1")
    (drop_ins / "a.toml").symlink_to("..data/a.toml")
    async with watching(etc) as seen:
        (drop_ins / "..new").symlink_to("..2")
        (drop_ins / "..new").rename(drop_ins / "..data")
        await seen.until(1)


async def test_the_target_of_a_link(etc: Path, write: Write, tmp_path: Path) -> None:
    """An edit of the file behind a link gives no hint; the regular look finds it."""
    target = write(tmp_path / "elsewhere.toml", "# 1\n")
    (etc / "mcpvisor.toml").symlink_to(target)
    async with watching(etc, interval=0.3) as seen:
        target.write_text("# 2\n")
        await seen.until(1)


async def test_a_secret_file(etc: Path, write: Write, tmp_path: Path) -> None:
    """A secret that entries are made of is looked at like the files themselves."""
    secret = write(tmp_path / "secret", "1")
    async with watching(etc, interval=0.3, secrets=(secret,)) as seen:
        secret.write_text("2")
        await seen.until(1)


async def test_a_named_file(etc: Path, write: Write) -> None:
    """A file named by itself is watched through its folder; its neighbours count for nothing."""
    file = write(etc / "one.toml", "# 1\n")
    async with watching(file) as seen:
        write(etc / "two.toml", "# 1\n")
        write(etc / "one.new", "# 2\n").rename(file)
        await seen.until(1)


async def test_refused_hints(
    etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system refuses to watch, this is said once, and the regular look finds every edit."""

    def refuse() -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watch, "FolderEvents", refuse)
    file = write(etc / "mcpvisor.toml", "# 1\n")
    with caplog.at_level(logging.WARNING):
        async with watching(etc, interval=0.2) as seen:
            file.write_text("# 2\n")
            await seen.until(1)
            shutil.rmtree(etc / "servers.d")
            await seen.until(2)

    assert caplog.text.count("no hints of changed files (OS file watch limit reached)") == 1


async def test_a_due_time_without_an_edit(etc: Path) -> None:
    """A removal that waits for its time is looked at when the time has come."""
    seen = Seen()
    due: list[float | None] = [anyio.current_time() + 0.3]

    async def changed() -> None:
        due[0] = None
        await seen.changed()

    watcher = ConfigWatcher([etc], changed, recheck_at=lambda: due[0], quiet=QUIET, interval=60)
    async with anyio.create_task_group() as group:
        await group.start(watcher.run)
        await seen.until(1)
        group.cancel_scope.cancel()


async def test_an_edit_between_loading_and_watching(etc: Path, write: Write) -> None:
    """What is edited after the files were loaded is a change, though nobody watched yet."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    seen = Seen()
    watcher = ConfigWatcher([etc], seen.changed, quiet=QUIET, interval=60, seen=fingerprint([etc]))
    file.write_text("# 2\n")
    async with anyio.create_task_group() as group:
        await group.start(watcher.run)
        await seen.until(1)
        group.cancel_scope.cancel()


def test_fingerprints(etc: Path, write: Write) -> None:
    """Contents count, names count, and what cannot be read is no error."""
    empty = fingerprint([etc])
    file = write(etc / "servers.d/a.toml", "# 1\n")
    one = fingerprint([etc])
    os.utime(file, (1, 1))
    touched = fingerprint([etc])
    file.unlink()
    file.mkdir()
    folder = fingerprint([etc])

    assert one == touched
    assert len({empty, one, folder}) == 3

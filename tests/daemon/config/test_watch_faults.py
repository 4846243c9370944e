"""The watcher where the system gives no hints, loses some, or does not answer."""

from __future__ import annotations

import ctypes
import errno
import logging
import shutil
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.daemon.config.watched import Watched, edit, started, watching

from mcpvisor.daemon.config import absences, watch
from mcpvisor.daemon.config.folder_events import FolderEvent, FolderEvents, events_in
from mcpvisor.daemon.config.look import Look, fingerprint, look
from mcpvisor.daemon.config.open_writers import OpenWriters

pytestmark = pytest.mark.anyio

Write = Callable[[Path, str], Path]

REFUSED = "no hints of changed files"


class Refusals:
    """Stands for a system that gives no queue until its limit is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_refusing = True
        monkeypatch.setattr(watch, "FolderEvents", self.give)

    def give(self) -> FolderEvents:
        if self.is_refusing:
            raise OSError(errno.EMFILE, "too many open files")
        return FolderEvents()


async def test_refused_hints(
    etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system refuses to watch, this is said once, and the regular look finds every edit."""
    Refusals(monkeypatch)
    file = write(etc / "mcpvisor.toml", "# 1\n")
    with caplog.at_level(logging.WARNING):
        async with watching(etc, interval=0.2) as watched:
            await edit(watched, file)
            shutil.rmtree(etc / "servers.d")
            await watched.until(2)
            (etc / "servers.d").mkdir()
            await watched.until(3)
            await edit(watched, etc / "servers.d/a.toml")

    assert 1 == caplog.text.count(f"{REFUSED} ([Errno 24] too many open files)")


async def test_hints_that_are_given_again(
    etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the limit was raised, hints are taken again without a restart; another refusal is another warning."""
    refusals = Refusals(monkeypatch)
    monkeypatch.setattr(watch, "INTERVAL_WITHOUT_HINTS", 0.2)
    with caplog.at_level(logging.INFO):
        async with watching(etc) as watched:
            await edit(watched, etc / "mcpvisor.toml")
            refusals.is_refusing = False
            while "again" not in caplog.text:
                await watched.until_looked()
            rounds = watched.rounds
            await edit(watched, etc / "mcpvisor.toml")
            assert rounds + 1 == watched.rounds

    assert 1 == caplog.text.count(REFUSED)


async def test_one_folder_that_may_not_be_watched(
    etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and looked at more often; the others give hints as before."""

    class Partial(FolderEvents):
        def watch(self, folders):
            super().watch(folder for folder in folders if not folder.endswith("servers.d"))
            return {str(etc / "servers.d"): OSError(errno.EACCES, "permission denied", str(etc / "servers.d"))}

    monkeypatch.setattr(watch, "FolderEvents", Partial)
    monkeypatch.setattr(watch, "INTERVAL_WITHOUT_HINTS", 0.5)
    async with watching(etc) as watched:
        await edit(watched, etc / "servers.d/a.toml")
        await edit(watched, etc / "mcpvisor.toml")

    assert 1 == caplog.text.count(f"{REFUSED} ([Errno 13] permission denied: '{etc}/servers.d')")


def test_a_refusal_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two limits of the system, each error names the one that it is about."""

    class Libc:
        def inotify_init1(self, _):
            ctypes.set_errno(errno.EMFILE)
            return -1

        def inotify_add_watch(self, *_):
            ctypes.set_errno(errno.ENOSPC)
            return -1

    with FolderEvents() as events:
        events._libc = Libc()
        assert "max_user_watches" in str(events.watch(["/"])["/"])
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Libc())
    with pytest.raises(OSError, match="max_user_instances"):
        FolderEvents()


async def test_a_name_that_is_no_text(etc: Path) -> None:
    """A file whose name is no UTF-8 is passed over, and changes nothing for the others."""
    async with watching(etc) as watched:
        Path(f"{etc}/servers.d/\udcff.txt").write_text("# 1\n")
        await watched.until_looked()
        await edit(watched, etc / "servers.d/a.toml")


async def test_a_look_that_does_not_end(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not answer is news after a while, so that a reload tells of it; so is its return."""
    is_dead, released = threading.Event(), threading.Event()

    def hang(*args, **more) -> Look:
        if is_dead.is_set():
            released.wait(20)
        return look(*args, **more)

    monkeypatch.setattr(watch, "look", hang)
    monkeypatch.setattr(watch, "LOOK_WITHIN", 0.3)
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc, interval=0.2) as watched:
        watched.is_reading = False
        is_dead.set()
        await watched.until(1)
        await watched.until_looked()
        assert 1 == watched.calls
        watched.is_reading = True
        is_dead.clear()
        released.set()
        await watched.until(2)
        await edit(watched, file)


async def test_without_any_hint(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that gives no hints, the regular look finds an edit."""
    monkeypatch.setattr(FolderEvents, "watch", lambda *_: {})
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc, interval=0.3) as watched:
        await edit(watched, file)
        await edit(watched, etc / "servers.d/a.toml")


async def test_a_due_time_without_an_edit(etc: Path) -> None:
    """A removal that waits for its time is looked at when the time has come."""
    due: list[float | None] = [anyio.current_time() + 0.5]
    async with watching(etc, recheck_at=lambda: due[0]) as watched:
        watched.on_change = lambda: due.__setitem__(0, None)
        await watched.until(1)
        await edit(watched, etc / "mcpvisor.toml")


async def test_an_edit_between_loading_and_watching(etc: Path, write: Write) -> None:
    """What is edited after the files were read is a change, though nobody watched yet."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    watched = Watched(etc)
    file.write_text("# 2\n")
    async with started(watched):
        await watched.until(1)
        await edit(watched, file)


async def test_an_edit_while_a_reload_is_under_way(etc: Path, write: Write) -> None:
    """It is found by the next look."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc) as watched:

        def again() -> None:
            watched.on_change = lambda: None
            file.write_text("# 3\n")

        watched.on_change = again
        file.write_text("# 2\n")
        await watched.until(2)


async def test_what_somebody_else_has_had_read(etc: Path, write: Write) -> None:
    """An edit that an operator has reloaded by hand is no news any more."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc) as watched:
        file.write_text("# 2\n")
        watched.read()
        await watched.until_looked()
        assert 0 == watched.calls
        await edit(watched, file)


async def test_files_that_cannot_be_read(etc: Path, write: Write) -> None:
    """A reload that could not read anything is not asked for again and again; the next edit is news, also one back."""
    file = write(etc / "mcpvisor.toml", "# 1\n")
    async with watching(etc, interval=0.2) as watched:
        watched.is_reading = False
        file.write_text("# 2\n")
        await watched.until(1)
        await watched.until_looked()
        await watched.until_looked()
        assert 1 == watched.calls
        watched.is_reading = True
        file.write_text("# 1\n")
        await watched.until(2)
        await edit(watched, file)


async def test_an_absence_that_nobody_could_read(etc: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is up, and the next look comes at its own time all the same."""
    monkeypatch.setattr(absences, "ABSENCE", 0.1)
    file = write(etc / "servers.d/a.toml", "# 1\n")
    async with watching(etc, interval=0.3) as watched:
        watched.is_reading = False
        file.unlink()
        await watched.until(1)
        began = anyio.current_time()
        for _ in range(3):
            await watched.until_looked()
        assert anyio.current_time() - began > 0.5
        assert 1 == watched.calls


def test_fingerprints(etc: Path, write: Write) -> None:
    """Contents count, names count, and what cannot be read is no error."""
    empty = fingerprint([etc])
    file = write(etc / "servers.d/a.toml", "# 1\n")
    one = fingerprint([etc])
    file.unlink()
    file.mkdir()
    folder = fingerprint([etc])
    file.rmdir()
    file.symlink_to("a.toml")
    loop = fingerprint([etc])
    nowhere = fingerprint([Path("\0"), Path("/x" * 3000), etc])

    assert 5 == len({empty, one, folder, loop, nowhere})


def _raw(number: int, mask: int, name: str = "") -> bytes:
    padded = name.encode() + b"\0" * (16 - len(name)) if name else b""
    return struct.pack("iIII", number, mask, 0, len(padded)) + padded


def test_what_the_queue_says() -> None:
    """Several events in one read; one folder by two names; what was lost has no path; a watch that ended is none."""
    raw = _raw(1, 0x2, "a") + _raw(-1, 0x4000) + _raw(1, 0x8, "a") + _raw(2, 0x400) + _raw(9, 0x2, "x") + _raw(2, 0x100, "new")

    assert [
        FolderEvent("/one/a", is_write=True),
        FolderEvent("/two/a", is_write=True),
        FolderEvent("", is_entry=True),
        FolderEvent("/one/a", is_close=True),
        FolderEvent("/two/a", is_close=True),
        FolderEvent("/", is_entry=True),
        FolderEvent("/new", is_entry=True, is_new=True),
    ] == list(events_in(raw, {1: ["/one", "/two"], 2: ["/"]}))


@pytest.mark.parametrize(
    ("events", "is_written"),
    [
        ([], False),
        ([FolderEvent("/a", is_write=True)], True),
        ([FolderEvent("/b", is_write=True)], False),
        ([FolderEvent("/a", is_write=True), FolderEvent("/a", is_close=True)], False),
        ([FolderEvent("/a", is_write=True), FolderEvent("/a", is_entry=True)], False),
        ([FolderEvent("/a", is_write=True), FolderEvent("", is_entry=True)], False),
        ([FolderEvent("/a", is_entry=True, is_new=True)], False),
        ([FolderEvent("/e", is_entry=True, is_new=True)], True),
        ([FolderEvent("/e", is_entry=True, is_new=True), FolderEvent("/e", is_close=True)], False),
    ],
)
def test_who_is_writing(events: list[FolderEvent], is_written: bool) -> None:
    """A file is being written from the first write to its close; an empty one from the moment it was made."""
    writers = OpenWriters()
    for event in events:
        writers.took(event)

    assert is_written == writers.are_at({"/a", "/e"}, {"/e"})

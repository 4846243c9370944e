"""Whatever is wrong with the disk or the file: it is said once, memory goes on, nothing waits, and it mends by itself."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.daemon.state.rig import event

from mcpvisor.daemon.state.kept import KeptSession, Limits
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.store import KeptToken, Remembered, StandingOrder

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
TOKEN = KeptToken(value=Secret("s3cret"), expires_at=None)
ORDER = StandingOrder(wanted=Wanted.DISABLED, who="uid:0", at=1.0)

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
    reason="needs to mount in a namespace of its own",
)
SMALL_DISK = "mount -t tmpfs -o size=6m,mode=700 tmpfs {folder}"


def query(path: Path, text: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()


# No room


async def test_at_its_own_limit_the_older_half_of_the_journal_goes(opened, tmp_path):
    """A journal that fills the file makes room for what is newer, again and again, and the store is never down."""
    limits = Limits(total=2 * MIB, reserve=512 * 1024)
    async with opened(limits) as store:
        for round_ in range(8):
            for number in range(100):
                store.note(event(round_ * 100 + number, "x" * 4000))
            await store.keep_token("k", TOKEN)
            assert store.health.up

    assert (tmp_path / "state.db").stat().st_size <= limits.total
    assert [(799.0,)] == query(tmp_path / "state.db", "SELECT max(at) FROM journal")
    assert [("s3cret",)] == query(tmp_path / "state.db", "SELECT value FROM tokens")


async def test_what_does_not_fit_into_the_limit_leaves_room_for_the_rest(opened):
    """One catalog too large for the file makes the store degraded; orders and tokens still reach the disk."""
    async with opened(Limits(total=2 * MIB, reserve=512 * 1024)) as store:
        store.remember("huge", "t", Remembered(offer=Offer(instructions="x" * 3 * MIB)))
        reason = await store.until(up=False)
        store.keep_order("files", ORDER)
        with anyio.fail_after(20):
            while not (query(store.path, "SELECT who FROM orders") and query(store.path, "SELECT value FROM tokens")):
                await store.keep_token("k", TOKEN)
        store.remember("huge", "t", Remembered())
        await store.until(up=True)

    assert "there is no room left for it" in reason
    assert [("s3cret",)] == query(store.path, "SELECT value FROM tokens")


@needs_namespaces
def test_a_full_disk(rig):
    """On a full disk memory goes on; when there is room again all of it is written, and the next run has it."""
    one = rig(SMALL_DISK)
    one.ask("token", "before", "a")
    assert one.ask("fill") > 0
    one.ask("note", 0, 400, 8000)
    reason = one.until(up=False)
    one.ask("order", "files", "uid:7")
    began = time.monotonic()
    one.ask("token", "during", "b")
    waited = time.monotonic() - began
    in_memory = one.ask("ordered", "files")
    one.ask("empty")
    one.until(up=True)
    flushed = one.ask("flush")
    written = one.ask("rows", "SELECT key, value FROM tokens ORDER BY 1")

    assert {"up": True, "reason": ""} == one.began
    assert "there is no room left for it" in reason
    assert waited < 1
    assert ("uid:7", True) == (in_memory, flushed)
    assert [["before", "a"], ["during", "b"]] == written
    assert [["uid:7"]] == one.ask("rows", "SELECT who FROM orders")
    assert 0 == one.end()


@needs_namespaces
def test_small_things_are_still_written_on_a_full_disk(rig):
    """A disk that others have filled takes an order all the same: room for it was held in reserve."""
    one = rig(SMALL_DISK)
    one.ask("note", 0, 200, 4000)
    assert one.ask("flush")
    one.ask("fill")
    one.ask("order", "files", "uid:7")

    assert one.ask("flush")
    assert [["uid:7"]] == one.ask("rows", "SELECT who FROM orders")


# Not to be written


@needs_namespaces
def test_a_read_only_disk(rig, tmp_path):
    """What is on a read-only disk is read; what is new is written when it can be."""
    first = rig()
    first.ask("order", "files", "uid:7")
    first.ask("note", 0, 3, 10)
    assert 0 == first.end()
    one = rig("mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}")
    ordered, past = one.ask("ordered", "files"), one.ask("past")
    one.ask("order", "docs", "uid:8")
    one.mount("-o", "remount,bind,rw", str(tmp_path / "state"))
    one.until(up=True)

    assert (False, True) == (one.began["up"], "Read-only file system" in one.began["reason"])
    assert ("uid:7", [0, 1, 2]) == (ordered, past)
    assert one.ask("flush")
    assert [["docs", "uid:8"], ["files", "uid:7"]] == one.ask("rows", "SELECT server, who FROM orders ORDER BY 1")


# Hanging


@pytest.mark.alone
async def test_a_write_that_hangs(opened, tmp_path):
    """While another program holds the lock the store is down within seconds, nobody waits, and all is written afterwards."""
    async with opened(Limits(slow_write=1.0)) as store:
        await store.keep_token("k", TOKEN)
        with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = anyio.current_time()
            with anyio.fail_after(20):
                await store.keep_token("k", KeptToken(value=Secret("newer"), expires_at=None))
            waited = anyio.current_time() - began
            reason = store.health.reason
            again = anyio.current_time()
            await store.keep_token("l", TOKEN)
            store.keep_order("files", ORDER)
            meanwhile = anyio.current_time() - again
            in_memory = store.token("k")
            other.execute("ROLLBACK")
        await store.until(up=True)
        assert await store.flush()

    assert 1.0 <= waited < 4.0
    assert meanwhile < 0.2
    assert "a write has taken over 1 s" in reason
    assert "newer" == in_memory.value.reveal()
    assert [("k", "newer"), ("l", "s3cret")] == query(tmp_path / "state.db", "SELECT key, value FROM tokens ORDER BY 1")
    assert [True, False, True] == [one.up for one in store.told]


async def test_the_end_does_not_wait_for_a_write_that_hangs(opened, tmp_path):
    """Closing takes two seconds at the most, whatever the disk does."""
    async with opened() as store:
        await store.keep_token("k", TOKEN)
        with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            store.keep_order("files", ORDER)
            began = anyio.current_time()
            await store.close()
            took = anyio.current_time() - began
            other.execute("ROLLBACK")
    await anyio.to_thread.run_sync(_until_no_thread)

    assert 1.9 < took < 8
    assert [("uid:0",)] == query(tmp_path / "state.db", "SELECT who FROM orders")


def _until_no_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "state-store":
            thread.join(20)


async def test_a_lock_at_the_start_holds_the_start_up_for_seconds_only(opened, tmp_path):
    """The daemon starts without what it cannot read, and takes it in later; what is newer wins."""
    async with opened() as store:
        store.keep_order("files", ORDER)
        store.keep_order("docs", ORDER)
        await store.keep_token("k", TOKEN)
    other = sqlite3.connect(tmp_path / "state.db", isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    began = anyio.current_time()
    async with opened() as store:
        took = anyio.current_time() - began
        before = (store.health.up, store.standing_order("files"))
        store.keep_order("docs", None)
        other.execute("ROLLBACK")
        other.close()
        await store.until(up=True)
        after = (store.standing_order("files"), store.standing_order("docs"), store.token("k"))
        assert await store.flush()

    assert 4.5 < took < 15
    assert (False, None) == before
    assert (ORDER, None, TOKEN) == after
    assert [("files",)] == query(tmp_path / "state.db", "SELECT server FROM orders")


# Damaged, or gone


@pytest.mark.parametrize("damage", ["no database", "holes", "a table is gone"])
async def test_a_damaged_file_is_moved_aside_and_a_new_one_is_begun(opened, tmp_path, damage):
    """The start with a damaged file is a start with a new one; the damaged one is kept, and it is told once."""
    path = tmp_path / "state.db"
    async with opened() as store:
        for number in range(500):
            store.note(event(number, "x" * 500))
        await store.keep_token("old", TOKEN)
    if damage == "a table is gone":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE tokens")
    else:
        with path.open("r+b") as file:
            file.write(b"no database at all" * 500 if damage == "no database" else file.read(4096) + b"\xa5" * 100_000)
    async with opened() as store:
        await store.keep_token("new", TOKEN)
        assert store.health.up

    ((aside, reason),) = store.emptied
    assert aside.name.startswith("state.db.damaged-20")
    assert aside.exists()
    assert "it is damaged" in reason
    assert aside == store.unread_file
    assert [("new",)] == query(path, "SELECT key FROM tokens")


def session(number: int, text: str) -> KeptSession:
    name = hashlib.sha256(b"%d" % number).hexdigest()
    return KeptSession(id_hash=name, principal="p", view=None, opened_with={"text": text * 4000}, used_at=1.0)


async def test_a_file_that_is_damaged_while_it_is_used(opened, tmp_path):
    """Memory is written into a new file: nothing that the daemon knows is lost."""
    path, number = tmp_path / "state.db", 2000
    async with opened() as store:
        for one in range(number):  # more than SQLite holds in memory
            store.keep_session(session(one, "x"))
        store.keep_order("files", ORDER)
        await store.keep_token("old", TOKEN)
        assert await store.flush()
        with path.open("r+b") as file:
            file.write(b"\xa5" * path.stat().st_size)
        for one in range(number):
            store.keep_session(session(one, "y"))
        with anyio.fail_after(20):
            while not store.emptied:
                await store.keep_token("new", TOKEN)
        await store.until(up=True)
        assert await store.flush()

    ((aside, reason),) = store.emptied
    assert "it is damaged" in reason
    assert aside.exists()
    assert [("new",), ("old",)] == query(path, "SELECT key FROM tokens ORDER BY 1")
    assert [("uid:0",)] == query(path, "SELECT who FROM orders")
    assert [(number,)] == query(path, "SELECT count(*) FROM sessions WHERE CAST(opened_with AS TEXT) LIKE '%yyyy%'")


@pytest.mark.parametrize(
    ("what", "share"), [("state.db", 0.0), ("state.db", 0.5), ("state.db-wal", 0.0), ("state.db-wal", 0.5)]
)
async def test_a_file_that_is_cut_while_it_is_used(opened, tmp_path, what, share):
    """Whatever is missing of it, or of its log, is noticed before the next write: memory is in a new file, told once."""
    path = tmp_path / "state.db"
    async with opened() as store:
        for one in range(300):
            store.keep_session(session(one, "x"))
        store.keep_order("files", ORDER)
        await store.keep_token("old", TOKEN)
        assert await store.flush()
        if what == "state.db":  # what its log still holds would not be missed
            with closing(sqlite3.connect(path)) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        os.truncate(tmp_path / what, int((tmp_path / what).stat().st_size * share))
        store.keep_order("docs", ORDER)
        assert await store.flush()
        assert await store.flush()
        healthy = store.health.up
    async with opened() as again:
        known = again.standing_order("files"), again.standing_order("docs"), again.token("old"), len(again.sessions())

    ((aside, reason),) = store.emptied
    assert f"{path}: it is damaged: it was truncated while it was in use" == reason
    assert aside.exists()
    assert (True, [], []) == (healthy, [one for one in store.told if not one.up], again.emptied)
    assert (ORDER, ORDER, TOKEN, 300) == known


async def test_a_log_that_another_program_has_taken_in_is_no_damage(opened, tmp_path):
    """A checkpoint by somebody else makes the log shorter, too: nothing is told, and the next write is like any other."""
    path = tmp_path / "state.db"
    async with opened() as store:
        await store.keep_token("old", TOKEN)
        assert await store.flush()
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        length = (tmp_path / "state.db-wal").stat().st_size
        await store.keep_token("new", TOKEN)
        assert await store.flush()

    assert (0, []) == (length, store.emptied)
    assert [("new",), ("old",)] == query(path, "SELECT key FROM tokens ORDER BY 1")


async def test_an_empty_file_at_the_start_is_told(opened, tmp_path):
    """A file of 0 bytes is a new one to SQLite; whoever emptied it is told that what it held is gone."""
    path = tmp_path / "state.db"
    async with opened() as store:
        await store.keep_token("old", TOKEN)
    first = store.emptied
    os.truncate(path, 0)
    async with opened() as store:
        await store.keep_token("new", TOKEN)
        assert await store.flush()

    assert ([], [(None, f"{path} was empty (0 bytes)")]) == (first, store.emptied)
    assert [("new",)] == query(path, "SELECT key FROM tokens")


async def test_a_file_that_is_removed_while_it_is_used(opened, tmp_path):
    """A new file is begun, with all that is in memory."""
    path = tmp_path / "state.db"
    async with opened() as store:
        store.keep_order("files", ORDER)
        await store.keep_token("old", TOKEN)
        path.unlink()
        await store.keep_token("new", TOKEN)
        assert await store.flush()

    assert [(None, f"{path} was removed")] == store.emptied
    assert [("new",), ("old",)] == query(path, "SELECT key FROM tokens ORDER BY 1")
    assert [("uid:0",)] == query(path, "SELECT who FROM orders")


async def test_a_log_that_is_removed_while_it_is_used(opened, tmp_path):
    """What is written after that is in the file at once, and not lost with the process; nothing before it is lost either."""
    path = tmp_path / "state.db"
    async with opened() as store:
        store.keep_order("files", ORDER)
        await store.keep_token("old", TOKEN)
        (tmp_path / "state.db-wal").unlink()
        (tmp_path / "state.db-shm").unlink()
        await store.keep_token("new", TOKEN)
        assert await store.flush()
        seen = query(path, "SELECT key FROM tokens ORDER BY 1"), query(path, "SELECT who FROM orders")

        assert ([], True) == (store.emptied, store.health.up)
    assert ([("new",), ("old",)], [("uid:0",)]) == seen


async def test_few_damaged_files_are_kept(opened, tmp_path):
    """A disk that damages files again and again is not filled by them."""
    for _ in range(5):
        (tmp_path / "state.db").write_bytes(b"no database at all" * 500)
        async with opened() as store:
            assert store.health.up

    assert 2 == len(list(tmp_path.glob("state.db.damaged-*")))


async def test_events_that_wait_for_a_disk_are_bounded(opened, tmp_path):
    """While nothing can be written the oldest events are lost, and counted; values are not."""
    async with opened(Limits(queued_events=10, slow_write=0.5)) as store:
        await store.keep_token("k", TOKEN)
        with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            store.keep_order("first", ORDER)
            await store.until(up=False)
            for number in range(100):
                store.note(event(number))
            store.keep_order("files", ORDER)
            other.execute("ROLLBACK")
        await store.until(up=True)
        assert await store.flush()

    assert 90 == store.lost_events
    assert [(90.0, 10)] == query(tmp_path / "state.db", "SELECT min(at), count(*) FROM journal")
    assert [("files",), ("first",)] == query(tmp_path / "state.db", "SELECT server FROM orders ORDER BY 1")

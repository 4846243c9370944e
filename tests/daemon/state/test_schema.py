"""Files of other versions: an older one is brought up after a copy, a newer one is used, another format is left alone."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from mcpvisor.daemon.state.kept import KeptSession
from mcpvisor.daemon.state.schema import MIGRATIONS, VERSION, Age, age_of
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.store import KeptToken, StandingOrder

pytestmark = pytest.mark.anyio

SESSION = KeptSession(id_hash="h1", principal="uid:0", view=None, opened_with={}, used_at=1.0)
ORDER = StandingOrder(wanted=Wanted.DISABLED, who="uid:0", at=1.0)


def made(path: Path, steps: int) -> None:
    """A file as the version with so many steps left it, with one order in it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (statement for step in MIGRATIONS[:steps] for statement in step):
            connection.execute(statement)
        connection.execute("INSERT INTO orders (server, wanted, who, at) VALUES ('files', 'disabled', 'uid:0', 1.0)")
        connection.execute(f"PRAGMA user_version = {1000 + steps}")


def query(path: Path, text: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()


async def test_an_older_file_is_brought_up_after_a_copy(opened, tmp_path):
    """What it held is there, what it could not hold can be kept now, and the file as it was stands beside it."""
    path = tmp_path / "state.db"
    made(path, 1)
    async with opened() as store:
        found = store.standing_order("files")
        store.keep_session(SESSION)
        assert await store.flush()
    (copy,) = tmp_path.glob(f"state.db.before-{VERSION}-20*")

    assert ORDER == found
    assert [(VERSION,)] == query(path, "PRAGMA user_version")
    assert [("h1",)] == query(path, "SELECT id_hash FROM sessions")
    assert [(1001,)] == query(copy, "PRAGMA user_version")
    assert [("files",)] == query(copy, "SELECT server FROM orders")
    assert 0o600 == stat.S_IMODE(copy.stat().st_mode)


async def test_a_newer_file_is_used_and_keeps_what_only_its_version_knows(opened, tmp_path):
    """The version before reads and writes it; columns and tables that it does not know stay as they are."""
    path = tmp_path / "state.db"
    made(path, len(MIGRATIONS))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE orders ADD COLUMN ticket TEXT NOT NULL DEFAULT ''")
        connection.execute("CREATE TABLE undelivered (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO undelivered VALUES (7)")
        connection.execute("UPDATE orders SET ticket = 'OPS-1'")
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    async with opened() as store:
        found = store.standing_order("files")
        store.keep_order("files", StandingOrder(wanted=Wanted.DISABLED, who="uid:5", at=2.0))
        store.keep_order("docs", ORDER)
        assert await store.flush()
        assert store.health.up

    assert ORDER == found
    assert [(VERSION + 1,)] == query(path, "PRAGMA user_version")
    assert [(7,)] == query(path, "SELECT id FROM undelivered")
    assert [("docs", "uid:0", ""), ("files", "uid:5", "OPS-1")] == query(
        path, "SELECT server, who, ticket FROM orders ORDER BY 1"
    )
    assert [] == list(tmp_path.glob("*before*"))


@pytest.mark.parametrize("version", [0, 2001])
async def test_a_file_of_another_format_is_not_touched(opened, tmp_path, version):
    """Memory only, with the reason and the remedy; the file stays as it is, byte for byte."""
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE somebodys (id INTEGER PRIMARY KEY)")
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    async with opened() as store:
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=None))
        reason, token = await store.until(up=False), store.token("k")

    assert "of another mcpvisor" in reason
    assert "move it away" in reason
    assert token is not None
    assert before == path.read_bytes()


@pytest.mark.parametrize(
    ("version", "is_empty", "expected"),
    [
        (0, True, Age.FRESH),
        (0, False, Age.FOREIGN),
        (1001, False, Age.OLDER),
        (1002, False, Age.CURRENT),
        (1003, False, Age.NEWER),
        (2001, False, Age.FOREIGN),
        (999, False, Age.FOREIGN),
    ],
)
def test_the_age_of_a_file(version, is_empty, expected):
    """Steps are of one format; another format is foreign, whether it is later or earlier."""
    assert expected is age_of(version, is_empty=is_empty, current=1002)

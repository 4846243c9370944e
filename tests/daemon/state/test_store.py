"""What is handed to the state store is there at once, and there again in the next run."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from mcpvisor.daemon.state.kept import KeptSession, Limits, PastEvent
from mcpvisor.supervisor.auth.kinds import ClientCredentials
from mcpvisor.supervisor.auth.token_source import token_key
from mcpvisor.supervisor.lifecycle_messages import Wanted
from mcpvisor.supervisor.offer import Offer
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.spec import Era
from mcpvisor.supervisor.store import KeptToken, Remembered, StandingOrder
from mcpvisor.supervisor.transports.address import parse_address

pytestmark = pytest.mark.anyio

OFFER = Offer(
    tools=({"name": "read", "inputSchema": {"type": "object"}, "x-vendor": 10**25},),
    resources=({"uri": "file:///é"},),
    capabilities={"tools": {}},
    server_info={"name": "files"},
    instructions="Read.",
)
KNOWN = Remembered(era=Era.MODERN, skip_probe=True, only_sse=True, offer=OFFER)
ORDER = StandingOrder(wanted=Wanted.DISABLED, who="uid:0", at=1_700_000_000.5)
SESSION = KeptSession(
    id_hash="h1",
    principal="uid:0",
    view="files",
    opened_with={"protocolVersion": "x"},
    used_at=1000.0,
    watched=("memo://a", "MiXeD://B/"),
)


def rows(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def event(number: int, server: str = "files") -> PastEvent:
    view = {"kind": "k", "at": float(number), "server": server, "number": number}
    return PastEvent(at=float(number), server=server, kind="k", view=view)


async def test_everything_is_there_again_in_the_next_run(opened):
    """Values, orders, tokens, sessions and events come back exactly as they were given."""
    async with opened() as store:
        store.remember("files", "t", KNOWN)
        store.keep_order("files", ORDER)
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=5.5))
        store.keep_session(SESSION)
        store.note(event(1))
    async with opened() as store:
        found = (
            store.recall("files", "t"),
            store.standing_order("files"),
            store.token("k"),
            store.sessions(),
            store.past,
        )

    assert (KNOWN, ORDER, KeptToken(value=Secret("s3cret"), expires_at=5.5), [SESSION], [event(1)]) == found


async def test_what_is_ended_does_not_come_back(opened):
    """An order that was ended, a token and a session that were dropped are gone in the next run, too."""
    async with opened() as store:
        store.keep_order("files", ORDER)
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=None))
        store.keep_session(SESSION)
    async with opened() as store:
        store.keep_order("files", None)
        await store.keep_token("k", None)
        store.forget_session("h1")
        store.forget_session("nobody's")
    async with opened() as store:
        found = (store.standing_order("files"), store.token("k"), store.sessions())

    assert (None, None, []) == found


async def test_what_is_known_of_one_server_is_not_taken_for_another(opened):
    """A server that is reached in another way is unknown."""
    async with opened() as store:
        store.remember("files", "t", KNOWN)

        assert (KNOWN, None, None) == (store.recall("files", "t"), store.recall("files", "u"), store.recall("docs", "t"))


async def test_a_token_is_on_disk_when_keep_token_returns(opened, tmp_path):
    """Whoever has kept a token may drop the former one."""
    async with opened() as store:
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=None))

        assert [("k", "s3cret")] == rows(tmp_path / "state.db", "SELECT key, value FROM tokens")


async def test_nobody_else_can_read_the_files(opened, tmp_path):
    """Each file of the store is for the daemon's user only, also one that was open to others before."""
    (tmp_path / "state.db").touch(0o644)
    os.chmod(tmp_path / "state.db", 0o644)
    async with opened() as store:
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=None))
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    assert {"state.db", "state.db-wal", "state.db-shm", "state.reserve"} == set(modes)
    assert {0o600} == set(modes.values())


async def test_a_link_is_not_followed(opened, tmp_path):
    """A link in place of the file is not used: whoever made it decides what is written."""
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "state.db").symlink_to(tmp_path / "victim")
    async with opened() as store:
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=None))

        assert not store.health.up
        assert b"" == (tmp_path / "victim").read_bytes()


async def test_a_session_that_is_only_used_is_written_once_a_minute(opened, tmp_path):
    """The time of the last use is in memory at once; the disk hears of it when a minute has passed."""
    async with opened() as store:
        for used_at in (1000.0, 1030.0, 1059.0):
            store.keep_session(replace(SESSION, used_at=used_at))
            assert await store.flush()
        written = rows(tmp_path / "state.db", "SELECT used_at FROM sessions")
        store.keep_session(replace(SESSION, used_at=1061.0))
        assert await store.flush()
        later = rows(tmp_path / "state.db", "SELECT used_at FROM sessions")

        assert ([(1000.0,)], [(1061.0,)]) == (written, later)
        assert 1061.0 == store.sessions()[0].used_at


async def test_the_newest_events_of_each_server_are_read_back(opened):
    """A server that says much does not hide what another one said."""
    async with opened() as store:
        store.note(event(0, "quiet"))
        for number in range(1, 301):
            store.note(event(number, "loud"))
    async with opened() as store:
        assert [0, *range(201, 301)] == [one.view["number"] for one in store.past]


async def test_the_journal_keeps_to_its_rows_and_its_age(opened, tmp_path):
    """What is too old, and what is too much, is dropped."""
    now = time.time()
    limits = Limits(journal_rows=10, journal_seconds=3600.0)
    async with opened(limits) as store:
        store.note(event(1))
        for number in range(20):
            store.note(replace(event(number), at=now))
    async with opened(limits) as store:
        assert store.health.up

    assert 10 == rows(tmp_path / "state.db", "SELECT count(*) FROM journal WHERE at > 1")[0][0]
    assert 10 == rows(tmp_path / "state.db", "SELECT count(*) FROM journal")[0][0]


async def test_what_is_known_of_a_server_goes_a_while_after_its_entry(opened):
    """A server that is out of the configuration for a moment is still disabled; after thirty days it is forgotten."""
    now, day = time.time(), 86400.0
    async with opened() as store:
        for name in ("here", "gone"):
            store.remember(name, "t", KNOWN)
            store.keep_order(name, ORDER)
        store.configured(["here"], now + 29 * day)
        early = [store.standing_order(name) for name in ("here", "gone")]
        store.configured(["here"], now + 31 * day)
        late = [(store.standing_order(name), store.recall(name, "t")) for name in ("here", "gone")]
    async with opened() as store:
        kept = [store.standing_order(name) for name in ("here", "gone")]

    assert [ORDER, ORDER] == early
    assert [(ORDER, KNOWN), (None, None)] == late
    assert [ORDER, None] == kept


def key_of(server: str) -> str:
    url = "https://mcp.example/mcp"
    auth = ClientCredentials(client_id="c", client_secret=Secret("s3cret"), token_url="https://id.example/token")
    return token_key(server, parse_address(url), auth)


async def test_tokens_go_with_their_servers_and_their_time(opened, tmp_path):
    """A token of a server that is not configured any more, and one that has expired, are not left on disk."""
    async with opened() as store:
        for server, expires_at in (("here", 2000.0), ("gone", 2000.0), ("lasting", None), ("old", 999.0)):
            await store.keep_token(key_of(server), KeptToken(value=Secret("s3cret"), expires_at=expires_at))
        await store.keep_token("no key of ours", KeptToken(value=Secret("s3cret"), expires_at=None))
        store.configured(["here", "lasting", "old"], 1000.0)
        assert await store.flush()
        kept = rows(tmp_path / "state.db", "SELECT key FROM tokens ORDER BY key")

        assert [(key_of("here"),), (key_of("lasting"),)] == kept
        assert store.token(key_of("old")) is None


async def test_a_row_that_makes_no_sense_costs_only_itself(opened, tmp_path):
    """What cannot be understood is left out, and where it is; all the rest is there."""
    async with opened() as store:
        store.remember("files", "t", KNOWN)
        store.remember("docs", "t", KNOWN)
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
        connection.execute("UPDATE servers SET era = 'bronze' WHERE name = 'docs'")
    async with opened() as store:
        found = (store.recall("files", "t"), store.recall("docs", "t"))

    assert (KNOWN, None) == found
    assert [("docs", "bronze"), ("files", "modern")] == rows(tmp_path / "state.db", "SELECT name, era FROM servers ORDER BY 1")


def offer_text(**parts: object) -> bytes:
    return json.dumps(parts).encode()


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ("UPDATE sessions SET used_at = ?", ["abc"]),
        ("UPDATE sessions SET principal = ?", [b"uid:0"]),
        ("UPDATE sessions SET view = ?", [b"files"]),
        ("UPDATE sessions SET opened_with = ?", ["[]"]),
        ("UPDATE sessions SET watched = ?", ['["memo://a"]']),
        ("UPDATE sessions SET watched = ?", ['{"uris": {}}']),
        ("UPDATE sessions SET watched = ?", ['{"uris": [7]}']),
        ("UPDATE sessions SET watched = ?", [b"{}"]),
        ("UPDATE tokens SET value = ?", [b"s3cret"]),
        ("UPDATE tokens SET value = CAST(? AS TEXT)", [b"s3cret\xff"]),
        ("UPDATE tokens SET expires_at = ?", ["abc"]),
        ("UPDATE orders SET at = ?", ["abc"]),
        ("UPDATE orders SET who = ?", [b"\xff"]),
        ("UPDATE orders SET seen_at = ?", [1e300]),
        ("UPDATE servers SET seen_at = ?", ["abc"]),
        ("UPDATE servers SET skip_probe = ?", ["abc"]),
        ("UPDATE servers SET name = ?", [b"files"]),
        ("UPDATE servers SET offer = ?", [3]),
        ("UPDATE servers SET offer = ?", [offer_text(server_info="x")]),
        ("UPDATE servers SET offer = ?", [offer_text(capabilities=3)]),
        ("UPDATE servers SET offer = ?", [offer_text(prompts=None)]),
        ("UPDATE servers SET offer = ?", [offer_text(tools="***")]),
        ("UPDATE servers SET offer = ?", [offer_text(tools=[{"name": "a", "inputSchema": "***"}])]),
        ("UPDATE servers SET offer = ?", [offer_text(resources=[{"name": "a"}])]),
        ("UPDATE servers SET offer = ?", [offer_text(resource_templates=["a"])]),
        ("UPDATE servers SET offer = ?", [offer_text(instructions=["a"])]),
        ("UPDATE journal SET at = ?", [1e300]),
        ("UPDATE journal SET event = ?", [b'{"at": 1.0, "server": "files"}']),
        ("UPDATE journal SET event = ?", [b'{"at": 1e300, "server": "files", "kind": "k"}']),
        ("UPDATE journal SET event = ?", [b'[{"at": 1.0}]']),
        ("UPDATE journal SET event = ?", [3]),
    ],
)
async def test_a_row_with_a_wrong_type_costs_only_itself(opened, tmp_path, caplog, change, values):
    """Whoever has edited the file, every field is checked before anybody relies on it; what is left out is counted."""
    async with opened() as store:
        store.remember("files", "t", KNOWN)
        store.keep_order("files", ORDER)
        await store.keep_token("k", KeptToken(value=Secret("s3cret"), expires_at=5.5))
        store.keep_session(SESSION)
        store.note(event(1))
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
        connection.execute(change, values)
    async with opened() as store:
        known = [store.recall("files", "t"), store.standing_order("files"), store.token("k")]
        found = [*known, *store.sessions(), *store.past]
        assert store.health.up

    assert 4 == sum(one is not None for one in found)
    assert ["rows of the state file that make no sense, and are left where they are: 1"] == caplog.messages


async def test_a_value_that_json_cannot_say_costs_only_itself(opened):
    """A lone surrogate in what a server offers is no reason to lose anything else."""
    async with opened() as store:
        store.remember("odd", "t", Remembered(offer=Offer(instructions="\ud800")))
        store.keep_session(SESSION)
        store.remember("files", "t", KNOWN)
        assert await store.flush()
    async with opened() as store:
        found = (store.recall("odd", "t"), store.recall("files", "t"), store.sessions())

    assert (None, KNOWN, [SESSION]) == found

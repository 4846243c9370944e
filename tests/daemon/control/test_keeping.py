"""What the control API says of the state store, and to whom it gives a copy."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from typing import Any, BinaryIO

import pytest
from prometheus_client import CollectorRegistry
from starlette.requests import Request

from mcpvisor.daemon.control.answers import ApiError
from mcpvisor.daemon.control.backup import Backup
from mcpvisor.daemon.control.keeping import NoCopy
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.daemon.state.keeper import Keeper
from mcpvisor.metrics.recorder import MetricsRecorder
from mcpvisor.supervisor.events import ProbeMissed, ServerRemoved
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch
from mcpvisor.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.anyio

STORE = {
    "up": False,
    "reason": "/var/lib/x/state.db: there is no room left for it",
    "since": 5.0,
    "path": "/var/lib/x/state.db",
}
EARLIER = {"kind": "process_ended", "at": 1.0, "server": "good", "exit_code": 2, "earlier": True}
OF_ANOTHER = {"kind": "process_ended", "at": 2.0, "server": "gone", "exit_code": 3, "earlier": True}
OWN = {"kind": "guardian_lost", "at": 3.0}


class Kept:
    """A store that says what a test wants."""

    def state_store(self) -> dict[str, Any]:
        return STORE

    def __init__(self, copy: bytes | None = None) -> None:
        self._copy = copy
        self.events = [(0, EARLIER), (0, OF_ANOTHER), (1_000_000, OWN)]

    def past(self, server: str | None = None) -> list[dict[str, Any]]:
        return [one for _, one in self.numbered(server)]

    def numbered(self, server: str | None = None) -> list[tuple[int, dict[str, Any]]]:
        return [kept for kept in self.events if server in (None, kept[1].get("server"))]

    async def copy(self) -> BinaryIO:
        if self._copy is None:
            raise NoCopy("the state store is degraded: why")
        file = tempfile.TemporaryFile()  # noqa: SIM115 - who asked for it closes it
        file.write(self._copy)
        file.seek(0)
        return file


def request(who: str) -> Request:
    return Request({"type": "http", "method": "GET", "path": "/v1/backup", "headers": [], "client": (who, 1)})


async def test_the_status_says_how_the_store_is(api):
    """`state_store` has what an operator needs; without a store it is null."""
    async with api.served(keeping=Kept()), api.client() as client:
        status = (await client.get("/v1/status")).json()
    assert STORE == status["state_store"]
    async with api.served(), api.client() as client:
        assert (await client.get("/v1/status")).json()["state_store"] is None


async def test_events_of_the_past_stand_in_their_order(api):
    """Events of earlier runs, and the daemon's own, are among those of the servers, in the order in which they came."""
    async with api.served(keeping=Kept()), api.client() as client:
        api.supervisor.bus.emit(ProbeMissed(at=2.5, server="good", misses=1, allowed=3))

        async def events(query: str) -> list[tuple[str, float]]:
            found = (await client.get(f"/v1/events?follow=false{query}")).json()["events"]
            return [(one["kind"], one["at"]) for one in found]

        everything = await events("")
        of_one = await events("&server=good")
        of_kind = await events("&kind=process_ended")
        newest = await events("&backlog=1")
        explained = (await client.get("/v1/servers/good")).json()

    assert [("process_ended", 1.0), ("process_ended", 2.0), ("probe_missed", 2.5), ("guardian_lost", 3.0)] == everything
    assert [("process_ended", 1.0), ("probe_missed", 2.5)] == of_one
    assert [("process_ended", 1.0), ("process_ended", 2.0)] == of_kind
    assert [("guardian_lost", 3.0)] == newest
    assert ["process_ended", "probe_missed"] == [one["kind"] for one in explained["events"]]
    assert "" == explained["cause"]


async def test_a_clock_that_was_set_back_hides_nothing(api):
    """What came last stands last and is among the newest, though the wall clock is an hour behind what came before."""
    async with api.served(keeping=Kept()), api.client() as client:
        for at, server in ((4000.0, "good"), (4001.0, "bad"), (400.0, "good"), (401.0, "bad")):
            api.supervisor.bus.emit(ProbeMissed(at=at, server=server, misses=1, allowed=3))
        missed = (await client.get("/v1/events?follow=false&kind=probe_missed")).json()["events"]
        newest = (await client.get("/v1/events?follow=false&kind=probe_missed&backlog=2")).json()["events"]

    assert [4000.0, 4001.0, 400.0, 401.0] == [one["at"] for one in missed]
    assert [400.0, 401.0] == [one["at"] for one in newest]


async def test_a_server_that_has_left_is_told_from_a_name_that_is_unknown(api):
    """Who looks for it is told when it left, and sees its end among the events; a name of an earlier run alone is unknown."""
    kept = Kept()
    removed = {"kind": "server_removed", "at": 900.0, "server": "left"}
    kept.events = [(0, OF_ANOTHER), (5, removed)]
    async with api.served(keeping=kept), api.client() as client:
        left, unknown = await client.get("/v1/servers/left"), await client.get("/v1/servers/gone")
        events = await client.get("/v1/events?follow=false&server=left")

    assert (404, 404) == (left.status_code, unknown.status_code)
    told = "no server is named 'left' any more: it was removed at "
    assert left.json()["error"]["message"].startswith(f"{told}{iso_time(900.0)}")
    assert "any more" not in unknown.json()["error"]["message"]
    assert [removed] == events.json()["events"]


async def test_the_end_of_a_server_is_kept_for_this_run(tmp_path):
    """Its history goes with it; that it was removed is found by its name and among all events."""
    keeper = Keeper(tmp_path)
    async with Supervisor() as supervisor, keeper.kept(supervisor, MetricsRecorder(CollectorRegistry(), version="1")):
        supervisor.bus.emit(ServerRemoved(at=5.0, server="left"))
        found = [keeper.past("left"), keeper.past("other"), keeper.past()]

    assert [["server_removed"], [], ["server_removed"]] == [[one["kind"] for one in each] for each in found]


async def test_what_is_written_anew_stands_in_the_order_in_which_it_came(tmp_path):
    """A journal that has to begin again holds the events of all servers as they came, whatever the wall clock said."""
    keeper = Keeper(tmp_path)
    specs = [ServerSpec(name=name, target=StdioLaunch(command="true"), enabled=False) for name in ("a", "b")]
    async with Supervisor() as supervisor, keeper.kept(supervisor, MetricsRecorder(CollectorRegistry(), version="1")):
        await supervisor.apply(specs)
        for at, name in ((4000.0, "a"), (4001.0, "b"), (400.0, "a"), (401.0, "b")):
            supervisor.tell(ProbeMissed(at=at, server=name, misses=1, allowed=3))
        assert await keeper.store.flush()
        with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
            connection.execute("DELETE FROM journal")
            connection.commit()
        keeper.store.on_emptied(None, "a test")
        assert await keeper.store.flush()
        with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
            written = connection.execute("SELECT at FROM journal WHERE kind = 'probe_missed' ORDER BY id").fetchall()

    assert [(4000.0,), (4001.0,), (400.0,), (401.0,)] == written


async def test_a_copy_comes_whole(api):
    """The length is told before, so that a copy that breaks off is seen."""
    data = os.urandom(1_000_000)
    async with api.served(keeping=Kept(data)), api.client() as client:
        answer = await client.get("/v1/backup")

    assert (200, data, str(len(data))) == (answer.status_code, answer.content, answer.headers["content-length"])


async def test_a_store_that_is_degraded_gives_no_copy(api):
    """The refusal has the reason."""
    async with api.served(keeping=Kept()), api.client() as client:
        answer = await client.get("/v1/backup")

    assert (400, "the state store is degraded: why") == (answer.status_code, answer.json()["error"]["message"])


async def test_only_root_and_the_daemons_user_get_a_copy():
    """The socket is open to a group; the credentials in the state are not for it."""
    backup = Backup(Kept(b"data"))
    with pytest.raises(ApiError) as refused:
        await backup.backup(request(f"uid:{os.geteuid() + 12345}"))
    given: list[bytes] = []

    async def send(message: Any) -> None:
        given.append(message.get("body", b""))

    for uid in (0, os.geteuid()):
        asked = request(f"uid:{uid}")
        await (await backup.backup(asked))(asked.scope, asked.receive, send)

    assert ("PERMISSION_DENIED", b"datadata") == (refused.value.status, b"".join(given))
    assert "holds credentials" in refused.value.message

"""What a server that means harm costs a running daemon: one named refusal, and its neighbours next to nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.running import entry, puppet
from tests.e2e.siege import MAX_GROWTH, MAX_HELD, Besieged, Client, Gauges, LostItsPace, again_where_slow, besieged

pytestmark = pytest.mark.alone

CALLS = 500

MESSAGES = {
    "brackets": "values",
    "depth": "depth",
    "surrogate": "syntax",
    "nan": "syntax",
    "huge-int": "syntax",
}
"""The weapons that are one message, and the reason of their refusal."""

ANSWERS = {**MESSAGES, "big": "size"}
ANSWERS_OVER_HTTP = {**ANSWERS, "gzip": "size", "sse-line": "size"}
FLOODS = ("notifications", "requests")
WORDS = ("brackets", "depth", "surrogate")

LISTS = {**{weapon: MESSAGES[weapon] for weapon in WORDS}, "one": "size"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    """A daemon with a hostile server on each transport, and a quiet one; it has to outlive all of it."""
    servers = Path(__file__).parents[1] / "servers"
    over_http = subprocess.Popen([sys.executable, servers / "hostile.py", "--http"], stdout=subprocess.PIPE)
    assert over_http.stdout is not None
    url = over_http.stdout.readline().decode().strip()
    entries = (
        puppet("stdio", servers / "hostile.py") + entry("http", url=url) + puppet("quiet", servers / "lite.py", "--name", "q")
    )
    try:
        with besieged(tmp_path_factory.mktemp("d"), entries, ready=("stdio", "http", "quiet")) as daemon:
            yield daemon
    finally:
        over_http.kill()
        over_http.wait()
        over_http.stdout.close()


class Attack:
    """One attack of a server under all gauges, while another call to the same server is under way."""

    def __init__(self, daemon: Besieged, server: str) -> None:
        self.daemon = daemon
        self.server = server
        self.answer: dict[str, Any] = {}
        self._tool = f"{server}__attack"

    def run(self, weapon: str, way: str, **arguments: Any) -> dict[str, int]:
        """Attack, check what must hold whatever the weapon is, and return the refusals."""
        daemon = self.daemon
        generation = daemon.server(self.server)["generation"]
        before = daemon.refused("server")
        neighbour = daemon.neighbour
        # The gauges ask the daemon all the time; the calm is to be measured beside them as well.
        with Gauges(daemon) as gauges:
            with neighbour.phase("attack", least=CALLS):
                kept = self._beside(weapon, way, arguments)
                if weapon not in FLOODS:
                    daemon.until(lambda: daemon.refused("server") != before, "a refusal")
            kept_its_pace = neighbour.keeps_its_pace("attack")
        daemon.until(lambda: self._is_peace() and daemon.refused("server") != before, "peace and a refusal")
        refusals = {reason: count - before.get(reason, 0) for reason, count in daemon.refused("server").items()}

        assert "result" in kept
        assert daemon.server(self.server)["generation"] == generation
        assert gauges.held < MAX_HELD
        assert gauges.lag < MAX_HELD
        assert gauges.growth < MAX_GROWTH
        if not kept_its_pace:
            raise LostItsPace(f"calls beside {weapon} were slow")
        return {reason: count for reason, count in refusals.items() if count}

    def _is_peace(self) -> bool:
        """Whether the server is well again; it is asked to say that its list is as it was, which also has us read on."""
        client = Client(self.daemon).open()
        client.call(self._tool, name="peace", way="list")
        client.close()
        return self.daemon.server(self.server)["state"] == "ready"

    def _beside(self, weapon: str, way: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Fire while a call to the same server is being answered; returns the answer to that call."""
        kept: dict[str, Any] = {}
        caller, attacker = Client(self.daemon).open(), Client(self.daemon).open()
        thread = threading.Thread(target=lambda: kept.update(caller.call(f"{self.server}__wait", seconds=0.3)))
        thread.start()
        self.daemon.until(lambda: self.daemon.server(self.server)["in_flight"], "the call beside it")
        self.answer = attacker.call(self._tool, name=weapon, way=way, **arguments)
        thread.join()
        caller.close()
        attacker.close()
        return kept


@pytest.mark.parametrize(
    ("server", "weapon"), [*(("stdio", weapon) for weapon in ANSWERS), *(("http", weapon) for weapon in ANSWERS_OVER_HTTP)]
)
@again_where_slow
def test_hostile_answers(daemon: Besieged, server: str, weapon: str):
    """A hostile answer fails its own call with one named refusal; the session, other calls and other servers go on."""
    attack = Attack(daemon, server)
    refusals = attack.run(weapon, "answer")
    failure = attack.answer["error"]["data"]["mcpvisor"]

    assert {ANSWERS_OVER_HTTP[weapon]: 1} == refusals
    assert {"server": server, "outcome": "maybe_executed", "cause": "answer_refused"} == failure
    assert "was refused" in attack.answer["error"]["message"]


@pytest.mark.parametrize(
    ("server", "weapon"),
    [*(("stdio", weapon) for weapon in WORDS), *(("http", weapon) for weapon in (*WORDS, "sse-line"))],
)
@again_where_slow
def test_hostile_words(daemon: Besieged, server: str, weapon: str):
    """What nobody asked for and nobody can read is one named refusal, and fails no call at all."""
    attack = Attack(daemon, server)
    refusals = attack.run(weapon, "unasked")

    assert {ANSWERS_OVER_HTTP[weapon]: 1} == refusals
    assert "result" in attack.answer


@pytest.mark.parametrize(("server", "weapon"), [(server, weapon) for weapon in LISTS for server in ("stdio", "http")])
@again_where_slow
def test_hostile_lists(daemon: Besieged, server: str, weapon: str):
    """A list that cannot be read is one named refusal; the one that is known stays, and calls go on."""
    attack = Attack(daemon, server)
    refusals = attack.run(weapon, "list")

    assert {LISTS[weapon]: 1} == refusals
    assert daemon.server(server)["tools"] == 2


@pytest.mark.parametrize(
    ("server", "weapon"), [(server, weapon) for weapon in ("pages", "schemas") for server in ("stdio", "http")]
)
@again_where_slow
def test_endless_lists(daemon: Besieged, server: str, weapon: str):
    """Of ten thousand tools of 64 KiB those within the limits are kept, the rest is one named refusal."""
    attack = Attack(daemon, server)
    refusals = attack.run(weapon, "list")
    told = [event for event in daemon.explain(server)["events"] if event["kind"] == "catalog_entry_dropped"]

    assert {"size" if weapon == "pages" else "values": 1} == refusals
    assert any(event["entry"] == "the list" for event in told)


@pytest.mark.parametrize(
    ("server", "way", "thousands"),
    [("stdio", "answer", 200), ("stdio", "unasked", 50), ("http", "answer", 100), ("http", "unasked", 50)],
)
@again_where_slow
def test_floods_of_notifications(daemon: Besieged, server: str, way: str, thousands: int):
    """Up to 200,000 notifications are dropped above the rate, told of once a second, and the answer behind them comes."""
    attack = Attack(daemon, server)
    refusals = attack.run("notifications", way, count=thousands)

    assert {"rate"} == refusals.keys()
    assert refusals["rate"] < 30
    assert "result" in attack.answer


@pytest.mark.parametrize("server", ["stdio", "http"])
@again_where_slow
def test_floods_of_requests(daemon: Besieged, server: str):
    """Requests of the server above the rate are refused, and never hold anybody up."""
    attack = Attack(daemon, server)
    refusals = attack.run("requests", "answer")

    assert {"rate"} == refusals.keys()
    assert "result" in attack.answer


@again_where_slow
def test_floods_of_log_messages_with_many_sessions(daemon: Besieged):
    """What a server logs for everybody is passed on to many sessions without holding anybody up."""
    with ExitStack() as sessions:
        for _ in range(150):
            sessions.enter_context(closing(Client(daemon).open()))
        attack = Attack(daemon, "stdio")
        refusals = attack.run("notifications", "unasked", count=50)

    assert {"rate"} == refusals.keys()

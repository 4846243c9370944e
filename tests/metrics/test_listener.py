"""The metrics listener over real sockets: apart from the loop, bounded, and quick to end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import anyio.to_thread
import pytest
from tests.waiting import until

from mcpvisor.metrics.listener import MetricsServer, parse_listen
from mcpvisor.metrics.scrapers import SCRAPES_AT_ONCE, WAITING_AT_ONCE, Shortage


@pytest.fixture
def server(scene) -> Iterator[MetricsServer]:
    serving = MetricsServer(scene.registry, ["127.0.0.1:0"])
    serving.start()
    yield serving
    serving.stop()


def scrape(server: MetricsServer, accept: str = "") -> bytes:
    request = urllib.request.Request(f"http://{server.addresses[0]}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read()


def connect(server: MetricsServer) -> socket.socket:
    host, port = parse_listen(server.addresses[0])
    return socket.create_connection((host, port), timeout=20)


def scraped_or_refused(server: MetricsServer) -> bytes:
    try:
        return scrape(server)
    except urllib.error.HTTPError as refused:
        return refused.read()


class SlowCollector:
    """Keeps the scrape that it is asked for first, and so all others, until they may go on."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.go_on = threading.Event()

    def describe(self) -> list[object]:
        return []

    def collect(self) -> list[object]:
        self.is_asked.set()
        assert self.go_on.wait(20)
        return []


def test_port_0_takes_a_free_one_and_says_which(server):
    """The port taken is reported, and it answers."""
    assert not server.addresses[0].endswith(":0")
    assert b"mcpvisor_build_info" in scrape(server)


def test_several_addresses_are_served(scene):
    """Each listed address answers, IPv6 included."""
    server = MetricsServer(scene.registry, ["127.0.0.1:0", "[::1]:0"])
    server.start()
    try:
        answers = [urllib.request.urlopen(f"http://{address}/metrics", timeout=20).status for address in server.addresses]
    finally:
        server.stop()

    assert [200, 200] == answers


def test_a_taken_port_is_one_clear_error_and_nothing_stays_bound(scene, server):
    """When one address cannot be had, the error names it and the others are given back."""
    taken = server.addresses[0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        other = f"127.0.0.1:{free.getsockname()[1]}"
    second = MetricsServer(scene.registry, [other, taken])
    with pytest.raises(OSError, match=f"metrics.listen: {taken}: Address already in use; another program has it"):
        second.start()

    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(parse_listen(other))


@pytest.mark.parametrize("listen", ["", "9433", "localhost", "::1:9433", "127.0.0.1:x", "127.0.0.1:70000", "unix:/run/x"])
def test_a_bad_listen_names_the_key_and_the_remedy(listen):
    """An address that cannot be read is an error that names the key."""
    with pytest.raises(ValueError, match=r"\[metrics\] listen"):
        parse_listen(listen)


def test_a_slow_scraper_blocks_nobody(server):
    """Readers that send half a head, or take nothing, leave the others their answer."""
    stuck = [connect(server) for _ in range(WAITING_AT_ONCE)]
    for connection in stuck:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
    try:
        assert b"mcpvisor_build_info" in scrape(server)
    finally:
        for connection in stuck:
            connection.close()


def test_who_only_connects_gives_way_to_who_asks(server):
    """However many connections ask nothing, each scrape is answered; the oldest of them are closed for the newest."""
    with contextlib.ExitStack() as exits:
        idle = [exits.enter_context(connect(server)) for _ in range(WAITING_AT_ONCE + 4)]
        idle[0].settimeout(20)
        assert b"" == idle[0].recv(10)
        for _ in range(3):
            idle += [exits.enter_context(connect(server)) for _ in range(SCRAPES_AT_ONCE)]
            assert b"mcpvisor_build_info" in scrape(server)


def test_a_request_that_has_arrived_whole_is_served(server):
    """Newcomers take no place of one that has asked, however many they are."""
    with contextlib.ExitStack() as exits:
        asking = exits.enter_context(connect(server))
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for _ in range(4 * WAITING_AT_ONCE):
            exits.enter_context(connect(server))

        assert asking.recv(100).startswith(b"HTTP/1.1 200 ")


def test_a_head_that_comes_in_pieces_is_put_together(server):
    """What a scraper says is read to its end, whatever it arrives in."""
    with connect(server) as asking:
        for piece in (b"GET /metrics HT", b"TP/1.1\r\nHost: 127.0.0.1\r", b"\n\r", b"\n"):
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asking.sendall(piece)
            assert b"mcpvisor_build_info" in scrape(server)

        assert asking.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.anyio
async def test_who_takes_no_answer_gives_way(scene, server):
    """Readers that ask and take nothing hold no place that another needs."""
    scene.fill(200)
    address = parse_listen(server.addresses[0])
    with contextlib.ExitStack() as exits:
        for _ in range(SCRAPES_AT_ONCE):
            stuck = exits.enter_context(socket.socket())
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(address)
            stuck.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: b"mcpvisor_build_info" in scraped_or_refused(server))


def test_too_many_scrapes_at_once_are_told_so(scene, server):
    """When all places are held by scrapes that are worked on, a further one gets 503 at once instead of waiting."""
    slow = SlowCollector()
    scene.registry.register(slow)
    with contextlib.ExitStack() as exits:
        asking = [exits.enter_context(connect(server)) for _ in range(SCRAPES_AT_ONCE)]
        for one in asking:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert slow.is_asked.wait(20)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            scrape(server)
        slow.go_on.set()

        assert [b"HTTP/1.1 200 "] * SCRAPES_AT_ONCE == [one.recv(100)[:13] for one in asking]


def test_want_of_room_is_logged_once(server, caplog):
    """A flood of connections is one warning that says what was done about it, not one for each."""
    with contextlib.ExitStack() as exits:
        for _ in range(3 * WAITING_AT_ONCE):
            exits.enter_context(connect(server))
        assert b"mcpvisor_build_info" in scrape(server)

    told = [record.message for record in caplog.records]
    assert 1 == len(told), told
    assert "connections that asked nothing, or took no answer, were closed for newer ones" in told[0]


def test_a_shortage_is_told_when_it_begins_and_then_once_a_minute():
    """What came meanwhile is counted, and nothing is told twice or left out."""
    shortage = Shortage()
    assert "" == shortage.tell(0.0)
    shortage.gave_way(10.0)
    assert "metrics: too many connections at once: 1 connections that asked nothing" in shortage.tell(10.0)
    for at in range(11, 40):
        shortage.gave_way(float(at))
        shortage.refused(float(at))
    assert "" == shortage.tell(69.9)
    assert 70.0 == shortage.due_at
    told = shortage.tell(70.0)
    assert "29 connections" in told
    assert "29 scrapes were refused" in told
    assert shortage.due_at is None


def test_a_head_without_end_is_refused(server):
    """A head beyond its limit is answered, not collected."""
    with connect(server) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 16_400)
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")


@pytest.mark.alone
def test_stop_ends_everything_within_a_second(scene):
    """Open scrapes do not hold up the end, and the port is free again."""
    server = MetricsServer(scene.registry, ["127.0.0.1:0"])
    server.start()
    address = parse_listen(server.addresses[0])
    with connect(server) as open_scrape:
        open_scrape.sendall(b"GET")
        start = time.monotonic()
        server.stop()
        took = time.monotonic() - start
        with contextlib.suppress(ConnectionResetError):  # how it ends depends on whether its half a head was read
            assert b"" == open_scrape.recv(10)

    assert took < 1.0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=20)


@pytest.mark.alone
def test_200_servers_are_scraped_in_half_a_second(scene, server):
    """A scrape of 200 busy servers takes less than 500 ms in either format."""
    scene.fill(200)
    took = []
    for accept in ("text/plain", "application/openmetrics-text"):
        start = time.monotonic()
        body = scrape(server, accept)
        took.append(time.monotonic() - start)
        assert body.count(b"\n") > 20_000

    assert max(took) < 0.5, took


@pytest.mark.anyio
async def test_a_stuck_loop_can_be_scraped(scene, server):
    """While the event loop is blocked the metrics answer, and show its lag."""
    scene.recorder.loop_ticked()
    deadline = time.monotonic() + 5
    lag = 0.0
    while lag < 0.3 and time.monotonic() < deadline:  # blocks the loop on purpose
        page = scrape(server).decode()
        lag = next(float(li.split()[1]) for li in page.splitlines() if li.startswith("mcpvisor_event_loop_lag_seconds "))

    assert lag >= 0.3


@pytest.mark.alone
@pytest.mark.anyio
async def test_a_scrape_costs_the_loop_no_more_than_50_ms(scene, server):
    """While 200 servers are scraped the loop's wake-ups come less than 50 ms late, but for one in fifty."""
    scene.fill(200)
    late: list[float] = []
    scraping = asyncio.create_task(anyio.to_thread.run_sync(scrape, server))
    gc.collect()
    while not scraping.done():
        start = time.monotonic()
        await asyncio.sleep(0.002)
        late.append(time.monotonic() - start - 0.002)
    await scraping

    late.sort()
    assert late[int(len(late) * 0.98) - 1] < 0.05, late[-5:]

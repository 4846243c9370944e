"""The log over real pipes and sockets: its forms, its sources, and that it never makes anybody wait."""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import json
import logging
import mmap
import os
import pty
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import structlog
from tests.stopwatch import Stopwatch

from mcpvisor.daemon.log import Log, choose_writer, is_journal
from mcpvisor.daemon.log_sink import QUEUE_CHARACTERS, QUEUE_RECORDS, LogRecord
from mcpvisor.daemon.log_writers import ConsoleWriter, JournalWriter, JsonWriter, encode_journal, journal_fields, message_id
from mcpvisor.supervisor.known_secrets import KnownSecrets
from mcpvisor.supervisor.secret import Secret


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The logging of the test run itself is put back."""
    root, ours = logging.getLogger(), logging.getLogger("mcpvisor")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


class Lines:
    """An installed log that writes JSON into a pipe."""

    def __init__(self, level: str = "info", known_secrets: KnownSecrets | None = None) -> None:
        self.reading, writing = os.pipe()
        self.log = Log(JsonWriter(writing), level=level, known_secrets=known_secrets)
        self.log.install()
        self._writing = writing

    def all(self) -> list[dict]:
        """Every line, once the log is closed."""
        self.log.close()
        os.close(self._writing)
        with os.fdopen(self.reading) as pipe:
            return [json.loads(line) for line in pipe]


def test_a_line_is_one_json_object():
    """Message, level, UTC time and fields are one object on one line."""
    lines = Lines()
    structlog.get_logger().info("config applied", files=3, path="/etc/mcpvisor", odd="a\nb \udc80")
    [line] = lines.all()

    stamp = line.pop("timestamp")
    assert {"level": "info", "message": "config applied", "files": 3, "path": "/etc/mcpvisor", "odd": "a\nb \udc80"} == line
    assert stamp.endswith("Z")


def test_a_line_steers_no_terminal():
    """What a reader of the file could take for a control code or a line end is an escape; the value is the same."""
    reading, writing = os.pipe()
    JsonWriter(writing).write(LogRecord(0.0, "info", "größe \x9b2J\u202e\u2028", {"odd": "\x7f\x85"}))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()

    line = json.loads(data)
    assert ("größe \x9b2J\u202e\u2028", "\x7f\x85") == (line["message"], line["odd"])
    assert {"g", "ö"} == set("".join(one for one in data.decode() if one in "g\xf6\x7f\x85\x9b\u202e\u2028"))


def test_secrets_do_not_reach_the_log():
    """A secret in a field, a message, an exception or a foreign logger's arguments is masked."""
    lines = Lines()
    log = structlog.get_logger()
    log.info("started", env=Secret("c4nary"), url="https://u:c4nary@h/x", authorization="Bearer c4nary")
    try:
        raise ValueError("refused: https://u:c4nary@h/x")
    except ValueError:
        log.exception("failed")
        logging.getLogger("elsewhere").exception("refused %s", "https://u:c4nary@h/x")
    written = lines.all()

    assert 3 == len(written)
    assert "c4nary" not in json.dumps(written)
    assert "ValueError: refused: https://***@h/x" in written[1]["exception"]


def _never_retrieved(secret: str) -> None:
    async def fail() -> None:
        raise LookupError(secret)

    async def forget() -> None:
        task = asyncio.create_task(fail())
        await asyncio.wait([task])

    asyncio.run(forget())
    gc.collect()


def _unraisable(secret: str) -> None:
    class Ends:
        def __del__(self) -> None:
            raise LookupError(secret)

    Ends()
    gc.collect()


class _Unsayable:
    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __str__(self) -> str:
        raise LookupError(self._secret)


def _in_a_thread(secret: str) -> None:
    def fail() -> None:
        raise LookupError(secret)

    thread = threading.Thread(target=fail, name="sweeper")
    thread.start()
    thread.join()


@pytest.mark.parametrize("secret", ["s3cr3t-abracadabra", 's3cr3t#hocus "pocus" & simsala'])
@pytest.mark.parametrize(
    "tell",
    [
        *(_never_retrieved, _unraisable, _in_a_thread),
        lambda secret: warnings.warn(secret, stacklevel=1),
        lambda secret: logging.getLogger("foreign").error("GET http://a.test/?key=%s", secret),
        lambda secret: logging.getLogger("foreign").error("%s", _Unsayable(secret)),
        lambda secret: structlog.get_logger("a").error("b", headers={"x": [f"token={secret}"]}, error=ValueError(secret)),
        lambda secret: structlog.get_logger("a").error(f"Authorization: Bearer {secret}", exc_info=ValueError(secret)),
    ],
)
def test_what_nobody_has_caught_tells_no_secret(tell: Callable[[str], None], secret: str):
    """Exceptions in threads, tasks and destructors, warnings and lines of others go to the log, with what is known masked."""
    known = KnownSecrets()
    known.learn([secret])
    lines = Lines(known_secrets=known)
    hooks = threading.excepthook, sys.unraisablehook
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        tell(secret)
    told = json.dumps(lines.all())

    assert "***" in told
    assert not any(part in told for part in re.findall(r"\w{3,}", secret)), told
    assert hooks != (threading.excepthook, sys.unraisablehook)


def test_the_level_can_be_changed_while_running():
    """Records below the level are not written, and a new level holds at once, for both kinds of logger."""
    lines = Lines("warning")
    log, standard = structlog.get_logger(), logging.getLogger("mcpvisor.supervisor.x")
    log.info("hidden")
    standard.info("hidden")
    lines.log.set_level("debug")
    log.debug("shown")
    standard.debug("shown too")

    assert ["shown", "shown too"] == [line["message"] for line in lines.all()]


def test_foreign_loggers_are_heard_from_warning_on():
    """The SDK's INFO lines, which hold session ids, stay out; its warnings and Python's own come through."""
    lines = Lines("debug")
    logging.getLogger("mcp.server.streamable_http").info("Terminating session: c4nary")
    logging.getLogger("uvicorn.error").warning("slow")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    written = lines.all()

    assert ["uvicorn.error", "py.warnings"] == [line["logger"] for line in written]
    assert "c4nary" not in json.dumps(written)


def test_a_broken_log_call_is_told_and_harms_nobody():
    """A log call whose arguments do not fit is a line that says so."""
    lines = Lines()
    logging.getLogger("elsewhere").warning("%d", "no number")
    [line] = lines.all()

    assert line["message"].startswith("a log call of elsewhere failed: ")


def test_equal_lines_are_limited_and_counted():
    """A storm of one message is a few lines, and the count comes with the next line of its kind or at the end of its window."""
    lines = Lines()
    for _ in range(1000):
        structlog.get_logger().warning("again", server="docs")

    assert 10 == len(lines.all())


@pytest.mark.parametrize("bad", ["loud", "", "INFO"])
def test_an_unknown_level_or_format_names_its_key(bad):
    """The error says which key is wrong and what may stand there."""
    with pytest.raises(ValueError, match=r"\[log\] level: .* debug, info"):
        Log(JsonWriter(2), level=bad)
    with pytest.raises(ValueError, match=r"\[log\] format: .* auto, journal"):
        choose_writer(bad)


def test_what_comes_after_the_end_is_counted():
    """A record that is emitted after the log was closed is lost, and known to be."""
    lines = Lines()
    lines.log.close()
    structlog.get_logger().info("late")

    assert 1 == lines.log.dropped
    assert [] == lines.all()


# Where the log goes.


def test_auto_takes_the_journal_only_when_stderr_is_its_stream(tmp_path):
    """JOURNAL_STREAM must name the very file; a terminal gets lines for people, anything else JSON."""
    with (tmp_path / "err").open("wb") as file:
        status = os.fstat(file.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        with contextlib.closing(choose_writer("auto", {"JOURNAL_STREAM": stream}, file.fileno())) as writer:
            inside = writer.name
        redirected = choose_writer("auto", {"JOURNAL_STREAM": f"{status.st_dev}:1"}, file.fileno()).name
    primary, terminal = pty.openpty()
    on_terminal = choose_writer("auto", {}, terminal).name
    os.close(primary)
    os.close(terminal)

    assert ("journal", "json", "console") == (inside, redirected, on_terminal)


@pytest.mark.parametrize("stream", ["", "x", "1:", ":1", "1:2:3", "-1:2"])
def test_a_malformed_journal_stream_is_no_journal(stream):
    """Whatever stands in the variable, it is compared, not believed."""
    assert not is_journal(stream)


def test_a_terminal_gets_no_control_characters():
    """A server's escape sequences cannot reach the operator's terminal."""
    reading, writing = os.pipe()
    ConsoleWriter(writing, colors=False).write(LogRecord(0.0, "info", "a\x1b[31mb\x9bc", {"x": "\x07"}))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()

    assert not {"\x1b", "\x9b", "\x07"} & set(text)
    assert "a\N{REPLACEMENT CHARACTER}[31mb" in text


# The journal's own protocol.


class Journald:
    """The other end of journald's socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(20)

    def read(self) -> bytes:
        """One record, from its datagram or from the memory file that came with it."""
        data, ancillary, _, _ = self.socket.recvmsg(1024 * 1024, socket.CMSG_SPACE(4))
        if not ancillary:
            return data
        [descriptor] = array.array("i", ancillary[0][2])
        with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as memory:
            data = memory[:]
        os.close(descriptor)
        return data


@pytest.fixture
def journald(tmp_path) -> Iterator[Journald]:
    other = Journald(str(tmp_path / "journal"))
    yield other
    other.socket.close()


def test_a_record_has_the_fields_the_journal_is_asked_by():
    """MESSAGE, PRIORITY, MCP_SERVER, MCP_EVENT and the MESSAGE_ID of the event type are fields of their own."""
    fields = {"server": "docs", "mcp_event": "SessionLost", "cause": "session_lost", "Bad key!": 1}

    assert {
        "MESSAGE": "docs: session lost",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "mcpvisor",
        "MCP_SERVER": "docs",
        "MCP_EVENT": "SessionLost",
        "MESSAGE_ID": message_id("SessionLost"),
        "MCP_CAUSE": "session_lost",
        "MCP_BAD_KEY_": "1",
    } == journal_fields(LogRecord(0.0, "warning", "docs: session lost", fields))


def test_message_ids_never_change():
    """A catalogue or a filter that names a MESSAGE_ID holds in every version."""
    assert "9f85011ef23252f5b76e1814026387f7" == message_id("SessionLost")
    assert message_id("SessionLost") != message_id("SessionOpened")


def test_values_of_several_lines_carry_their_length():
    """A line break in a value begins no field of its own."""
    assert b"A=1\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n" == encode_journal({"A": "1", "MESSAGE": "a\nb"})


def test_other_fields_are_readable_in_the_message(journald):
    """A line of the daemon itself shows its fields in `journalctl`, which prints the message only."""
    with contextlib.closing(JournalWriter(journald.path)) as writer:
        writer.write(LogRecord(0.0, "info", "config applied", {"files": 3, "logger": "x"}))

    assert b"MESSAGE=config applied files=3\n" in journald.read()


def test_a_record_too_big_for_a_datagram_arrives_whole(journald):
    """A record of 400 kB comes as a sealed memory file."""
    text = "x" * 400_000
    with contextlib.closing(JournalWriter(journald.path)) as writer:
        writer.write(LogRecord(0.0, "error", text, {}))

    assert f"MESSAGE={text}\n".encode() in journald.read()


def test_a_journald_that_is_restarted_is_found_again(journald, tmp_path):
    """Records written while journald is away for a moment arrive once it is back."""
    log = Log(JournalWriter(journald.path))
    log.install()
    structlog.get_logger().info("before")
    assert b"before" in journald.read()
    journald.socket.close()
    os.unlink(journald.path)
    structlog.get_logger().info("meanwhile")
    time.sleep(0.05)  # journald really is away for a moment
    again = Journald(journald.path)

    assert b"meanwhile" in again.read()
    log.close()
    again.socket.close()


# Nothing waits.


async def flood(number: int) -> None:
    """Emit so many records, yielding to the loop after each hundred."""
    log = structlog.get_logger()
    for first in range(0, number, 100):
        for index in range(first, first + 100):
            log.info("a record like many", index=index, server="docs")
        await asyncio.sleep(0)


async def lag_of(work: Coroutine[Any, Any, None]) -> float:
    """The worst lateness, in seconds, of a heart that beats every 10 ms while the work is done."""
    worst, task, watch = 0.0, asyncio.ensure_future(work), Stopwatch()
    while not task.done():
        watch.start()
        await asyncio.sleep(0.01)
        worst = max(worst, watch.seconds() - 0.01)
    await task
    return worst


@pytest.fixture(params=["pipe", "journal"])
def unread(request, tmp_path):
    """A writer whose reader has stopped: a pipe nobody reads, a journald that was sent SIGSTOP."""
    if request.param == "pipe":
        reading, writing = os.pipe()
        yield JsonWriter(writing)
        # Ends the write that the sink's thread may still be in. The other end stays open: whoever got its number next would
        # get that thread's last records as well.
        os.close(reading)
        return
    journald = Journald(str(tmp_path / "journal"))
    yield JournalWriter(journald.path)
    journald.socket.close()


@pytest.mark.anyio
async def test_a_reader_that_stopped_stalls_nothing(unread):
    """100,000 records to a reader that does not read keep the loop's lag under 250 ms, and the lost ones are counted."""
    told: list[int] = []
    log = Log(unread, on_drop=lambda _sink, number: told.append(number))
    log.install()
    gc.collect()  # what other tests have left is not what is measured
    worst = await lag_of(flood(100_000))
    watch = Stopwatch()
    watch.start()
    log.close(0.2)
    closing = watch.seconds()

    assert worst < 0.25
    assert closing < 1.0
    assert 100_000 - QUEUE_RECORDS - 2000 <= log.dropped <= 100_000 - QUEUE_RECORDS
    assert log.dropped == sum(told)


def test_the_newest_records_survive_a_jam():
    """When the reader goes on, what it gets are the newest records: the oldest went first."""
    reading, writing = os.pipe()
    log = Log(JsonWriter(writing))
    log.install()
    for index in range(20_000):
        structlog.get_logger().info("line", index=index)
    seen: list[dict] = []

    def read() -> None:
        with os.fdopen(reading) as pipe:
            seen.extend(json.loads(line) for line in pipe)

    reader = threading.Thread(target=read)
    reader.start()
    log.close(20)
    os.close(writing)
    reader.join(20)

    assert 19_999 == seen[-1]["index"]
    assert list(range(20_000 - 5000, 20_000)) == [line["index"] for line in seen[-5000:]]
    assert 20_000 == len(seen) + log.dropped


def test_the_queue_is_bounded_in_size_too():
    """Huge records to a reader that does not read hold no more than the queue's share of memory."""
    reading, writing = os.pipe()
    log = Log(JsonWriter(writing))
    log.install()
    many = 2 * QUEUE_CHARACTERS // 60_000
    for index in range(many):
        structlog.get_logger().info("x" * 60_000, index=index)

    assert log._sink._characters <= QUEUE_CHARACTERS
    assert log.dropped >= many // 2 - 2  # of those that it has room for, one may be with the reader
    os.close(reading)
    log.close()
    os.close(writing)


def test_a_reader_that_went_away_costs_records_and_nothing_else():
    """After the end of its reader the log counts what is lost, and the daemon goes on."""
    reading, writing = os.pipe()
    os.close(reading)
    log = Log(JsonWriter(writing))
    log.install()
    for index in range(10):
        structlog.get_logger().info("line", index=index)
    log.close()
    os.close(writing)

    assert 10 == log.dropped

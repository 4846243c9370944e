from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.stopwatch import Stopwatch, queued_for_a_cpu


@pytest.fixture
def command():
    return str(Path(sys.executable).with_name("mcpvisor"))


@pytest.fixture
def environ(daemon):
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return {**kept, "MCPVISOR_SOCKET": str(daemon.path), "TERM": "xterm"}


def in_terminal(command, environ):
    """What a command writes when its stdout is a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # how a terminal ends
                break
            if not chunk:
                break
            written += chunk
        process.wait(20)
    os.close(ours)
    return written.decode()


VERBS = [
    ["status"],
    ["explain", "good"],
    ["tools"],
    ["logs", "good"],
    ["events"],
    ["stop", "off"],
    ["elicitations"],
    ["--help"],
    ["completion", "bash", "--", "mcpvisor explain g", ":="],
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_thin_verbs_import_nothing_heavy(environ, verb):
    """A thin verb imports neither the SDK nor pydantic nor a web server nor anyio."""
    code = (
        "import atexit, sys\nfrom mcpvisor.daemon.cli.main import main\n"
        "heavy = {'mcp', 'mcp_types', 'pydantic', 'starlette', 'uvicorn', 'anyio', 'asyncio', 'msgspec', 'structlog', 'rich'}\n"
        "atexit.register(lambda: print(sorted(heavy & sys.modules.keys()), file=sys.stderr))\nmain(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, *verb], env=environ, capture_output=True, text=True, timeout=20)

    assert "[]" == done.stderr.splitlines()[-1]


@pytest.mark.alone
def test_status_of_200_servers_is_quick(start, command, environ):
    """`status` of 200 servers starts and answers in less than 150 ms, at least when the machine has time for it."""
    daemon = start("--many", "200")
    watch, deadline, best = Stopwatch(daemon.process.pid, threading.get_native_id()), time.monotonic() + 20, 60.0
    while best >= 0.150 and time.monotonic() < deadline:
        watch.start()
        with subprocess.Popen([command, "--socket", daemon.path, "status"], env=environ, stdout=subprocess.PIPE) as process:
            said = process.stdout.read().decode()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it can be asked as long as nobody has reaped it
            best = min(best, watch.seconds() - queued_for_a_cpu(process.pid))
        assert "200/200 ready" == said.splitlines()[0]

    assert best < 0.150


def test_a_terminal_gets_colour_and_no_line_beyond_its_width(command, environ):
    """On a terminal states are coloured and lines are cut to its width."""
    written = in_terminal([command, "status"], {**environ, "COLUMNS": "45"})

    assert "\x1b[33mbackoff" in written
    assert "it exited with code…" in written


def test_colour_can_be_declined_and_asked_for(command, environ, mcpvisor):
    """`NO_COLOR` and `--color never` get none on a terminal; `--color always`, before or after the verb, gets it in a pipe."""
    assert "\x1b" not in in_terminal([command, "status"], {**environ, "NO_COLOR": "1"})
    assert "\x1b" not in in_terminal([command, "--color", "never", "status"], environ)
    assert "\x1b[33mbackoff" in mcpvisor("--color", "always", "status").stdout
    assert "\x1b[33mbackoff" in mcpvisor("status", "--color=always").stdout


def test_no_terminal_gets_plain_whole_lines(mcpvisor):
    """Where no terminal is, there is no colour, and a reason is whole."""
    done = mcpvisor("status")

    assert "\x1b" not in done.stdout
    assert "it exited with code 1" in done.stdout


def test_a_stdout_that_cannot_write_every_character_gets_escapes(mcpvisor):
    """What the encoding of stdout does not have is written as an escape, and ends nothing."""
    done = mcpvisor("status", COLUMNS="40", PYTHONIOENCODING="ascii")

    assert (1, "") == (done.returncode, done.stderr)
    assert "it exited with code\\u2026" in done.stdout


def test_columns_are_honoured(mcpvisor):
    """`COLUMNS` says how wide lines may be, also where no terminal is; the last column keeps 20 characters."""
    assert "it exited with code…" in mcpvisor("status", COLUMNS="40").stdout


@pytest.mark.parametrize("verb", [["status", "--json"], ["events", "-f"]])
def test_a_reader_that_leaves_is_no_error(command, environ, verb):
    """When the reader of stdout goes away the verb ends without a word."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([command, *verb], env=environ, stdout=theirs, stderr=subprocess.PIPE, timeout=20)
    os.close(theirs)

    assert (141, b"") == (done.returncode, done.stderr)


@contextmanager
def following(arguments, environ):
    """A verb that runs until it is interrupted; it is gone afterwards in any case."""
    # A shell that runs the tests in its background has SIGINT ignored, and what is ignored is inherited.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(arguments, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()


def until_it_asks(pid):
    """Return once a process has a socket open."""
    deadline = time.monotonic() + 30
    while not any(file.is_socket() for file in Path(f"/proc/{pid}/fd").iterdir()):
        assert time.monotonic() < deadline, "it never asked anybody"
        time.sleep(0.01)


def test_an_interrupt_is_quiet(command, environ):
    """Ctrl-C ends a following verb with 130, without a word."""
    with following([command, "events", "-f"], environ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)

    assert (130, "") == (process.returncode, err)


def test_followed_events_come_as_they_happen(start, command, environ):
    """`events -f` prints what happens when it happens, as one JSON value a line for programs."""
    daemon = start()
    arguments = [command, "--socket", str(daemon.path), "events", "-f", "-n", "0", "--json", "--server", "good"]
    with subprocess.Popen(arguments, env=environ, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        os.set_blocking(process.stdout.fileno(), False)
        line = ""
        while not line and time.monotonic() < deadline:  # until the follower is there, what happens is not its business
            daemon.tell("move good degraded")
            line = process.stdout.readline()
        process.kill()

    assert "degraded" == json.loads(line)["new"]


@pytest.mark.parametrize(("arguments", "expected"), [(["good"], "good says 2\n"), ([], "")], ids=["one server", "all servers"])
def test_followed_logs_go_on(command, environ, arguments, expected):
    """`logs -f` begins with the past of a server, and goes on until it is interrupted."""
    with following([command, "logs", "-f", "-n", "1", *arguments], environ) as process:
        line = process.stdout.readline() if expected else ""
        until_it_asks(process.pid)  # before that Python itself may be interrupted in its start, and says so
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)

    assert line.endswith(expected)
    assert "" == err
    assert process.returncode in (130, -signal.SIGINT)


@pytest.mark.parametrize(("redirection", "expected"), [(">/dev/full", (1, True)), (">&-", (0, False))])
def test_a_stdout_that_cannot_be_written(command, environ, redirection, expected):
    """A full disk is one line on stderr; a closed stdout is nobody's business."""
    done = subprocess.run(["/bin/sh", "-c", f"{command} version {redirection}"], env=environ, capture_output=True, text=True)

    assert expected == (done.returncode, done.stderr == "mcpvisor: cannot write the answer: No space left on device\n")
    assert "Traceback" not in done.stderr

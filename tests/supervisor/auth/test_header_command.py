"""Programs that print headers: what they may print, how long it is used, and every way in which they fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.supervisor.auth.rig import supervised
from tests.supervisor.transports.http_rig import BOTH, Puppet, puppet

from mcpvisor.supervisor import events
from mcpvisor.supervisor.auth import command_source
from mcpvisor.supervisor.auth.kinds import HeaderCommand
from mcpvisor.supervisor.auth.printed import DEFAULT_LIFE, read_printed
from mcpvisor.supervisor.auth.token import LONGEST_LIFE
from mcpvisor.supervisor.masking import Mask
from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.secret import Secret
from mcpvisor.supervisor.states import State

pytestmark = pytest.mark.anyio
NOW = 1_000_000.0


@pytest.fixture(params=BOTH)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def server() -> Iterator[Puppet]:
    with puppet("oauth.py") as running:
        running.control("set", accepted=["printed-key-1", "printed-key-2"])
        yield running


def program(tmp_path: Path, text: str, *args: str | Secret) -> HeaderCommand:
    """A command that runs this Python program."""
    file = tmp_path / "command.py"
    file.write_text(text)
    return HeaderCommand((sys.executable, str(file), *args))


COUNTING = """
import json, os, sys
with open(sys.argv[1], "a") as log: log.write(json.dumps(dict(os.environ)) + "\\n")
print(open(sys.argv[2]).read())
"""


async def test_headers_are_printed_and_rotate(server: Puppet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints is sent, it is run again when that is refused, and the session stays; its environment is allow-listed."""
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "canary")
    log, printed = tmp_path / "log", tmp_path / "printed"
    printed.write_text(json.dumps({"headers": {"X-Api-Key": "printed-key-1"}, "expires_in": 3600}))
    async with supervised(server, program(tmp_path, COUNTING, str(log), str(printed))) as rig:
        await rig.reach(State.READY)
        assert ["hello"] * 3 == [await rig.call() for _ in range(3)]
        server.control("set", accepted=["printed-key-2"])
        printed.write_text("X-Api-Key: printed-key-2\n")
        assert ["hello"] * 5 == await rig.together(5)
        runs = [json.loads(line) for line in log.read_text().splitlines()]
        assert (2, 1) == (len(runs), rig.counted("initializes")[0])
        marks = {run["MCPVISOR_SERVER"] for run in runs}
        assert ([], 2) == ([run for run in runs if "SECRET_OF_THE_DAEMON" in run], len(marks))
        assert {"docs/headers"} == {mark.partition(":")[0] for mark in marks}
        assert ["header_command"] * 2 == [event.source for event in rig.told(events.CredentialsRefreshed)]


async def test_what_stands_in_the_entry_wins(server: Puppet, tmp_path: Path) -> None:
    """A header of the entry is sent in place of a printed one, in whatever case either is written; each goes out once."""
    printed = {"x-api-key": "printed-key-1", "x-team": "printed", "Authorization": "Bearer other"}
    headers = (("X-API-Key", Secret("printed-key-2")), ("X-Team", Secret("written")))
    server.control("set", accepted=["printed-key-2"])
    command = program(tmp_path, f"print({json.dumps(json.dumps(printed))})")
    async with supervised(server, command, headers=headers) as rig:
        await rig.reach(State.READY)
        assert ("hello", ["Bearer other"]) == (await rig.call(), server.state()["seen"])
        assert {"written"} == set(server.state()["teams"])


async def test_another_command_is_run_at_once(server: Puppet, tmp_path: Path) -> None:
    """An edit of the command touches no session; what the one before has printed is used no more."""
    log, first, second = tmp_path / "log", tmp_path / "first", tmp_path / "second"
    first.write_text("x-api-key: printed-key-1")
    second.write_text("x-api-key: printed-key-2")
    async with supervised(server, program(tmp_path, COUNTING, str(log), str(first))) as rig:
        await rig.reach(State.READY)
        await rig.apply(auth=program(tmp_path, COUNTING, str(log), str(second)))
        server.control("set", accepted=["printed-key-2"])
        assert ("hello", (1, 0)) == (await rig.call(), rig.counted("initializes", "unauthorized"))


async def test_the_end_of_one_run_is_not_the_end_of_another(server: Puppet, tmp_path: Path) -> None:
    """Instances of clients run the command of their server side by side; what is swept at the end of each is its own."""
    both = tmp_path / "both"
    both.mkdir()
    text = (
        "import os, pathlib, sys, time\n"
        "both, mine = pathlib.Path(sys.argv[1]), str(os.getpid())\n"
        "(both / mine).touch()\n"
        "while len(list(both.iterdir())) < 2: time.sleep(0.01)\n"
        "if mine == min(one.name for one in both.iterdir()): time.sleep(1.0)\n"
        "print('x-api-key: printed-key-1')"
    )
    command = program(tmp_path, text, str(both))
    given: list[str] = []
    instance = f"test-{os.getpid()}"  # this test runs in other processes, too, and nobody is to sweep theirs

    async def fetch() -> None:
        fetched = await command_source.CommandSource(command, instance, "docs", Mask()).fetch({})
        given.extend(value for _, value in fetched.credential.headers)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fetch)
            tasks.start_soon(fetch)

    assert ["printed-key-1"] * 2 == given


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys; sys.exit('log in first')", "exited with code 1 after"),
        ("import sys; sys.exit('log in first')", ": log in first"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("print('x' * 10_000_000, flush=True)", "printed more than 65536 bytes"),
        ("print('no header')", "line 1 of its output is no `Name: value`"),
        ("print('{}')", "printed no headers"),
        ("import sys; sys.stderr.write(sys.argv[1]); sys.exit(3)", ": ***"),
        ("import sys; sys.stderr.write(sys.argv[1] + 'x' * 794); sys.exit(3)", ": ***xx"),
        ("import sys; sys.stderr.write('no use for token=unheard-of-1'); sys.exit(3)", "no use for token=***"),
        ("import sys; sys.stderr.write('Authorization: Bearer unheard-of-2 it is'); sys.exit(3)", "Bearer *** it is"),
        ("import sys; print('X-Key: unheard-of-3'); sys.stderr.write('bad unheard-of-3'); sys.exit(3)", ": bad ***"),
    ],
)
async def test_a_command_that_fails(server: Puppet, tmp_path: Path, text: str, words: str) -> None:
    """The server needs somebody and says what the command said, without its secrets; a minute later it is tried again."""
    async with supervised(server, program(tmp_path, text, Secret("secret-argument"))) as rig:
        status = await rig.reach(State.AUTH_REQUIRED)
        assert status.reason.startswith("header_command: ")
        assert words in status.reason
        assert status.next_attempt is not None
        assert 50 < status.next_attempt - status.since <= 61
        assert [] == find_marked(rig.supervisor.instance)


async def test_no_such_command(server: Puppet) -> None:
    """A program that is not there is named, and so is the key."""
    async with supervised(server, HeaderCommand(("/no/such/program",))) as rig:
        status = await rig.reach(State.AUTH_REQUIRED)
        assert "header_command: no program '/no/such/program': install it, or edit the key `header_command`" == status.reason


async def test_a_command_that_hangs(server: Puppet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended with all that it started when its time is over, and says so."""
    monkeypatch.setattr(command_source, "COMMAND_SECONDS", 0.5)
    text = "import subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"
    async with supervised(server, program(tmp_path, text)) as rig:
        status = await rig.reach(State.AUTH_REQUIRED)
        assert "header_command: no headers within 0.5 s, so it was ended" == status.reason
        assert [] == find_marked(rig.supervisor.instance)


async def test_a_child_that_holds_the_output_open(server: Puppet, tmp_path: Path) -> None:
    """A command that has ended is not waited for, and nothing that it has started is left."""
    text = "import subprocess; print('x-api-key: printed-key-1', flush=True); "
    text += "subprocess.Popen(['sleep', '60'], start_new_session=True)"
    async with supervised(server, program(tmp_path, text)) as rig:
        await rig.reach(State.READY, seconds=5)
        assert [] == find_marked(rig.supervisor.instance)


# What is printed


@pytest.mark.parametrize(
    ("output", "headers", "life"),
    [
        (b'{"headers": {"A": "1"}, "expires_in": 60}', {"a": "1"}, 60),
        (b'{"headers": {"A": "1"}, "expires_in": "60"}', {"a": "1"}, 60),
        (b'{"headers": {"A": "1"}, "expires_at": 1000030}', {"a": "1"}, 30),
        (b'{"headers": {"A": "1"}, "expires_at": "1970-01-12T13:47:40+00:00"}', {"a": "1"}, 60),
        (b'{"headers": {"A": "1"}}', {"a": "1"}, DEFAULT_LIFE),
        (b'{"Authorization": "Bearer x"}', {"authorization": "Bearer x"}, DEFAULT_LIFE),
        (b"\nA: 1:2\r\nB:x\n\n", {"a": "1:2", "b": "x"}, DEFAULT_LIFE),
    ],
)
def test_forms(output: bytes, headers: dict[str, str], life: float) -> None:
    """JSON with or without an expiry, the headers alone, and lines are understood."""
    credential, expires_at = read_printed(output, NOW)

    assert (headers, life) == (dict(credential.headers), expires_at - NOW)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"\xff", "no UTF-8"),
        (b"", "printed no headers"),
        (b'{"headers": [', "begins like JSON"),
        (b'{"headers": ["a"]}', "not an object of texts"),
        (b'{"headers": {"A": 1}}', "not an object of texts"),
        (b'{"headers": {"A": "1"}, "expires_in": "soon"}', "expires_in is a number"),
        (b'{"headers": {"A": "1"}, "expires_in": -1}', "has expired already"),
        (b'{"headers": {"A": "1"}, "expires_in": 1e999}', "has expired already"),
        (b'{"headers": {"A": "1"}, "expires_at": "tomorrow"}', "expires_at a time"),
        (b'{"headers": {"A B": "1"}}', "is none"),
        (b'{"headers": {"A": "1\\r\\nHost: evil"}}', "the value of A holds a line break"),
        (b"Content-Length: 1", "which is set by mcpvisor itself"),
        (b"Host: evil", "which is set by mcpvisor itself"),
    ],
)
def test_what_is_not_understood(output: bytes, words: str) -> None:
    """A fault is named without what was printed, which may be a secret."""
    with pytest.raises(ValueError, match=r"^header_command: ") as caught:
        read_printed(output, NOW)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "told", [{"expires_at": 1.8e12}, {"expires_at": 1e300}, {"expires_in": 1e300}, {"expires_at": "9999-12-31"}]
)
def test_a_life_beyond_reason(told: dict[str, object]) -> None:
    """A time in milliseconds by mistake, or any other far away, is no time that breaks what shows it."""
    _, expires_at = read_printed(json.dumps({"headers": {"a": "b"}, **told}).encode(), NOW)
    assert NOW + LONGEST_LIFE == expires_at

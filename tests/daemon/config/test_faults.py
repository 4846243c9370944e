"""How faults are told: all of a file at once, each at its place, and no more than somebody reads, whatever the file is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpvisor.daemon.config import meanwhile
from mcpvisor.daemon.config.applied import decide
from mcpvisor.daemon.config.durations import seconds, size
from mcpvisor.daemon.config.expansion import Sources, expand
from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.daemon.config.problems import Problem, cut, escaped
from mcpvisor.daemon.config.telling import MOST, told

LoadText = Callable[..., Loaded]

ALL_AT_ONCE = """\
[servers.a]
command = "true"
restart = { policy = "nevr", dely = "1s" }
probe.interval = "x"
stop = { stdin = true, term = "x" }

[servers."b c"]
[[routes]]
event = "log_mesage"
[handlers.c]
type = "lug"
"""

TWICE = "[servers.a]\nq = 1\nq = 2\n[servers.b]\n[servers.a]\nx = { y = 1, y = 2 }\n"


def places(loaded: Loaded) -> list[str]:
    """Line, column and key of each problem."""
    return [f"{problem.line}:{problem.column} {problem.key_path}" for problem in loaded.problems]


def test_all_faults_are_told_at_once_in_the_order_of_the_file(load_text: LoadText) -> None:
    """Each has its line and column, within inline tables and dotted keys too."""
    assert [
        "3:13 servers.a.restart.policy",
        "3:30 servers.a.restart.dely",
        "4:1 servers.a.probe.interval",
        "5:10 servers.a.stop.stdin",
        "5:24 servers.a.stop.term",
        '7:1 servers."b c"',
        "8:1 routes[0]",
        "9:1 routes[0].event",
        "11:1 handlers.c.type",
    ] == places(load_text(ALL_AT_ONCE))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.toml", "[servers.a.env]\nA = '1'\n[servers.a]\ncommand = 'x'\ncommand = 'y'\n", ["5:1 servers.a.command"]),
        ("a.toml", TWICE, ["3:1 servers.a.q", "5:1 servers.a", "6:14 servers.a.x.y"]),
        ("a.json", '{"mcpServers": {"a": 1,\n "a": 2, "b": {"c": 1, "c": 2}}}', ["2:2 mcpServers.a", "2:24 mcpServers.b.c"]),
    ],
)  # fmt: skip
def test_every_key_that_is_written_twice_is_named(load_text: LoadText, name: str, text: str, expected: list[str]) -> None:
    """All of them, and no table whose header follows what is within it, as TOML allows."""
    assert expected == places(load_text(text, name))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.toml", "# ä\n[servers.ä".encode() + b"\xff", "2:11"),
        ("a.toml", "# ä\n\n  \x00", "3:3"),
        ("a.toml", "[servers.a]\ncommand = \"\"\"x\ny\n", "2:11"),
        ("a.toml", "[servers.a]\nargs = [\n", "3:1"),
        ("a.json", "\n [1]", "2:2"),
        ("a.json", '{"mcpServers":\n {"a": {"timeout": 1' + "0" * 100 + "}}}", "2:20"),
        ("a.toml", "[servers.a]\nqueue = 0x" + "f" * 5000, "2:9"),
        ("a.toml", "[servers.a]\nx" + ".x" * 100_000 + " = 1", "2:61"),
        ("a.toml", "x = " + "{ a = " * 100_000, "1:191"),
        ("a.toml", "[servers.a]\nargs = [" + "1," * 100_001 + "]", "2:200003"),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_file_that_is_no_document_is_told_with_its_place(
    load_text: LoadText, name: str, content: str | bytes, expected: str
) -> None:
    """Where a text that never ends begins, the byte that is of no encoding, and the bound that is passed."""
    problems = load_text(content, name).problems

    assert [expected] == [f"{problem.line}:{problem.column}" for problem in problems]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"a":"' + '\\"' * 1_000_000),
        ("a.json", '{"a":' + "/*" * 1_000_000),
        ("a.json", '{"a":' + ", " * 1_000_000),
        ("a.json", "[" * 1_000_000),
        ("a.toml", "[" * 1_000_000),
        ("a.toml", "a." * 1_000_000),
        ("a.toml", '"' * 1_000_000),
        ("a.toml", 'a = """' + '\\"' * 200_000),
    ],
    ids=range(8),
)
def test_no_text_takes_long(load_text: LoadText, name: str, text: str) -> None:
    """A file of some megabytes is told to be wrong in the time that reading it takes, whatever stands in it."""
    began = time.process_time()

    assert [1] == [problem.line for problem in load_text(text, name).problems]
    assert time.process_time() - began < 10


def test_of_very_many_faults_the_first_are_told(load_text: LoadText) -> None:
    """A hundred of a file, and how many more there are; the servers that are good run."""
    text = "[servers.good]\ncommand = 'true'\n" + "".join(f"[servers.n{number}]\nq = 1\n" for number in range(1_900))
    loaded = load_text(text, "a.toml")

    assert (MOST + 1, "and 3700 more errors in this file") == (len(loaded.problems), loaded.problems[-1].message)
    assert ["good"] == list(loaded.specs)


def test_faults_are_told_by_file() -> None:
    """First what is about no file, then the files in their order, each by its lines."""
    one, two = Path("/1"), Path("/2")
    found = [
        Problem(file=file, line=line, message="") for file, line in ((two, 1), (one, 9), (None, None), (one, 2), (two, None))
    ]

    assert [(None, None), (one, 2), (one, 9), (two, None), (two, 1)] == [
        (problem.file, problem.line) for problem in told(found, [one, two], "errors")
    ]


def test_what_somebody_wrote_is_shown_in_part() -> None:
    """A word of any length and of any characters stands on one line."""
    assert ("a?b", "x" * 60 + "...", "a\\nb\\udcff") == (cut("a\x1bb"), cut("x" * 10**6), escaped("a\nb\udcff"))


@pytest.mark.parametrize("convert", [seconds, size])
@pytest.mark.parametrize("value", [10**90, "9" * 5_000 + "s", "9" * 5_000 + "B", "9" * 400 + ".5GB", "9" * 400 + ".5d"])
def test_no_number_is_too_long_to_be_refused(convert: Callable[[object], float], value: object) -> None:
    """What no float and no file system can hold is one ValueError, as every other fault."""
    with pytest.raises(ValueError, match=r"at most|not a"):
        convert(value)


def test_a_short_text_becomes_no_endless_one(load_text: LoadText) -> None:
    """Variables that are named again and again are an error before they take the daemon's memory."""
    with pytest.raises(LookupError, match="becomes longer than 1048576 characters"):
        expand("${A}" * 2_000, Sources({"A": "x" * 1_000}, str, str))
    args = ", ".join(['"${A}"'] * 50)
    loaded = load_text(f"[servers.a]\ncommand = 'x'\nargs = [{args}]", A="x" * 1024 * 1024)

    assert ["3:265 servers.a.args[32]"] == places(loaded)[:1]
    assert "with this the variables of the file become more than" in loaded.problems[0].error


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("MCPVISOR_DAEMON__PARALLEL_STARTS", "many", "is a text; expected a whole number"),
        ("MCPVISOR_DAEMON__PARALLEL_STARTS", "0", "must be at least 1"),
        ("MCPVISOR_DAEMON__STRICT", "maybe", "is a text; expected true or false, without quotes"),
        ("MCPVISOR_QUESTIONS__DEADLINE", "99999999999", "a duration is at most 10000d; expected seconds as a number"),
        ("MCPVISOR_GATEWAY__LISTEN", "nowhere", 'not an address with a port; expected "HOST:PORT"'),
    ],
)
def test_a_setting_is_named_as_it_is_where_it_comes_from(
    etc: Path, environ: dict[str, str], tmp_path: Path, variable: str, text: str, said: str
) -> None:
    """A variable by its name, a credential by its file; neither is shown."""
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o755)
    (credentials / variable.lower()).write_text(text)
    (credentials / variable.lower()).chmod(0o600)
    of_variable = load([etc], {**environ, variable: text}).problems
    of_credential = load([etc], {**environ, "CREDENTIALS_DIRECTORY": str(credentials)}).problems

    key = variable.removeprefix("MCPVISOR_").lower().replace("__", ".")
    assert str(of_variable[0]).startswith(f"environment: {variable}: {said}")
    assert str(of_credential[0]).startswith(f"{credentials / variable.lower()}: {key}: {said}")
    assert not any(f'"{text}"' in str(problem) for problem in (of_variable[0], of_credential[0]))


def test_a_credential_that_is_a_pipe_holds_nobody_up(etc: Path, environ: dict[str, str], tmp_path: Path) -> None:
    """It is an error like any other file that is none."""
    credentials = tmp_path / "credentials"
    credentials.mkdir(mode=0o755)
    os.mkfifo(credentials / "MCPVISOR_LOG__LEVEL")
    problems = load([etc], {**environ, "CREDENTIALS_DIRECTORY": str(credentials)}).problems

    assert [f"{credentials}/MCPVISOR_LOG__LEVEL: the credential is no regular file"] == [
        str(problem).partition(";")[0] for problem in problems
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[servers.a]\nqueue = 'x'\n", "the last good version keeps running"),
        ("[servers.new]\nqueue = 'x'\n", "no server of the name new runs"),
        ("[handlers.h]\ntype = 'x'\n", "the last good version stays in use"),
        ("[handlers.new]\ntype = 'x'\n", "no handler of the name new is in use"),
        ("[[routes]]\n", "the routes of this file stay as they were"),
        ("[unknown]\n", "all else is as it is written"),
        ("[servers.a", "its 2 servers, 1 handler and 1 route stay as they were"),
    ],
)
def test_what_runs_meanwhile_is_said(load_text: LoadText, text: str, said: str) -> None:
    """Of an entry, a handler, routes and whole files, what was good before and what never was."""
    good = "[servers.a]\ncommand='true'\n[servers.b]\ncommand='true'\n[handlers.h]\ntype='log'\n[[routes]]\nhandler='h'\n"
    before = decide(None, load_text(good, "a.toml"), 0.0)
    assert before is not None
    after = decide(before, load_text(text, "a.toml"), 1.0)

    assert after is not None
    assert {said} == {problem.meanwhile for problem in after.rejected}
    assert after.rejected[0].error.endswith(f" ({said})")


def test_what_stays_of_a_file_is_counted() -> None:
    """A main file keeps its settings and defaults too; of what was never good nothing runs."""
    assert [
        "its settings and defaults stay as they were",
        "its settings, defaults and 1 server stay as they were",
        "its 1 server stays as it was",
        "nothing of this file runs",
        "nothing of this file runs",
    ] == [
        meanwhile.of_file({"server": 0}, is_main=True),
        meanwhile.of_file({"server": 1}, is_main=True),
        meanwhile.of_file({"server": 1, "handler": 0}, is_main=False),
        meanwhile.of_file({"server": 0}, is_main=False),
        meanwhile.of_file(None, is_main=True),
    ]

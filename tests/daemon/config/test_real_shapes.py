"""Files as people write them, and what is to come out of each (`EXPECT.json` beside them)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.daemon.config.load import Loaded, load
from mcpvisor.supervisor.aftermath import Reaction, reaction_to
from mcpvisor.supervisor.lifecycle_messages import Ended
from mcpvisor.supervisor.process.environment import Marker, child_environment
from mcpvisor.supervisor.process.launch import launch
from mcpvisor.supervisor.spec import HttpTarget, HttpTransport, RestartPolicy, ServerSpec, StdioLaunch
from mcpvisor.supervisor.transports.wire import OpenFailed, WireEnd

FILES = Path(__file__).parent / "testdata/real_shapes"
EXPECT: dict[str, Any] = json.loads((FILES / "EXPECT.json").read_text())
ROWS = [(file, server) for file, wanted in EXPECT.items() if isinstance(wanted, dict) for server in wanted]

CHOSEN = {
    ("03_commands.json", "args-string"): "error",
    ("03_commands.json", "args-number"): "stdio, hint",
    ("03_commands.json", "envFile"): "stdio, hint",
    ("03_commands.json", "missing-cwd"): "stdio",
    ("03_commands.json", "not-found"): "stdio",
    ("04_flags_extras.json", "off-string"): "disabled, hint",
    ("05a_vscode_mcp.json", "hub"): "error",
    ("05c_bare_map.json", "memory"): "stdio",
    ("08_utf16.json", "u"): "stdio",
}
"""What was chosen where a row leaves a choice, or speaks of the server's start, which has a test of its own below."""


def _load(name: str, folder: Path, environ: dict[str, str]) -> Loaded:
    file = folder / name
    shutil.copyfile(FILES / name, file)
    file.chmod(0o644)
    return load([file], environ)


def _word(spec: ServerSpec) -> str:
    if not spec.enabled:
        return "disabled"
    if isinstance(spec.target, StdioLaunch):
        return "stdio"
    words = {HttpTransport.AUTO: "http (then sse)", HttpTransport.STREAMABLE_HTTP: "http", HttpTransport.SSE: "sse"}
    return words[spec.target.transport]


@pytest.mark.parametrize(("name", "server"), ROWS)
def test_each_entry_comes_out_as_expected(name: str, server: str, etc: Path, environ: dict[str, str]) -> None:
    """Each entry becomes the transport, the disabled server or the error that the file's author is owed."""
    wanted: str = EXPECT[name][server]
    chosen = CHOSEN.get((name, server)) or wanted
    loaded = _load(name, etc, environ)
    spec = loaded.specs.get(server)
    is_rejected = server in {problem.server for problem in loaded.problems}
    word = _word(spec) if spec is not None else "error" if is_rejected else "skipped"
    expected = re.split(r"[,;]| that ", chosen)[0]

    # Where a row says "http" of an entry that leaves the transport open, the one that falls back too is meant.
    assert expected == word if "(" in expected else expected == word.split(" ")[0]
    assert expected in wanted or wanted.startswith(("error at start", "error or hint"))
    if "hint" in chosen:
        assert server in {hint.server for hint in loaded.hints}


def _failure(spec: ServerSpec, environ: dict[str, str]) -> WireEnd:
    """Why a server does not even start."""
    assert isinstance(spec.target, StdioLaunch)
    with pytest.raises(OpenFailed) as caught:
        launch(spec.target, child_environment(spec.target, Marker("test-real-shapes", spec.name, 1), environ))
    return caught.value.end


def test_what_only_a_start_can_tell(etc: Path, environ: dict[str, str]) -> None:
    """A missing folder and a missing program are told apart at the start, by their names, and wait for an edit."""
    specs = _load("03_commands.json", etc, environ).specs
    folder, program, path = (_failure(specs[name], environ) for name in ("missing-cwd", "not-found", "path-in-env"))

    assert ("bad_cwd", "no_such_program", "no_such_program") == (folder.cause, program.cause, path.cause)
    assert "'/nonexistent/folder'" in folder.detail
    assert "python3" not in folder.detail
    assert "'definitely-not-installed-xyz'" in program.detail
    assert "no program 'python3' on PATH=/opt/example/bin" in path.detail
    assert {Reaction.MEND} == {reaction_to(Ended(1, e.cause, e.detail), RestartPolicy()) for e in (folder, program, path)}


def test_transport_words(etc: Path, environ: dict[str, str]) -> None:
    """Only an entry that leaves the transport open may fall back to the older one."""
    specs = _load("02_transport_words.json", etc, environ).specs

    assert {k: v for k, v in EXPECT["02_transport_words.json"].items() if v != "error"} == {
        name: _word(spec) for name, spec in specs.items()
    }


def test_commands(etc: Path, environ: dict[str, str]) -> None:
    """Command lines are split only where they are no path, and arguments arrive letter by letter."""
    specs = _load("03_commands.json", etc, environ).specs
    argv = {
        name: [spec.target.command, *spec.target.args] for name, spec in specs.items() if isinstance(spec.target, StdioLaunch)
    }

    assert argv["one-string"] == ["python3", "-m", "http.server", "--help"]
    assert argv["one-string-quoted"] == ["python3", "-c", "print('a b')"]
    assert argv["path-with-space"] == ["C:\\Program Files\\nodejs\\node.exe", "C:\\Users\\someone\\server\\index.js"]
    assert argv["windows-npx"] == ["cmd", "/c", "npx", "-y", "@example/server"]
    assert argv["windows-forward"] == ["C:/Tools/server.exe", "--root", "D:\\data\\"]
    assert [f"{environ['HOME']}/bin/server", "--db", "~/notes.db"] == argv["tilde"]
    assert argv["args-null"] == ["python3"]
    assert argv["args-number"] == ["python3", "--port", "8080", "true"]
    assert argv["empty-arg"] == ["python3", "-c", "", "--flag="]
    target = specs["relative-cwd"].target
    assert isinstance(target, StdioLaunch)
    assert str(etc / "servers/one") == target.cwd


def test_limits_of_time(etc: Path, environ: dict[str, str]) -> None:
    """The limit of a call and that of a start are two things, and milliseconds are recognised, with a hint."""
    loaded = _load("04_flags_extras.json", etc, environ)
    both, odd = loaded.specs["timeouts"], loaded.specs["timeout-ms"]

    assert (both.call_timeout, both.start_timeout, odd.call_timeout) == (60.0, 300.0, 120.0)
    assert [hint.message for hint in loaded.hints if hint.server == "timeout-ms"] == [
        "120000 looks like milliseconds and is taken as 120 s"
    ]
    assert (loaded.specs["extras"].tools.allow, loaded.specs["extras"].tools.deny) == (("a",), ("b",))


def test_one_bad_entry(etc: Path, environ: dict[str, str]) -> None:
    """The error of a bad entry names file, line, entry and the key that was meant."""
    loaded = _load("06_one_bad_entry.json", etc, environ)

    assert sorted(loaded.specs) == ["good-1", "good-2"]
    assert [(p.line, p.key_path, p.nearest) for p in loaded.problems] == [(9, "mcpServers.bad", "command")]
    assert '"comand"' in loaded.problems[0].error


@pytest.mark.parametrize(
    ("name", "line", "text"),
    [
        ("05d_empty_shapes.json", 1, "expected mcpServers as one object of servers"),
        ("07_broken.json", 4, "not valid JSON"),
    ],
)
def test_files_without_entries(name: str, line: int, text: str, etc: Path, environ: dict[str, str]) -> None:
    """A file of which nothing can be used gives one error with its line, never an empty list of servers."""
    loaded = _load(name, etc, environ)

    assert [line] == [problem.line for problem in loaded.problems]
    assert text in str(loaded.problems[0])
    assert loaded.loads[0].failure == loaded.problems[0]


def test_headers_of_a_file_print_as_nothing(etc: Path, environ: dict[str, str]) -> None:
    """A key that someone wrote into a header is as secret as one that came out of a variable."""
    target = _load("02_transport_words.json", etc, environ).specs["httpUrl"].target

    assert isinstance(target, HttpTarget)
    assert "fake-token" not in repr(target)

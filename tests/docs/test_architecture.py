"""docs/architecture.md says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from mcpvisor.daemon.health import LIVE_SECONDS
from mcpvisor.supervisor import aftermath, lifecycle, serving, start_time
from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.negotiation import STDIO_SILENCE
from mcpvisor.supervisor.states import ADMITTING, COMING, State

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def rows(first: str) -> list[list[str]]:
    """The cells of the table whose header begins with that word."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table, first
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_steps_of_the_table_are_those_of_the_code():
    """Each state is in the table once, and its next states are exactly those that some input leads to."""
    written = {quoted(row[0])[0]: sorted(quoted(row[2])) for row in rows("state")}
    walked: dict[str, list[str]] = {state.value: [] for state in State}
    for before, after in sorted(load("walk").steps()):
        walked[before.value].append(after.value)

    assert walked == written


def test_what_becomes_of_calls_is_in_the_table():
    """Calls pass, wait or fail in each state as the connection's own groups say."""
    told = {quoted(row[0])[0]: row[1] for row in rows("state")}
    expected = {state.value: "pass" if state in ADMITTING else "wait" if state in COMING else "fail" for state in State}

    assert expected | {"backoff": "wait or fail", "draining": "wait or fail"} == told


def test_every_outcome_is_in_the_table():
    """The outcomes are those of the code, in its order."""
    assert [outcome.value for outcome in Outcome] == [quoted(row[0])[0] for row in rows("outcome")]


def test_the_folders_are_those_of_the_tree():
    """Every folder of the package that holds code is in the table of folders, and no other."""
    package = ROOT / "src" / "mcpvisor"
    held = {str(path.parent.relative_to(package)) for path in package.rglob("*.py")} - {"."}

    assert held == {quoted(row[0])[0] for row in rows("folder")}


def test_times_are_those_of_the_code():
    """The fixed times on the page are the constants of the code."""
    assert (300, 300, 5, 10, 2, 5) == (
        aftermath.SLOW_RETRY,
        start_time.MAX_START_TIMEOUT,
        serving.SERVED_AFTER,
        lifecycle.STOP_SLACK,
        STDIO_SILENCE,
        LIVE_SECONDS,
    )

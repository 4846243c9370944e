"""The pages in docs/ say what the program does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcpvisor.daemon.cli.exits import Exit
from mcpvisor.daemon.cli.main import build_parser
from mcpvisor.daemon.cli.tree import verbs_of
from mcpvisor.daemon.gateway.app import PROBES
from mcpvisor.daemon.gateway.pages import PAGE_ENTRIES, STALE_META_KEY
from mcpvisor.daemon.gateway.settings import GatewayLimits
from mcpvisor.daemon.gateway.tokens import TOKEN_FILE
from mcpvisor.daemon.health import LIVE_SECONDS
from mcpvisor.daemon.shim.gateway_http import MAX_ANSWER
from mcpvisor.daemon.shim.messages import MAX_LINE
from mcpvisor.daemon.shim.relay import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES
from mcpvisor.daemon.shim.run import LAST_ANSWERS_SECONDS
from mcpvisor.daemon.shim.waiting import PATIENCE
from mcpvisor.daemon.state.database import EVENTS_PER_SERVER
from mcpvisor.daemon.state.keeper import STATE_FILE
from mcpvisor.daemon.state.kept import Limits
from mcpvisor.daemon.state.store import CLOSE_SECONDS, OPEN_SECONDS
from mcpvisor.daemon.state.writer import RETRY_MAX
from mcpvisor.daemon.unix_socket import GROUP
from mcpvisor.supervisor.errors import Outcome
from mcpvisor.supervisor.process.stderr import LINES_PER_SECOND, RING_LINES
from mcpvisor.supervisor.spec import StopGraces
from mcpvisor.supervisor.states import State

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def page(name: str) -> str:
    """A page with each run of white space as one space, so that a sentence is found however it is broken."""
    return re.sub(r"\s+", " ", (DOCS / name).read_text())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    """Every link to a file of the repository leads to one."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())

    assert [] == [link for link in links if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_verbs_that_exist_are_named(path):
    """Every `mcpvisor VERB` on a page is a verb of the command line."""
    verbs = {verb.words[0] for verb in verbs_of(build_parser())}
    named = re.findall(r"(?:`|^    |^|bin/)mcpvisor ([a-z]+(?:-[a-z]+)*)", path.read_text(), re.MULTILINE)

    assert set() == set(named) - verbs - {"is", "keeps"}


def test_every_verb_is_in_the_change_log():
    """No verb came without being told of."""
    verbs = {verb.words[0] for verb in verbs_of(build_parser())}
    told = (ROOT / "CHANGELOG.md").read_text()

    assert [] == [verb for verb in verbs if f"`{verb}`" not in told and f"`mcpvisor {verb}`" not in told]


def test_the_example_of_the_library_runs():
    """The example for the supervisor as a library runs as it is printed, and calls the tool."""
    example = re.search(r"```python\n(.*?)```", (DOCS / "library.md").read_text(), re.DOTALL)
    assert example
    done = subprocess.run([sys.executable, "-c", example[1]], capture_output=True, text=True, timeout=60)

    assert (0, "") == (done.returncode, done.stderr)
    assert "event: ServerStateChanged" in done.stdout
    assert "clock is ready" in done.stdout
    assert re.search(r"^\d{4}-\d\d-\d\dT", done.stdout, re.MULTILINE)


def test_the_exit_codes_are_those_of_the_code():
    """The table of exit codes has each code, once."""
    text = (DOCS / "operations.md").read_text()
    table = text[text.index("## Exit codes") : text.index("## Logs")]

    assert sorted(int(code) for code in Exit) == [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]


def test_the_numbers_of_operations_are_those_of_the_code():
    """Limits, times, paths and names on the page are the code's."""
    text = page("operations.md")
    graces = StopGraces()

    assert {"/livez", "/readyz", "/healthz"} == set(PROBES)
    assert f"at most {LIVE_SECONDS:g} s old" in text
    assert f"at most {LINES_PER_SECOND} lines a second" in text
    assert f"newest {RING_LINES} lines" in text
    assert f"stdin closed, {graces.stdin:g} s, `SIGTERM` to its group, {graces.term:g} s, `SIGKILL`" in text
    assert GatewayLimits().grace_seconds is None
    assert "those in flight have the largest `drain` of all servers" in text
    assert f"/{TOKEN_FILE}`" in text
    assert f"the group `{GROUP}`" in text
    assert [] == [word for word in re.findall(r"\| `(\w+)`(?: for long)? \| [a-z]", text) if word not in list(State)]


def test_the_numbers_of_the_gateway_are_those_of_the_code():
    """The limits, the outcomes and the key of stale entries on the page are the code's."""
    text, limits = page("gateway.md"), GatewayLimits()

    assert f"within {limits.head_seconds:g} s and be at most {limits.head_bytes // 1024} KiB" in text
    assert f"a body within {limits.body_seconds:g} s and {limits.body_bytes // 1024**2} MiB" in text
    told = f"at most {limits.sessions_per_principal} sessions and {limits.exchanges_per_principal} open requests"
    assert told in text
    assert f"opens {limits.openings_burst} at once and {limits.openings_per_second:g} a second" in text
    assert f"ends after {limits.session_idle_seconds / 60:g} minutes" in text
    assert f"one page up to {PAGE_ENTRIES:,} entries" in text
    assert f'"{STALE_META_KEY}": true' in text
    assert [] == [outcome.value for outcome in Outcome if f"| `{outcome.value}` |" not in text]


def test_the_numbers_of_the_shim_are_those_of_the_code():
    """What a client that only speaks stdio can count on is what the code does."""
    text = page("gateway.md").partition("## Clients that only speak stdio")[2].partition("## Limits")[0]

    assert f"wait up to {PATIENCE:g} s" in text
    assert f"over {MAX_LINE // 1024**2} MiB" in text
    assert MAX_LINE == GatewayLimits().body_bytes
    assert f"{MAX_IN_FLIGHT} requests, or {MAX_IN_FLIGHT_BYTES // 1024**2} MiB" in text
    assert f"answered within {LAST_ANSWERS_SECONDS:g} s" in text
    assert f"A message of the gateway may have {MAX_ANSWER // 1024**2} MiB" in text


def test_the_numbers_of_the_state_are_those_of_the_code():
    """Sizes, times and names of the state store on the pages are the code's."""
    text, limits = page("operations.md"), Limits()

    assert f"at most {limits.journal_rows:,}, of at most {limits.journal_seconds / 86400:g} days" in text
    assert f"It is at most {limits.total // 1024**2} MiB" in text
    assert f"for up to {limits.absent_seconds / 86400:g} days" in text
    assert f"`a write has taken over {limits.slow_write:g} s`" in text
    assert f"the file is waited for {OPEN_SECONDS:g} s, at the end {CLOSE_SECONDS:g} s" in text
    assert f"the newest {EVENTS_PER_SERVER} of each server" in text
    assert f"/{STATE_FILE}`" in text
    assert f"within {RETRY_MAX:g} s" in page("runbooks/McpvisorStateStoreDown.md")


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    """What the README tells to type is there to be typed."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {"demo", "test"} <= targets
    assert set() == set(re.findall(r"^    make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)) - targets


def test_every_benchmark_is_named():
    """Each script in benchmarks/ is in its README, and no other."""
    named = set(re.findall(r"^\| `(\w+\.py)`", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE))

    assert {path.name for path in (ROOT / "benchmarks").glob("*.py")} == named


def test_every_decision_is_listed():
    """The list of decisions has each page under its own title, in order."""
    pages = sorted((DOCS / "decisions").glob("0*.md"))
    titles = [(path.read_text().splitlines()[0].removeprefix("# "), path.name) for path in pages]

    assert titles == re.findall(r"\| \d{4} \| \[(.*?)\]\((.*?)\) \|", (DOCS / "decisions" / "README.md").read_text())

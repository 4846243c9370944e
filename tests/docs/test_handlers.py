"""docs/handlers.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcpvisor.daemon.config.load import load
from mcpvisor.daemon.handlers.engine import LEAVE_SECONDS
from mcpvisor.daemon.handlers.ledger import DAY, LedgerLimits
from mcpvisor.daemon.handlers.program import GRACES
from mcpvisor.daemon.handlers.routing import KINDS
from mcpvisor.daemon.handlers.sources import MOST_DATA
from mcpvisor.daemon.handlers.specs import HandlerSpec, HandlerType, LogOptions
from mcpvisor.daemon.handlers.waiting import LONGEST_PAUSE, MOST_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "handlers.md").read_text()
TEXT = re.sub(r"\s+", " ", PAGE)


def test_the_numbers_are_those_of_the_code() -> None:
    """Limits and times on the page are the code's."""
    limits = LedgerLimits()

    assert f"at most {MOST_BYTES // 1024**2} MiB of them" in TEXT
    assert f"is at most {MOST_DATA // 1024} KiB; more is cut" in TEXT
    assert f"is kept for {limits.pending_seconds / DAY:g} days and up to {limits.pending_bytes // 1024**2} MiB" in TEXT
    assert f"beside {limits.pending_share // 1024**2} MiB that each handler has" in TEXT
    assert f"for {limits.dead_seconds / DAY:g} days, {limits.dead_number:,} of them" in TEXT
    assert f"up to {limits.dead_bytes // 1024**2} MiB, the oldest" in TEXT
    assert f"has {LEAVE_SECONDS:g} s for what waits" in TEXT
    assert (3600.0, "for up to an hour" in TEXT) == (LONGEST_PAUSE, True)
    assert (1.0, "`SIGTERM` and a second later `SIGKILL`" in TEXT) == (GRACES.term, True)


def test_every_kind_and_every_type_is_there() -> None:
    """No kind of event and no type of handler is left out."""
    assert list(KINDS) == sorted(re.findall(r"^\| `(\w+)` \| .* \| .*\|$", PAGE, re.MULTILINE)[:6], key=KINDS.index)
    assert [] == [kind.value for kind in HandlerType if f"`{kind.value}`" not in PAGE]


def test_the_defaults_are_those_of_the_code(tmp_path: Path) -> None:
    """What the table gives as defaults is what a handler has that says nothing."""
    rows = re.findall(r"^\| `(queue|concurrency|deadline|retry|circuit)` \| `(.*?)` \|", PAGE, re.MULTILINE)
    text = "".join(f"{key} = {value}\n" for key, value in rows)
    tmp_path.chmod(0o755)
    file = tmp_path / "mcpvisor.toml"
    file.write_text(f'[handlers.a]\ntype = "log"\n{text}')
    file.chmod(0o644)

    assert 5 == len(rows)
    assert HandlerSpec(name="a", options=LogOptions()) == load([file], {}).handlers["a"]


def test_the_example_is_right(tmp_path: Path) -> None:
    """The first example on the page loads without an error or a hint."""
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[:1]
    tmp_path.chmod(0o755)
    file = tmp_path / "mcpvisor.toml"
    file.write_text(example)
    file.chmod(0o644)
    loaded = load([file], {})

    assert ((), (), ["reindex"]) == (loaded.problems, loaded.hints, list(loaded.handlers))


@pytest.mark.parametrize("runbook", ["McpvisorHandlerFailing", "McpvisorHandlerDeadLetters"])
def test_the_runbooks_are_named(runbook: str) -> None:
    """Whoever reads of a handler that does not work finds what to do."""
    assert f"runbooks/{runbook}.md" in PAGE

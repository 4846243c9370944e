"""The table of what may be sent again: one case for each row, and each case met by exactly its row."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.replay import READ_ONLY, ROWS, Row, may_replay, row_for
from mcpvisor.supervisor.spec import ServerSpec, StdioLaunch

SPEC = ServerSpec(name="files", target=StdioLaunch(command="files"))
TRUSTING = replace(SPEC, trust_hints=True)
ALLOWING = replace(SPEC, replay_on_session_loss=True)
READS: dict[str, Any] = {"annotations": {"readOnlyHint": True}}
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

CASES: tuple[tuple[Outcome, str, str, dict[str, Any] | None, ServerSpec, bool], ...] = (
    (Outcome.NOT_SENT, "busy", "tools/list", None, SPEC, False),
    (Outcome.NOT_SENT, "connect_failed", "tools/call", None, SPEC, True),
    (Outcome.PEER_ERROR, "error_answer", "tools/list", READS, TRUSTING, False),
    (Outcome.TIMEOUT, "silence", "tools/list", READS, TRUSTING, False),
    (Outcome.CANCELLED, "cancelled", "tools/list", READS, TRUSTING, False),
    (Outcome.REJECTED, "unencodable", "tools/list", READS, TRUSTING, False),
    (Outcome.MAYBE_EXECUTED, "answer_refused", "resources/read", None, SPEC, False),
    (Outcome.MAYBE_EXECUTED, "process_exited", "resources/read", READS, TRUSTING, False),
    (Outcome.MAYBE_EXECUTED, "process_exited", "resources/read", None, SPEC, True),
    (Outcome.MAYBE_EXECUTED, "session_lost", "tools/call", None, ALLOWING, True),
    (Outcome.MAYBE_EXECUTED, "process_exited", "tools/call", READS, TRUSTING, True),
    (Outcome.MAYBE_EXECUTED, "session_lost", "tools/call", READS, SPEC, False),
    (Outcome.MAYBE_EXECUTED, "process_exited", "vendor/anything", READS, replace(TRUSTING, replay_on_session_loss=True), False),
)
"""One for each row, in its order: how a request failed, what it was, under which permissions, and whether it goes again."""


@pytest.mark.parametrize(("row", "case"), list(zip(ROWS, CASES, strict=True)), ids=[row.name for row in ROWS])
def test_each_row_decides_its_case(row: Row, case: Any) -> None:
    """Each row is the first that fits its case, and what it says is what is done."""
    outcome, cause, method, tool, spec, expected = case
    failure = RequestFailed(outcome, cause, "x")
    asked = bool(row.was_asked)

    assert row == row_for(failure, method, tool, spec, was_asked=asked)
    assert expected == may_replay(failure, method, tool, spec, was_asked=asked)


@pytest.mark.parametrize("cause", ["auth", "busy", "queue_full", "tls"])
@pytest.mark.parametrize("outcome", [Outcome.NOT_SENT, Outcome.MAYBE_EXECUTED])
def test_what_will_not_be_sent_a_moment_later_is_told_at_once(outcome: Outcome, cause: str) -> None:
    """Credentials, limits and certificates do not mend themselves while a caller waits."""
    assert not may_replay(RequestFailed(outcome, cause, "x"), "tools/list", None, SPEC)


@pytest.mark.parametrize("method", sorted(READ_ONLY))
def test_every_read_may_be_sent_again(method: str) -> None:
    """Doing them twice is the same as doing them once."""
    assert may_replay(RequestFailed(Outcome.MAYBE_EXECUTED, "process_exited", "x"), method, None, SPEC)


@pytest.mark.parametrize(
    ("spec", "annotations", "cause", "expected"),
    [
        (TRUSTING, None, "process_exited", False),
        (TRUSTING, {"idempotentHint": True}, "process_exited", True),
        (TRUSTING, {"readOnlyHint": "true"}, "process_exited", False),
        (TRUSTING, "yes", "process_exited", False),
        (SPEC, {"readOnlyHint": True}, "process_exited", False),
        (ALLOWING, None, "process_exited", False),
        (ALLOWING, None, "session_lost", True),
    ],
)
def test_only_a_plain_word_of_a_tool_counts(spec: ServerSpec, annotations: Any, cause: str, expected: bool) -> None:
    """A hint is a boolean and needs the operator's trust; the permission for lost sessions is for those only."""
    failure = RequestFailed(Outcome.MAYBE_EXECUTED, cause, "x")

    assert may_replay(failure, "tools/call", {"annotations": annotations}, spec) is expected


def test_the_table_is_written_down() -> None:
    """docs/architecture.md has the rows in their order, each with what it decides."""
    table = re.search(r"^\| a request that failed \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert table
    written = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]

    assert [[row.name, "yes" if row.may_go_again else "no"] for row in ROWS] == [line[:2] for line in written]

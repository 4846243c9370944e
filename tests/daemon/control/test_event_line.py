"""`mcpvisor events` and `explain`: one line of an event says what the event says."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from mcpvisor.daemon.control.explain_text import event_line
from mcpvisor.daemon.control.views import event_kind, event_view
from mcpvisor.supervisor import events as ev
from mcpvisor.supervisor import host_events
from mcpvisor.supervisor.reporting import NOT_HISTORY

KEPT = [
    found
    for found in {**vars(ev), **vars(host_events)}.values()
    if isinstance(found, type) and issubclass(found, ev.Event) and found not in (ev.Event, ev.ServerEvent, *NOT_HISTORY)
]

ELSEWHERE = {
    "at": "begins the line",
    "server": "begins the line",
    "seconds": "a measure: in metrics",
    "expires_at": "`explain` has it beside the token",
    "next_attempt": "`status` has it",
    "next_retry": "`explain` has it beside the subscription",
    "next_try": "`handlers` has it",
    "retry_in": "in the log",
    "deadline": "`elicitations` has it",
    "wanted": "`explain` says it of the last exit",
    "counts": "`status` has them",
    "required": "`status` has it",
    "transport": "`status` has it",
    "era": "`status` has it",
    "protocol_version": "`explain` has it",
    "implementation": "`explain` has it",
    "asleep": "in the log",
    "former_at": "`status` has it, and the log",
}
"""What a line leaves to others, and where it is."""


def a_value(name: str) -> Any:
    """A value that can be told from all others."""
    return [f"<{name}>", "b"] if name in {"properties", "fields", "limits"} else f"<{name}>"


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
def test_nothing_that_matters_is_left_out(kind: type[ev.Event]) -> None:
    """Every field of every event of the history is on its line, or is shown elsewhere."""
    names = [field.name for field in fields(kind)]
    event = kind(**{name: a_value(name) for name in names})
    line = event_line({**event_view(event), "at": 0.0}, clock=lambda _: "noon")

    assert [] == [name for name in names if name not in ELSEWHERE and f"<{name}>" not in line]


def test_a_circuit_says_whose_it_is() -> None:
    """The line of a circuit that has opened names the handler."""
    event = host_events.HandlerCircuitOpened(at=1.0, handler="hook", failures=5, why="a bad day", next_try=2.0)

    assert "noon handler_circuit_opened handler=hook why=a bad day failures=5" == event_line(
        event_view(event), clock=lambda _: "noon"
    )


def test_a_question_says_who_was_asked_and_what_became_of_it() -> None:
    """The lines of a question have its id, the tool, who was asked for whom, the names of the properties, and the outcome."""
    shared: dict[str, Any] = {
        "at": 1.0,
        "server": "git",
        "id": "d8e1",
        "method": "elicitation/create",
        "mode": "form",
        "tool": "t",
    }
    put = host_events.QuestionPut(**shared, whom="operator", principal="uid:0", properties=("name", "size"), deadline=9.0)
    settled = host_events.QuestionSettled(
        **shared, by="operator", action="decline", properties=(), seconds=1.0, why="it does not fit"
    )
    begin = "id=d8e1 method=elicitation/create mode=form tool=t"
    lines = [event_line({**event_view(event), "kind": event_kind(event)}, clock=lambda _: "noon") for event in (put, settled)]

    assert [
        f"noon question_put {begin} principal=uid:0 whom=operator properties=name,size",
        f"noon question_settled {begin} action=decline by=operator why=it does not fit",
    ] == lines

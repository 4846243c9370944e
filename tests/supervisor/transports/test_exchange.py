"""Where a log message goes that came within the answer to a request."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.supervisor.transports.codec import encode
from mcpvisor.supervisor.transports.exchange import Exchange

LOG = encode({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
CHANGED = encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


class Hooks:
    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def notified(self, method: str, params: dict[str, Any], *, to_caller: bool = False) -> None:
        self.told.append((method, to_caller))

    async def answer(self, method: str, params: dict[str, Any], call: int | None) -> dict[str, Any]:
        return {}

    def noise(self, excerpt: bytes) -> None: ...

    def refused(self, reason: str, detail: str) -> None: ...


@pytest.mark.parametrize(
    ("is_within", "has_sink", "expected"),
    [(True, True, 1), (True, False, 0), (False, True, 0)],
    ids=["within", "nobody listens", "outside"],
)
def test_a_message_within_an_answer_is_the_callers(is_within: bool, has_sink: bool, expected: int) -> None:
    """The sink of that request has it, and everybody else is told so; every other notification is nobody's in particular."""
    hooks, taken = Hooks(), []
    exchange = Exchange(hooks, max_message=1000)
    pending = exchange.open("tools/call", None, taken.append if has_sink else None)
    for data in (LOG, CHANGED):
        exchange.receive(data, pending if is_within else None)

    assert [{"level": "info", "data": "x"}] * expected == taken
    assert [("notifications/message", bool(expected)), ("notifications/tools/list_changed", False)] == hooks.told

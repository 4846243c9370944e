"""What a refused subscription means, and when it is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from mcpvisor.supervisor.errors import Outcome, RequestFailed
from mcpvisor.supervisor.subscriptions.outcome import LIST_PAUSE, RETRY, RETRY_MAX, SLOW_RETRY, WHY, offers, retry_after
from mcpvisor.supervisor.subscriptions.polling import digest_of


def failed(code: int = -32603, outcome: Outcome = Outcome.PEER_ERROR, **more: Any) -> RequestFailed:
    return RequestFailed(outcome, "error_answer", "why", code=code, **more)


@pytest.mark.parametrize(
    ("failure", "row", "delay", "is_orphan"),
    [
        (failed(), 0, RETRY, False),
        (failed(), 3, RETRY * 8, False),
        (failed(), 1000, RETRY_MAX, False),
        (failed(-32602), 0, SLOW_RETRY, True),
        (failed(-32002), 5, SLOW_RETRY, True),
        (failed(-32601), 0, SLOW_RETRY, False),
        (failed(-32602, Outcome.TIMEOUT), 0, RETRY, False),
        (failed(retry_after_s=77.0), 0, 77.0, False),
    ],
)
def test_when_it_is_tried_again(failure: RequestFailed, row: int, delay: float, is_orphan: bool) -> None:
    """With growing delays; slowly where only the server can mend it; and no earlier than the server asks for."""
    retry = retry_after(failure, row, 1000.0, lambda: 1.0)

    assert (1000.0 + delay, is_orphan) == (retry.at, retry.is_orphan)


def test_the_delay_is_jittered() -> None:
    """Many that failed together do not come back together."""
    assert 1000.0 + RETRY / 2 == retry_after(failed(), 0, 1000.0, lambda: 0.0).at


def test_a_change_of_the_lists_brings_an_orphan_forward() -> None:
    """But not to the same moment again and again, and no other failure."""
    orphan, other = (retry_after(failed(code), 0, 1000.0, lambda: 1.0) for code in (-32002, -32601))

    assert [1000 + SLOW_RETRY, 1000 + LIST_PAUSE, 1100.0] == [orphan.due(at) for at in (999.0, 1001.0, 1100.0)]
    assert other.at == other.due(1100.0)


def test_a_reason_is_cut_and_cleaned() -> None:
    """A server may say anything at any length."""
    text = retry_after(RequestFailed(Outcome.PEER_ERROR, "x", "\x1b[31m" + "y" * 5000), 0, 0.0, lambda: 1.0).why

    assert (WHY, True) == (len(text), text.isprintable())


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"resources": {"subscribe": True}}, True),
        ({"resources": {"subscribe": False}}, False),
        ({"resources": {"subscribe": "true"}}, False),
        ({"resources": {}}, False),
        ({"resources": []}, False),
        ({}, False),
    ],
)
def test_what_a_server_says_of_itself(capabilities: dict[str, Any], expected: bool) -> None:
    """Only a plain yes is one."""
    assert expected is offers(capabilities)


def test_the_content_alone_is_compared() -> None:
    """What else stands in an answer changes from read to read."""
    one, same, other = (
        {"contents": [{"uri": "x://1", "text": text}], "ttlMs": ttl} for text, ttl in (("a", 1), ("a", 2), ("b", 1))
    )

    assert digest_of(one) == digest_of(same) != digest_of(other)


@pytest.mark.parametrize("answer", [{}, {"contents": "x"}, {"resultType": "input_required"}])
def test_an_answer_without_content_is_a_failure(answer: dict[str, Any]) -> None:
    """A server that wants to be asked otherwise has told nothing of the resource."""
    with pytest.raises(ValueError, match="the answer has no contents"):
        digest_of(answer)

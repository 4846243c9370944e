"""What a server of 2026-07-28 wants to know first, when it is an operator who calls."""

from __future__ import annotations

import pytest
from tests.e2e.running import puppet

from mcpvisor.daemon.cli.exits import Refused

YES = """
[handlers.yes]
type = "policy"
rules = [{ action = "accept", content = { name = "octocat", color = "red", ok = true } }]
[[routes]]
server = "asking"
event = "elicitation"
handler = "yes"
"""


@pytest.fixture
def running(daemon, servers):
    """A daemon with a server that asks before it answers, and a policy that knows the answers."""
    one = daemon(puppet("asking", servers / "sdk_conformance.py", era="modern"), settings=YES)
    one.until_ready()
    return one


def test_its_questions_are_answered_by_handlers(running):
    """A call is asked again with the answers, and with the server's own state, until there is a result."""
    tools = [f"test_input_required_result_{name}" for name in ("elicitation", "request_state", "multi_round")]

    assert ["Hello, octocat!", "state-ok", "both steps are done"] == [
        running.call("asking", tool)["content"][0]["text"] for tool in tools
    ]


def test_a_question_that_was_not_offered_ends_the_call(running):
    """Sampling is not allowed by the entry: the call fails, and says why."""
    with pytest.raises(Refused, match="which it was not offered") as caught:
        running.call("asking", "test_input_required_result_sampling")

    assert "question_refused" == caught.value.detail("mcpvisor/RequestFailed")["cause"]

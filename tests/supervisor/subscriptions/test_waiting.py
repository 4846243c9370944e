"""Whoever asks for a resource can wait for what its server says to that."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from trio.testing import MockClock

from mcpvisor.supervisor.subscriptions.attachment import Attachment
from mcpvisor.supervisor.subscriptions.standing import SubscriptionState
from mcpvisor.supervisor.subscriptions.telling import SubscriptionTeller
from mcpvisor.supervisor.subscriptions.wanted import Subscriptions

pytestmark = pytest.mark.anyio

URI = "memo://a"
PENDING, ACTIVE, FAILED, _ = SubscriptionState


@pytest.fixture
def anyio_backend():
    """Virtual time: what waits longest goes on at once."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.fixture
def table() -> Subscriptions:
    """The table of a server of which one resource is wanted."""
    table = Subscriptions(SubscriptionTeller("s", lambda _: None, str, lambda: 1))
    table.want(URI, "me")
    return table


async def after_two_seconds(table: Subscriptions, happens: Callable[[], object]) -> tuple[SubscriptionState | None, str, float]:
    """How the resource stands for who waits up to five seconds, and after how many."""
    began = anyio.current_time()

    async def later() -> None:
        await anyio.sleep(2)
        happens()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later)
        status = await table.outcome(URI, 5)
        took = anyio.current_time() - began
    return (status.state if status is not None else None), (status.reason if status is not None else ""), took


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (lambda _, attachment: attachment.active(URI), (ACTIVE, "", 2)),
        (lambda _, attachment: attachment.failed(URI, "it is refused", None), (FAILED, "it is refused", 2)),
        (lambda _, attachment: attachment.pending(URI), (PENDING, "", 5)),
        (lambda table, _: table.drop(URI, "me"), (None, "", 2)),
        (lambda table, _: table.detach("there is no session now"), (PENDING, "there is no session now", 2)),
    ],
    ids=["agreed", "refused", "silent", "dropped", "lost"],
)
async def test_the_answer_is_waited_for(
    table: Subscriptions,
    happens: Callable[[Subscriptions, Attachment], object],
    expected: tuple[SubscriptionState | None, str, float],
):
    """Until the server has said something, nobody wants it any more, the session is gone, or the time is over."""
    attachment = table.attach()

    assert expected == await after_two_seconds(table, lambda: happens(table, attachment))


async def test_a_reason_is_shown_without_the_secrets_that_a_server_puts_there():
    """Whoever asks how a resource stands gets the words of the server as events have them."""
    table = Subscriptions(SubscriptionTeller("s", lambda _: None, lambda text: text.replace("s3cret", "***"), lambda: 1))
    table.want(URI, "me")
    table.attach().failed(URI, "no such s3cret", None)

    assert ["no such ***"] == [status.reason for status in table.statuses()]


async def test_nothing_is_waited_for_without_a_session(table: Subscriptions):
    """What is wanted of a server that is away is wanted, and that is all that can be said."""
    assert (PENDING, "", 0) == await after_two_seconds(table, lambda: None)
    assert PENDING is table.state(URI)
    assert None is table.state("memo://other")


async def test_what_is_known_is_told_at_once(table: Subscriptions):
    """A second holder need not wait for what was said to the first."""
    table.attach().active(URI)
    table.want(URI, "you")

    assert (ACTIVE, "", 0) == await after_two_seconds(table, lambda: None)

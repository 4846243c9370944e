"""The notice before a drain: how long it takes, and who it is for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from mcpvisor.daemon.notice import ASKED_SECONDS, DrainNotice

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.mark.parametrize(("ago", "takes"), [(0.0, 5.0), (ASKED_SECONDS, 5.0), (ASKED_SECONDS + 1, 0.0), (None, 0.0)])
async def test_it_takes_its_time_where_somebody_asks(ago: float | None, takes: float):
    """It lasts its time where `/readyz` was asked within the last minute, and none where nobody would find out."""
    notice = DrainNotice(5.0)
    if ago is not None:
        notice.asked()
        await anyio.sleep(ago)
    began = anyio.current_time()
    said = notice.seconds
    await notice.give(anyio.Event())

    assert (said, anyio.current_time() - began) == (takes, takes)


async def test_it_can_be_hurried():
    """Whoever hurries the stop ends it."""
    notice, hurried = DrainNotice(5.0), anyio.Event()
    notice.asked()
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notice.give, hurried)
        await anyio.sleep(1)
        hurried.set()

    assert anyio.current_time() - began == 1.0

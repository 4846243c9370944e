"""Owns the two things that end-to-end tests run: a supervisor in this process, and daemons in processes of their own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.e2e.running import RunningDaemon

from mcpvisor.supervisor.process.sweep import find_marked
from mcpvisor.supervisor.supervisor import Supervisor


@pytest.fixture
async def supervisor(anyio_backend: str) -> AsyncIterator[Supervisor]:
    """A guarded supervisor with real processes; after the test nothing that it started may be left."""
    async with Supervisor() as supervisor:
        yield supervisor
    assert [] == find_marked(supervisor.instance)


@pytest.fixture
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RunningDaemon]]:
    """Starts daemons: `daemon(text_of_a_drop_in)`. What they have written is shown when the test fails.

    At the end each is told to end, and nothing that it started may be left.
    """
    running: list[RunningDaemon] = []
    numbers = itertools.count()

    def start(servers: str, **options: Any) -> RunningDaemon:
        # A short folder: the path of a unix socket has at most 107 bytes.
        started = RunningDaemon(tmp_path_factory.mktemp(f"d{next(numbers)}"), servers, **options)
        running.append(started)
        started.until_serving()
        return started

    yield start
    left = [pid for one in running for pid in one.clear()]
    for one in running:
        print(f"--- {one.folder}/stderr\n{one.log_text()}")
    assert [] == left

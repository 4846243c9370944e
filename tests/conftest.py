"""Owns what all tests share: the backend of async tests, and where the puppet servers are."""

from __future__ import annotations

from pathlib import Path

import pytest

SERVERS = Path(__file__).parent / "servers"


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Async tests run on asyncio unless their module widens the choice."""
    return request.param


@pytest.fixture
def servers() -> Path:
    """The folder of the puppet servers."""
    return SERVERS

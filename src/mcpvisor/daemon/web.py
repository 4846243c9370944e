"""Owns uvicorn as the daemon needs it: no signal handlers, no ticking, no log of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp


def quiet_config(app: ASGIApp, protocol: Callable[..., asyncio.Protocol], **more: Any) -> uvicorn.Config:
    """The settings that all our listeners share; `more` are uvicorn's own."""
    return uvicorn.Config(
        app,
        http=cast("Any", protocol),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        **more,
    )


class QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers and its ticking: the daemon owns both."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Take no more connections, and end once those there are have been answered or the grace is over."""
        self.should_exit = True
        self._stopped.set()

    async def main_loop(self) -> None:
        """Wait for `stop`; uvicorn would wake ten times a second."""
        await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the process's signal handlers alone."""
        yield

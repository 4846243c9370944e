"""Owns the notice before a drain: the moment in which whoever sends clients here finds out that it should not."""

from __future__ import annotations

import math
from typing import Final

import anyio

ASKED_SECONDS: Final = 60.0
"""How long ago `/readyz` may have been asked by somebody who is believed to ask again."""


class DrainNotice:
    """How long a daemon that is to stop still serves all that comes, while `/readyz` says that it drains.

    Where nobody has asked `/readyz` lately, nobody would find out, and it takes no time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked_at = -math.inf

    def asked(self) -> None:
        """Somebody asked `/readyz`."""
        self._asked_at = anyio.current_time()

    @property
    def seconds(self) -> float:
        """What a notice that is given now takes."""
        return self._seconds if anyio.current_time() - self._asked_at <= ASKED_SECONDS else 0.0

    async def give(self, hurried: anyio.Event) -> None:
        """Return when the notice was given, or at once when it is `hurried`."""
        with anyio.move_on_after(self.seconds):
            await hurried.wait()

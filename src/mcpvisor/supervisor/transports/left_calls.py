"""Owns the calls that are over for their callers, and of which the server may still say something."""

from __future__ import annotations

from collections import deque
from typing import Final

import anyio

from mcpvisor.supervisor.open_calls import OpenCall

GIVEN_UP: Final = 10.0
"""Seconds for which a server may still be at a request that was withdrawn: until then what it asks may belong to that."""


class LeftCalls:
    """Those that were given up, under the ids of their requests, and those whose answers have just come."""

    def __init__(self) -> None:
        self.late = 0.0
        """Seconds that what a server says of a call may be on its way by other streams once the answer is here."""
        self._given_up: dict[int, tuple[OpenCall, float]] = {}
        """Calls that nobody waits for any more and that the server may still be at, and until when that is thought of them."""
        self._answered: deque[tuple[OpenCall, float]] = deque()
        """Calls whose answers have come, and until when something of them may still be on its way."""

    def gave_up(self, number: int, call: OpenCall) -> None:
        """Nobody waits for the answer to request `number`, but the server may go on with it for a while, and ask something."""
        self._given_up[number] = call, anyio.current_time() + GIVEN_UP

    def answered(self, call: OpenCall) -> None:
        """The answer to a call is here."""
        if self.late:
            self._answered.append((call, anyio.current_time() + self.late))

    def done_with(self, number: int) -> None:
        """The server has answered a request that was given up."""
        self._given_up.pop(number, None)

    def still_at(self) -> list[OpenCall]:
        """The calls that a server may still be at, so that a question of it may belong to them."""
        if self._given_up:
            now = anyio.current_time()
            self._given_up = {number: one for number, one in self._given_up.items() if one[1] > now}
        return [call for call, _ in self._given_up.values()]

    def just_answered(self) -> list[OpenCall]:
        """The calls of which something may still be on its way, though their answers are here."""
        while self._answered and self._answered[0][1] <= anyio.current_time():
            self._answered.popleft()
        return [call for call, _ in self._answered]

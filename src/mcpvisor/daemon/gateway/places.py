"""Owns the places for connections: how many each listener has, and who leaves one when all are taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

STANDING_STATE: Final = "mcpvisor.standing"
"""Where a request's `scope["state"]` holds the `Standing` of its connection."""


@dataclass(slots=True, eq=False)
class Standing:
    """What a connection has earned: one that no request was admitted on is the first to go."""

    is_admitted: bool = False
    is_lost: bool = False
    on_lost: Callable[[], None] | None = None
    """Told that the connection is lost, by whatever makes its request wait before anything else is done for it."""

    def lose(self) -> None:
        """The connection is lost."""
        self.is_lost = True
        if self.on_lost is not None:
            self.on_lost()


class Places:
    """The places of every listener, so many each: a flood on one address takes none from another's clients.

    Where all are taken, the oldest connection that was never admitted leaves for the newest: an honest newcomer, a probe
    too, is served at once, and only who does not ask or may not ask is old and not admitted.
    """

    def __init__(self, per_listener: int) -> None:
        self._per_listener = per_listener
        self._taken: defaultdict[Hashable, dict[Standing, None]] = defaultdict(dict)
        self._strangers: defaultdict[Hashable, dict[Standing, Callable[[], None]]] = defaultdict(dict)

    def take(self, listener: Hashable, standing: Standing, leave: Callable[[], None]) -> bool:
        """Take a place, for which another may be told to `leave`; False where there is none."""
        taken, strangers = self._taken[listener], self._strangers[listener]
        if len(taken) >= self._per_listener and not self._free_one(taken, strangers):
            return False
        taken[standing] = None
        strangers[standing] = leave
        return True

    def give_back(self, listener: Hashable, standing: Standing) -> None:
        """The connection is over; one that has no place is no error."""
        self._taken[listener].pop(standing, None)
        self._strangers[listener].pop(standing, None)

    @staticmethod
    def _free_one(taken: dict[Standing, None], strangers: dict[Standing, Callable[[], None]]) -> bool:
        while strangers:
            standing = next(iter(strangers))
            leave = strangers.pop(standing)
            if standing in taken and not standing.is_admitted:
                del taken[standing]
                leave()
                return True
        return False

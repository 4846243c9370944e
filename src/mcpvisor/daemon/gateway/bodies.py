"""Owns how many bytes of bodies are held, and how they are shared between those who send them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager


class Bodies:
    """Bytes of bodies, from their arrival to the end of their exchange, since the decoded message lives until then.

    A principal may hold as much as is free beside it: alone it has half of the room, and what others have left is never
    taken whole, so that nobody's bodies keep another from sending one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._of: Counter[str] = Counter()
        self._held = 0

    @contextmanager
    def hold(self, principal: str) -> Generator[Held]:
        """Count one body while it is held."""
        held = Held(self, principal)
        try:
            yield held
        finally:
            held.release()

    def grow(self, principal: str, size: int) -> bool:
        """Count bytes; False, and nothing counted, where they are over the principal's share."""
        if self._of[principal] + size > self._limit - self._held - size:
            return False
        self._of[principal] += size
        self._held += size
        return True

    def shrink(self, principal: str, size: int) -> None:
        """Count bytes no more."""
        self._held -= size
        self._of[principal] -= size
        if not self._of[principal]:
            del self._of[principal]


class Held:
    """What is held of one body."""

    def __init__(self, bodies: Bodies, principal: str) -> None:
        self._bodies = bodies
        self._principal = principal
        self._size = 0

    def grow(self, size: int) -> bool:
        """Take more of the body; False where there is no room for it."""
        if not self._bodies.grow(self._principal, size):
            return False
        self._size += size
        return True

    def release(self) -> None:
        """Hold nothing any more."""
        self._bodies.shrink(self._principal, self._size)
        self._size = 0

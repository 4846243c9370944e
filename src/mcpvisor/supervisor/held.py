"""Owns which generations of one server are left, and whether what is left stands in the way of another one."""

from __future__ import annotations

from mcpvisor.supervisor.lifecycle_messages import Open, Restarted


class Held:
    """The generations that were opened and are not gone."""

    def __init__(self) -> None:
        self.newest = 0
        """The number of the newest generation; 0 before the first."""
        self.restarts = 0
        """How many further ones there were, but for those that only spoke to the server in another way.

        Of those that were brought up beside the one that served only those that have taken over.
        """
        self.open: set[int] = set()
        """Those that another one has to wait for."""
        self.lingering: set[int] = set()
        """Those that finish what is in flight while another one is opened, or serves."""
        self.processes: set[int] = set()
        """Which of all these are processes of ours."""

    @property
    def is_empty(self) -> bool:
        """Whether no generation is left in any form."""
        return not self.open and not self.lingering

    def opening(self, cause: str, *, is_process: bool) -> Open:
        """The command that opens a further generation."""
        self.newest += 1
        self.open.add(self.newest)
        if is_process:
            self.processes.add(self.newest)
        return Open(self.newest, cause if self.newest > 1 else "start")

    def restarted(self, generation: int, cause: str) -> Restarted:
        """Count a generation as a further one, and tell of it."""
        self.restarts += 1
        return Restarted(generation, cause)

    def linger(self, generation: int) -> None:
        """Nobody need wait for it any more."""
        self.open.discard(generation)
        self.lingering.add(generation)

    def closed(self, generation: int) -> None:
        """It is gone entirely."""
        for held in (self.open, self.lingering, self.processes):
            held.discard(generation)

    def has_room_beside(self, current: int | None, *, is_process: bool) -> bool:
        """Whether one may be opened while `current` serves: nothing else may be left, of processes not even on its way out."""
        return not self.open - {current} and not (is_process and self.lingering & self.processes)

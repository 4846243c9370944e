"""Owns what is known of a version of an entry that did not become ready, and how that is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mcpvisor.daemon.config.companions import other_files
from mcpvisor.daemon.config.problems import Problem
from mcpvisor.daemon.local_time import iso_time
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A version that is written, and not in force until its entry is edited or a restart is ordered.

    Times are wall-clock seconds since the epoch.
    """

    written: ServerSpec
    former: ServerSpec
    """The version that is in force in its place."""
    former_at: float
    """When that one was first seen to be good."""
    since: float
    why: str
    """Why the written one did not become ready, for people."""

    def problem(self) -> Problem:
        """The same as everything that is told of what is written and not in force."""
        file, _, line = self.written.origin.rpartition(":")
        message = (
            f"rolled back at {iso_time(self.since)} to the version of {iso_time(self.former_at)}, since this one did not "
            f"become ready: {self.why}; it is tried again when it is edited, or by `mcpvisor restart {self.written.name}`"
        )
        return Problem(
            file=Path(file) if file else None,
            line=int(line) if file and line.isdecimal() else None,
            key_path=f"servers.{self.written.name}",
            message=message,
            server=self.written.name,
            keeps_running=True,
            since=self.since,
            needs=other_files(self.former, self.written),
        )

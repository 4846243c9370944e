"""Owns since when drop-ins are absent, and the rule that an absence alone is no news before its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.look import Fingerprint

ABSENCE: Final = 5.0
"""Seconds after which a drop-in that is absent from a readable folder is a removal."""


class Absences:
    """Compares what was seen last with what is there now, where a file may be away for a moment."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    @property
    def since(self) -> Mapping[Path, float]:
        """The absent files, with the time at which that was seen first."""
        return {Path(path): since for path, since in self._since.items()}

    @property
    def due(self) -> float | None:
        """When the first of them has been absent for long enough; None when there are none."""
        return min(self._since.values()) + ABSENCE if self._since else None

    def is_news(self, seen: Fingerprint, now: Fingerprint, time: float) -> bool:
        """Whether a reload would do more than wait. `time` is that of the look that saw `now`."""
        there = {path for path, _ in now.files}
        absent = [path for path, _ in seen.files if path not in there and str(Path(path).parent) in now.listed]
        self._since = {path: self._since.get(path, time) for path in absent}
        if replace(seen, files=tuple(file for file in seen.files if file[0] not in self._since)) != now:
            return True
        return self.due is not None and self.due <= time

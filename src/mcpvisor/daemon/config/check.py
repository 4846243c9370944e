"""Owns what `mcpvisor check` finds: every problem and hint of a configuration, without starting anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.load import Loaded, load

EX_CONFIG: Final = 78


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of a check, and its two printed forms."""

    loaded: Loaded

    @property
    def exit_code(self) -> int:
        """0, or 78 when anything is rejected; hints change nothing."""
        return EX_CONFIG if self.loaded.problems else 0

    def lines(self) -> list[str]:
        """What people read: one line for each problem and hint, and one that sums up."""
        loaded = self.loaded
        lines = [f"error: {problem}" for problem in loaded.problems] + [f"hint: {hint}" for hint in loaded.hints]
        held = f"{_count(len(loaded.files), 'file')}, {_count(len(loaded.specs), 'server')}"
        if loaded.handlers:
            held += f", {_count(len(loaded.handlers), 'handler')}"
        found = f"{_count(len(loaded.problems), 'error')}, {_count(len(loaded.hints), 'hint')}"
        return [*lines, f"{held}: {found}"]

    def as_json(self) -> dict[str, Any]:
        """What `check --json` prints; fields are added, never changed."""
        return {
            "ok": not self.loaded.problems,
            "files": [str(file) for file in self.loaded.files],
            "servers": sorted(self.loaded.specs),
            "handlers": sorted(self.loaded.handlers),
            "errors": [problem.as_json() for problem in self.loaded.problems],
            "hints": [hint.as_json() for hint in self.loaded.hints],
        }


def check(paths: Sequence[Path], environ: Mapping[str, str], *, uid: int | None = None) -> CheckResult:
    """Validate offline: nothing is started, dialled or written. `uid` is the user of the daemon, else our own."""
    return CheckResult(load(paths, environ, uid=uid))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

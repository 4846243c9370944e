"""Owns how much is told of what was found: in the order of files and lines, and no more of one file than somebody reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from mcpvisor.daemon.config.problems import Problem

MOST: Final = 100
"""Errors, and hints, that are told of one file; one more line says how many there are beside these."""


def told(found: Iterable[Problem], files: Sequence[Path], what: str) -> tuple[Problem, ...]:
    """What is told of `found`, the problems of no file first; `what` is their plural, as `errors`."""
    order = {file: number for number, file in enumerate(files)}
    by_file: dict[Path | None, list[Problem]] = {}
    for problem in sorted(found, key=lambda one: (order.get(one.file, -1) if one.file else -1, one.line or 0, one.column or 0)):
        by_file.setdefault(problem.file, []).append(problem)
    kept: list[Problem] = []
    for file, problems in by_file.items():
        kept += problems[:MOST]
        if len(problems) > MOST:
            kept.append(Problem(file=file, message=f"and {len(problems) - MOST} more {what} in this file"))
    return tuple(kept)

"""Owns the decision what a start applies beside what is written: versions that an earlier run of the daemon has kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcpvisor.daemon.config.ages import Ages
from mcpvisor.daemon.config.applied import Applied, decide, hold_back
from mcpvisor.daemon.config.good_files import GoodFile
from mcpvisor.daemon.config.held_back import HeldBack
from mcpvisor.daemon.config.load import Basis, Loaded
from mcpvisor.supervisor.spec import ServerSpec


@dataclass(frozen=True, slots=True)
class Former:
    """A version that its server was ready with in an earlier run, and when that was first seen, in wall-clock seconds."""

    spec: ServerSpec
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What an earlier run has kept of the files that are still part of the configuration. Times in wall-clock seconds."""

    basis: Basis | None
    """The last good settings; None where none are kept, or where they are no longer good."""
    files: Mapping[Path, GoodFile]
    ready: Mapping[str, Former] = field(default_factory=dict[str, Former])
    held: Mapping[str, tuple[float, str]] = field(default_factory=dict[str, tuple[float, str]])
    """Servers of which the very version that is written was held back: since when, and why."""
    good_at: Mapping[str, float] = field(default_factory=dict[str, float])
    """By server, when its version was found to be good."""
    file_at: Mapping[Path, float] = field(default_factory=dict[Path, float])
    """By file, when the newest part of it was."""


def decide_with_past(past: Past | None, loaded: Loaded, now: float, at: float = 0.0) -> Applied | None:
    """What to run at a start: what is written and, in the place of what cannot be used, what is kept. None: nothing.

    `now` and `at` as in `decide`.
    """
    basis = loaded.basis or (past.basis if past is not None else None)
    if past is None or basis is None:
        return decide(None, loaded, now, at=at)
    last = Applied(
        basis=past.basis or basis,
        running=basis.settings,
        files=past.files,
        specs={name: spec for file in past.files.values() for name, spec in file.specs.items()},
        handlers={name: spec for file in past.files.values() for name, spec in file.handlers.handlers.items()},
        ages=Ages(past.good_at, past.file_at),
    )
    applied = decide(last, loaded, now, at=at)
    if applied is None:
        return None
    applied = replace(applied, running=applied.basis.settings)
    for name, (since, why) in past.held.items():
        former = past.ready.get(name)
        written = applied.specs.get(name)
        if former is not None and written is not None:
            held = HeldBack(written=written, former=former.spec, former_at=former.at, since=since, why=why)
            applied = hold_back(applied, held) or applied
    return applied

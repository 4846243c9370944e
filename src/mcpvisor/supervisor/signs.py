"""Owns the form of what is known to be wrong with one server now, besides its state; a value, never a live object."""

from __future__ import annotations

from dataclasses import dataclass

from mcpvisor.supervisor.events import CatalogKind


@dataclass(frozen=True, slots=True)
class CatalogDrop:
    """An entry of a list that is left out or repaired, in words that may be shown."""

    kind: CatalogKind
    entry: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Each is kept by whoever owns what it is about, and is gone with it; none is read from what happened before."""

    cause: str = ""
    """The cause of the newest failure, empty where there was none since the server was last ready."""
    ends: int = 0
    """Ends that counted as crashes since the server was last up for long."""
    ends_seconds: float | None = None
    """How long ago the first of them was; None where there was none."""
    noise: int = 0
    """Lines of the present process, or of the last one, that were no messages; of HTTP those of the session."""
    excerpt: str = ""
    """One of them that has a word in it, cut and cleaned."""
    drops: tuple[CatalogDrop, ...] = ()
    """What is left out of the present lists or repaired in them: the first of each list."""
    dropped: int = 0
    """How many entries that is in all."""
    log_level: str = ""
    """Which log level the present session does not take, and why; empty where it takes all."""
    is_penniless: bool = False
    """Whether its credentials have to be fetched, and the last try to do so failed."""
    denied: str = ""
    """How the present session has lately refused a request with credentials that are good; empty where it has not."""


NO_SIGNS = Signs()
"""Of an entry that no server runs by."""

"""Owns what the wires of one server have brought that was no message, or was refused, by the generation that brought it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

FIRST: Final = 3
"""So many lines of a generation are looked at for an excerpt, and after that one at each power of ten."""


@dataclass(slots=True)
class WireFaults:
    """What one generation has brought."""

    noise: int = 0
    """Lines that were no messages."""
    excerpt: str = ""
    """One of them, cut and cleaned: the newest that was looked at and has a word in it."""
    refused: str = ""
    """Why the newest message that was refused was refused; empty where none was."""

    def show(self, excerpt: str) -> None:
        """Take a further line for the excerpt, but for the rulers and frames of a banner."""
        if not self.excerpt or any(character.isalnum() for character in excerpt):
            self.excerpt = excerpt


class FaultsByGeneration:
    """Those of the generations that are not gone, and of the newest one whatever became of it."""

    def __init__(self) -> None:
        self._of: dict[int, WireFaults] = {}
        self.noise = 0
        """Lines that were no messages, of all generations together."""

    def of(self, generation: int) -> WireFaults:
        """What a generation has brought."""
        return self._of.get(generation) or WireFaults()

    def at(self, generation: int) -> WireFaults:
        """The same, to be added to."""
        return self._of.setdefault(generation, WireFaults())

    def forget_all_but(self, generations: Collection[int]) -> None:
        """A further generation begins: what those have brought that are gone by now says nothing any more."""
        self._of = {number: faults for number, faults in self._of.items() if number in generations}

    def count_noise(self, generation: int, lines: int) -> bool:
        """Count lines that were no messages; whether this is worth to be told of.

        That are the first few of the server, and each power of ten that is reached.
        """
        before = self.noise
        self.noise += lines
        self.at(generation).noise += lines
        return self.noise <= FIRST or len(str(self.noise)) > len(str(before))

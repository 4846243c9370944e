"""Owns the dead letters: all of them by handler, and which of them goes when there is no room for all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from mcpvisor.daemon.state.kept import KeptEvent


@dataclass(slots=True)
class _Letter:
    kept: KeptEvent
    size: int
    number: int


@dataclass(slots=True)
class _Shelf:
    """Those of one handler, the oldest first."""

    letters: OrderedDict[str, _Letter] = field(default_factory=OrderedDict[str, _Letter])
    size: int = 0


class DeadLetters:
    """The dead letters. Sizes are in bytes."""

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._numbers = count()
        self._number = 0
        self._size = 0

    def __len__(self) -> int:
        return self._number

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[KeptEvent]:
        """All of them, those that died first come first."""
        letters = (letter for shelf in self._shelves.values() for letter in shelf.letters.values())
        return (letter.kept for letter in sorted(letters, key=lambda letter: letter.number))

    @property
    def size(self) -> int:
        """How large all of them are."""
        return self._size

    def get(self, key: str) -> KeptEvent | None:
        """One of them, None where there is none of that key."""
        for shelf in self._shelves.values():
            if (letter := shelf.letters.get(key)) is not None:
                return letter.kept
        return None

    def add(self, kept: KeptEvent, size: int) -> None:
        """One more, whose key none of them has."""
        shelf = self._shelves.setdefault(kept.handler, _Shelf())
        shelf.letters[kept.key] = _Letter(kept, size, next(self._numbers))
        shelf.size += size
        self._size += size
        self._number += 1

    def remove(self, key: str) -> bool:
        """Take one out; whether it was there."""
        for handler, shelf in self._shelves.items():
            if (letter := shelf.letters.pop(key, None)) is not None:
                shelf.size -= letter.size
                self._size -= letter.size
                self._number -= 1
                if not shelf.letters:
                    del self._shelves[handler]
                return True
        return False

    def older_than(self, at: float) -> Iterator[str]:
        """The keys of those that died before `at`, in wall-clock seconds; of each handler up to the first younger one."""
        for shelf in self._shelves.values():
            for key, letter in shelf.letters.items():
                if letter.kept.dead_at is None or letter.kept.dead_at >= at:
                    break
                yield key

    def least_missed(self, *, by_size: bool) -> str:
        """The key of the one that goes first: the oldest of the handler that has the most of them, or the largest together.

        So whoever is flooded loses its own, and those of the others stay.
        """
        fullest = max(self._shelves.values(), key=lambda shelf: shelf.size if by_size else len(shelf.letters))
        return next(iter(fullest.letters))

"""Owns what is known to be secret whoever tells it: the values that went into any entry, for all that leaves the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcpvisor.supervisor.secret_index import SHORTEST, SecretIndex, Span, masked

MAX_KNOWN: Final = 4096
"""Values that are remembered, the newest ones: one that was replaced may still be in somebody's mouth."""

MAX_PASSING: Final = 1024
"""Values of a short life that are remembered at least, the newest ones: each server may fetch tokens as long as it runs."""


class KnownSecrets:
    """Masks the secrets of all entries. From every thread; the cost of a text grows with its length, not with their number."""

    def __init__(self) -> None:
        self._own: tuple[str, ...] = ()
        self._known: dict[str, None] = {}
        self._passing: dict[str, None] = {}
        self._found = SecretIndex()
        self._lock = threading.Lock()

    def learn(self, values: Iterable[str]) -> None:
        """Mask these, too. What is in force has to be among them each time, lest it count as old."""
        fresh = dict.fromkeys(value for value in values if len(value) >= SHORTEST)
        with self._lock:
            known = {value: None for value in self._known if value not in fresh} | fresh
            known = dict.fromkeys(list(known)[-max(MAX_KNOWN, len(fresh)) :])
            is_news = known.keys() != self._known.keys()
            self._known = known
            if is_news:
                self._arrange()

    def learn_passing(self, values: Iterable[str]) -> None:
        """Mask these until `MAX_PASSING` newer ones have come, or a while longer."""
        with self._lock:
            for value in values:
                if len(value) >= SHORTEST and value not in self._passing:
                    self._passing[value] = None
                    self._found.add(value)
            if len(self._passing) > 2 * MAX_PASSING:
                self._passing = dict.fromkeys(list(self._passing)[-MAX_PASSING:])
                self._arrange()

    def learn_own(self, value: str) -> None:
        """Mask a secret of the daemon itself for good."""
        with self._lock:
            self._own = (*self._own, value)
            self._arrange()

    def _arrange(self) -> None:
        self._found = SecretIndex([*self._own, *self._known, *self._passing])

    def text(self, text: str) -> str:
        """The text with every known secret masked, also one that was cut with the text."""
        return masked(text, self.spans(text))

    def spans(self, text: str) -> list[Span]:
        """Where known secrets stand in a text; one may begin within another."""
        return self._found.spans(text)

    def may_begin(self, begin: str) -> bool:
        """Whether a value may go on behind so few characters, at the end of a text."""
        return self._found.may_begin(begin)

    def value(self, value: Any) -> Any:
        """A plain value, not deep, with every known secret in its texts and keys masked; the same one while none is known."""
        if not self._found:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key) if isinstance(key, str) else key: self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value

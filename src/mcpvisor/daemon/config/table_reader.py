"""Owns the reading of one table key by key: each value expanded, checked and typed, or a problem at its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from mcpvisor.daemon.config.durations import DURATION_EXPECTED, SIZE_EXPECTED, seconds, size
from mcpvisor.daemon.config.entry_scope import Item, Scope, home_expanded, items_of, kind_of
from mcpvisor.daemon.config.problems import cut
from mcpvisor.supervisor.secret import MASK, Secret
from mcpvisor.supervisor.secret_looks import looks_secret
from mcpvisor.supervisor.spec import Text

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_MOST: Final = 2**31 - 1
"""The largest whole number of any key: nothing that is counted here comes near it, and the system takes no larger ones."""


class TableReader:
    """Reads a table. Every key must be asked for; `finish` complains about the rest.

    All readers give the default after a problem was recorded, so that one pass finds all problems of an entry.
    """

    def __init__(self, items: Mapping[str, Item], scope: Scope) -> None:
        self._items = items
        self._scope = scope
        self._asked: dict[str, None] = {}

    @property
    def scope(self) -> Scope:
        return self._scope

    def item(self, key: str) -> Item | None:
        """The item of a key as it stands; None when it is absent (or null, in another program's file)."""
        self._asked[key] = None
        item = self._items.get(key)
        return None if item is not None and item.value is None and self._scope.foreign else item

    def finish(self, known: Iterable[str] = ()) -> None:
        """Record each key that nobody asked for: an error in our files, a hint in those of others."""
        words = list(dict.fromkeys([*self._asked, *known]))
        expected = "one of " + ", ".join(words)
        for key, item in self._items.items():
            if key in self._asked:
                continue
            near = item.document.near(key, words)
            if self._scope.foreign:
                self._scope.unused(item, "not a key that is used here", near=near)
            else:
                self._scope.problem(item, "unknown key", expected="" if near else expected, near=near)

    def text(self, key: str) -> Text | None:
        """A text, secret where a variable went into it; None when absent."""
        item = self.item(key)
        return None if item is None else self.text_of(item)

    def text_of(self, item: Item) -> Text | None:
        """The text of an item; None after a problem."""
        if not isinstance(item.value, str):
            self._scope.problem(item, f"is {kind_of(item.value)}", expected="a text")
            return None
        result = self._scope.expanded(item)
        if result is None:
            return None
        return Secret(result.text, result.values) if result.touched else result.text

    def plain(self, key: str) -> str | None:
        """A text that is no secret whatever went into it, such as a path; None when absent."""
        item = self.item(key)
        text = None if item is None else self.text_of(item)
        return text.reveal() if isinstance(text, Secret) else text

    def path(self, key: str) -> str | None:
        """A path: `~` is the home of the daemon's user, a relative one starts at the folder of the file."""
        item, text = self.item(key), self.plain(key)
        if item is None or text is None:
            return None
        folder = item.document.file.absolute().parent
        return os.path.normpath(folder / home_expanded(text, self._scope.sources.environ))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts that are no secrets; empty when absent."""
        texts = [self.text_of(item) for item in self.elements(key)]
        return tuple(t.reveal() if isinstance(t, Secret) else t for t in texts if t is not None)

    def words(self, key: str) -> tuple[str, ...]:
        """A text or a list of texts, none of which is a secret; empty when absent."""
        item = self.item(key)
        if item is None:
            return ()
        if isinstance(item.value, list):
            return self.texts(key)
        if not isinstance(item.value, str):
            self._scope.problem(item, f"is {kind_of(item.value)}", expected="a text or a list of texts")
            return ()
        text = self.plain(key)
        return () if text is None else (text,)

    def condition(self, key: str) -> tuple[str, ...]:
        """The words of a condition, of which one has to hold; empty when absent, where it always does.

        An empty list is a problem: nothing could meet it, and it must not be taken for no condition.
        """
        item = self.item(key)
        if item is not None and item.value == []:
            self._scope.problem(item, "is an empty list, which nothing meets", expected="no such key where anything will do")
        return self.words(key)

    def elements(self, key: str) -> list[Item]:
        """The elements of a list; empty when absent."""
        item = self.item(key)
        if item is None:
            return []
        if not isinstance(item.value, list):
            self._scope.problem(item, f"is {kind_of(item.value)}", expected="a list")
            return []
        return [Item(value, (*item.path, n), item.document) for n, value in enumerate(item.value)]

    def flag(self, key: str, default: bool) -> bool:
        """A truth value. The quoted words count in the files of others, with a hint, and after an expansion."""
        item = self.item(key)
        if item is None:
            return default
        if isinstance(item.value, bool):
            return item.value
        if isinstance(item.value, str):
            result = self._scope.expanded(item)
            if result is None:
                return default
            word = result.text.strip().lower()
            if word in {"true", "false"} and (self._scope.foreign or result.touched):
                if not result.touched:
                    self._scope.hint(item, f'"{word}" in quotes is taken as {word}')
                return word == "true"
        self._scope.problem(item, f"is {kind_of(item.value)}", expected="true or false, without quotes")
        return default

    def converted(self, key: str, default: T, convert: Callable[[Any], T], expected: str, words: Iterable[str] = ()) -> T:
        """A value that `convert` makes of what is written; its ValueError becomes a problem with `expected`.

        `words` are those that may have been meant.
        """
        item = self.item(key)
        if item is None:
            return default
        value = item.value
        touched = False
        if isinstance(value, str):
            result = self._scope.expanded(item)
            if result is None:
                return default
            value, touched = result.text, result.touched
            if touched and value.isascii() and value.isdigit() and len(value) < 20:
                value = int(value)
        try:
            return convert(value)
        except ValueError as error:
            # What came out of a variable may be the wrong variable's secret.
            shown = "" if touched or isinstance(value, list | dict) else f"{_cut(value)}: "
            near = item.document.near(value, words) if isinstance(value, str) and not touched else ""
            self._scope.problem(item, f"{shown}{error}", expected=expected, near=near)
            return default

    def seconds(self, key: str, default: float, *, positive: bool = False) -> float:
        """A duration in seconds."""

        def convert(value: Any) -> float:
            result = seconds(value)
            if positive and result <= 0:
                raise ValueError("must be more than zero")
            return result

        return self.converted(key, default, convert, DURATION_EXPECTED)

    def size(self, key: str, default: int, *, least: int = 0) -> int:
        """A size in bytes, at least `least`."""

        def convert(value: Any) -> int:
            result = size(value)
            if result < least:
                raise ValueError(f"must be at least {least} bytes")
            return result

        return self.converted(key, default, convert, SIZE_EXPECTED)

    def integer(self, key: str, default: int, *, least: int) -> int:
        """A whole number, at least `least`."""

        def convert(value: Any) -> int:
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError("not allowed here")
            if value > _MOST:
                raise ValueError(f"must be at most {_MOST}")
            return value

        return self.converted(key, default, convert, f"a whole number, at least {least}")

    def choice(self, key: str, default: E) -> E:
        """One of the words of an enumeration."""
        words = [member.value for member in type(default)]

        def convert(value: Any) -> E:
            if value not in words:
                raise ValueError("not a word that is known here")
            return type(default)(value)

        return self.converted(key, default, convert, "one of " + ", ".join(f'"{word}"' for word in words), words)

    def known_words(self, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the known words that a list holds, in the order in which they are known; empty when absent."""
        expected = "a list of " + ", ".join(f'"{word}"' for word in known)
        found: set[str] = set()
        for item in self.elements(key):
            text = self.text_of(item)
            word = text.reveal() if isinstance(text, Secret) else text
            if word in known:
                found.add(word)
            elif word is not None:
                near = "" if isinstance(text, Secret) else item.document.near(word, known)
                shown = "" if isinstance(text, Secret) else f"{_cut(word)}: "
                self._scope.problem(item, f"{shown}not a word that is known here", expected=expected, near=near)
        return tuple(word for word in known if word in found)

    def table(self, key: str) -> TableReader | None:
        """A reader of a table within; None when absent."""
        item = self.item(key)
        if item is None:
            return None
        if not isinstance(item.value, dict):
            self._scope.problem(item, f"is {kind_of(item.value)}", expected="a table")
            return None
        return self.table_of(item)

    def table_of(self, item: Item) -> TableReader | None:
        """A reader of an item that is a table; None for anything else, which is for the caller to say."""
        if not isinstance(item.value, dict):
            return None
        return TableReader(items_of(item.value, item.path, item.document), self._scope)

    def all_items(self) -> Mapping[str, Item]:
        """Every item of a table whose keys are free, such as `env`."""
        return self._items


def _cut(value: Any) -> str:
    if isinstance(value, str) and looks_secret(value):
        return f'"{MASK}"'  # a secret that was written at the wrong key
    if isinstance(value, str):
        # An opening quote without its end would look like a mistake of the file.
        return f'"{cut(value)}"'
    return cut(str(value).lower() if isinstance(value, bool) else str(value))

"""Owns which keys an entry may have, and of which form: learnt by letting the readers of entries read an example.

There is no list of keys beside the one that the readers are: a reader that asks for a key makes it known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from mcpvisor.daemon.config import forms
from mcpvisor.daemon.config.entry_scope import Item, Scope, items_of
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.forms import Form
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.problems import Findings
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.supervisor.spec import Text

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

Example = Mapping[str, Any]
"""The least that an entry of some kind says."""

_DOCUMENT: Final = Document(Path("/example.toml"), {}, {})
_LONG: Final = "x" * 64
_VALUES: Final[Mapping[str, Any]] = {"string": _LONG, "boolean": True, "number": 1, "array": [_LONG], "object": {}}
"""A value of each type, to see which of them are taken where keys or elements are free; long enough to be any secret."""

_MISSING: Final = ("the ", " is missing")


def _nothing(_: str) -> str:
    raise LookupError("an example has no variables")


def learn(read: Callable[[TableReader, Document, KeyPath], object], examples: Iterable[Example]) -> Form:
    """The form of a table: all keys that `read` asks for with any of the examples; those of every example are required."""
    found: Form = {}
    required: list[set[str]] = []
    for example in examples:
        findings = Findings()
        place = Item(dict(example), (), _DOCUMENT)
        scope = Scope("example", Sources({}, _nothing, _nothing), findings, foreign=False, handler="", entry=place)
        recorder = Recorder(items_of(example, (), _DOCUMENT), scope, _Seen())
        read(recorder, _DOCUMENT, ())
        found = forms.merged(found, recorder.form())
        required.append(set(example))
    always = sorted(set.intersection(*required)) if required else []
    if always:
        found["required"] = always
    choices = sorted({tuple(sorted(keys - set(always))) for keys in required})
    if len(choices) > 1 and all(choices):
        found["anyOf"] = [{"required": list(choice)} for choice in choices]
    return found


class _Seen:
    """What readers have asked of single values, by their paths: shared by all recorders of one example."""

    def __init__(self) -> None:
        self.texts: set[KeyPath] = set()
        self.tables: dict[KeyPath, Recorder] = {}


class Recorder(TableReader):
    """A reader that notes what it is asked for. Absent tables are read as empty ones, lists as if they had elements."""

    def __init__(self, items: Mapping[str, Item], scope: Scope, seen: _Seen, path: KeyPath = ()) -> None:
        super().__init__(items, scope)
        self._seen = seen
        self._path = path
        self._forms: dict[str, Form] = {}
        self._within: dict[str, Recorder] = {}
        self._lists: set[str] = set()
        self._free = False

    # What is known in the end

    def form(self) -> Form:
        """The form of this table."""
        if self._free:
            return {"type": "object", "additionalProperties": self._taken(self._path)}
        properties = {key: form for key in self._forms if (form := self._form_of(key))}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def _form_of(self, key: str) -> Form:
        path = (*self._path, key)
        if key in self._within:
            return self._within[key].form()
        if key in self._lists and self._forms[key].get("items") == {}:
            return {**self._forms[key], "items": self._taken(path)}
        if not self._forms[key] and path in self._seen.texts:
            return forms.TEXT
        return self._forms[key]

    def _taken(self, path: KeyPath) -> Form:
        """The form of the values at free keys, or of the elements, of a path."""
        refused = {problem.key_path for problem in (*self._findings.problems, *self._findings.hints)}
        taken: list[Form] = []
        for place, (kind, _) in self._probes(path).items():
            table = self._seen.tables.get(place)
            if table is not None:
                taken.append(self._with_required(table.form(), place))
            elif not any(_is_within(one, _DOCUMENT.problem(place, "").key_path) for one in refused):
                taken.append(forms.of_type(kind))
        return forms.any_of(taken)

    def _with_required(self, form: Form, place: KeyPath) -> Form:
        """The form of an element, with the keys without which its reader complains."""
        where = _DOCUMENT.problem(place, "").key_path
        said = [problem.message for problem in self._findings.problems if problem.key_path == where]
        before, after = _MISSING
        required = sorted(
            m.removeprefix(before).removesuffix(after) for m in said if m.startswith(before) and m.endswith(after)
        )
        return {**form, "required": required} if required else form

    @property
    def _findings(self) -> Findings:
        return self.scope.findings

    def _probes(self, path: KeyPath) -> dict[KeyPath, tuple[str, Any]]:
        """Free keys, or elements beyond those of the example, with a value of each type."""
        if path[-1:] and path[-1] in self._lists and not self._free:
            return {(*path, 1000 + n): (kind, value) for n, (kind, value) in enumerate(_VALUES.items())}
        return {(*path, kind): (kind, value) for kind, value in _VALUES.items()}

    # What readers ask

    def _note(self, key: str, form: Form | None = None) -> None:
        """Remember a key; the first form counts, since one question may be asked by way of another."""
        if not self._forms.get(key):
            self._forms[key] = form or {}

    def item(self, key: str) -> Item | None:
        self._note(key)
        if key in self._within and key not in self._items:
            return Item({}, (*self._path, key), _DOCUMENT)
        return super().item(key)

    def text_of(self, item: Item) -> Text | None:
        if isinstance(item.value, str):
            self._seen.texts.add(item.path)
        return super().text_of(item)

    def text(self, key: str) -> Text | None:
        self._note(key, forms.TEXT)
        return super().text(key)

    def plain(self, key: str) -> str | None:
        self._note(key, forms.TEXT)
        return super().plain(key)

    def texts(self, key: str) -> tuple[str, ...]:
        self._note(key, forms.TEXTS)
        return super().texts(key)

    def words(self, key: str) -> tuple[str, ...]:
        self._note(key, forms.WORDS)
        return super().words(key)

    def condition(self, key: str) -> tuple[str, ...]:
        self._note(key, forms.CONDITION)
        return super().condition(key)

    def elements(self, key: str) -> list[Item]:
        if self._free:  # the value of a free key, which is an array of texts
            path = (*self._path, key)
            return [Item(value, (*path, n), _DOCUMENT) for n, value in enumerate(_VALUES[key])]
        self._note(key, {"type": "array", "items": {}})
        self._lists.add(key)
        probes = self._probes((*self._path, key))
        return [*super().elements(key), *(Item(value, path, _DOCUMENT) for path, (_, value) in probes.items())]

    def flag(self, key: str, default: bool) -> bool:
        self._note(key, forms.with_default(forms.FLAG, default))
        return super().flag(key, default)

    def converted(self, key: str, default: T, convert: Callable[[Any], T], expected: str, words: Iterable[str] = ()) -> T:
        if not self._forms.get(key):  # else it was asked by way of a more telling question
            self._note(key, forms.expected(expected, default))
        return super().converted(key, default, convert, expected, words)

    def seconds(self, key: str, default: float, *, positive: bool = False) -> float:
        self._note(key, forms.duration(default, positive=positive))
        return super().seconds(key, default, positive=positive)

    def size(self, key: str, default: int, *, least: int = 0) -> int:
        self._note(key, forms.size(default, least=least))
        return super().size(key, default, least=least)

    def integer(self, key: str, default: int, *, least: int) -> int:
        self._note(key, forms.integer(default, least=least))
        return super().integer(key, default, least=least)

    def choice(self, key: str, default: E) -> E:
        self._note(key, forms.choice([member.value for member in type(default)], default.value))
        return super().choice(key, default)

    def known_words(self, key: str, known: tuple[str, ...]) -> tuple[str, ...]:
        self._note(key, {"type": "array", "items": {"enum": list(known)}, "default": []})
        return super().known_words(key, known)

    def table(self, key: str) -> TableReader | None:
        self._note(key)
        item = self.item(key)
        values: Mapping[str, Any] = item.value if item is not None and isinstance(item.value, dict) else {}
        within = self._within.get(key)
        if within is None:
            path = (*self._path, key)
            within = Recorder(items_of(values, path, _DOCUMENT), self.scope, self._seen, path)
            self._within[key] = within
        return within

    def table_of(self, item: Item) -> TableReader | None:
        if not isinstance(item.value, dict):
            return None
        found = self._seen.tables.get(item.path)
        if found is None:
            found = Recorder(items_of(item.value, item.path, _DOCUMENT), self.scope, self._seen, item.path)
            self._seen.tables[item.path] = found
        return found

    def all_items(self) -> Mapping[str, Item]:
        self._free = True
        return {kind: Item(value, (*self._path, kind), _DOCUMENT) for kind, value in _VALUES.items()}


def _is_within(one: str, other: str) -> bool:
    """Whether a shown path is another one, or lies within it."""
    return one == other or one.startswith((f"{other}.", f"{other}["))

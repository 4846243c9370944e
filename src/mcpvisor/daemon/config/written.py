"""Owns entries as they are written, with their variables unexpanded: what is kept of a version, to be read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.entry_scope import Item
from mcpvisor.daemon.config.positions import Document, KeyPath, Position

JsonObject = dict[str, Any]

_SHARED: Final = ("inputs",)
"""What entries of other programs' files may refer to beside themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One entry, or a part of a file: the values of its document that say it, and nothing else of that."""

    file: Path
    is_main: bool
    path: KeyPath
    """Where it stands in `data`; empty for a part of a file."""
    data: Mapping[str, Any] = field(repr=False)
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The `[defaults]` beneath it, as they are written."""
    line: int | None = None
    column: int | None = None

    def document(self) -> Document:
        """The same as a document that can be read like a file."""
        known = self.line is not None and self.column is not None
        places = {self.path: Position(self.line or 1, self.column or 1)} if known and self.path else {}
        return Document(self.file, dict(self.data), places)

    def items(self) -> dict[str, Item]:
        """The `[defaults]` as an entry is read over them."""
        document = Document(self.file, {"defaults": dict(self.defaults)}, {})
        return {key: Item(value, ("defaults", key), document) for key, value in self.defaults.items()}

    def as_json(self) -> JsonObject:
        """The same as plain JSON values."""
        return {
            "file": str(self.file),
            "is_main": self.is_main,
            "path": list(self.path),
            "data": dict(self.data),
            "defaults": dict(self.defaults),
            "line": self.line,
            "column": self.column,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Written:
        """What `as_json` gave. Raises KeyError, TypeError and ValueError for anything else."""
        if not isinstance(value["data"], dict) or not isinstance(value["defaults"], dict):
            raise TypeError("no tables")
        return cls(
            file=Path(value["file"]),
            is_main=bool(value["is_main"]),
            path=tuple(str(part) for part in value["path"]),
            data=value["data"],
            defaults=value["defaults"],
            line=value["line"],
            column=value["column"],
        )


def written_entry(document: Document, path: KeyPath, defaults: Mapping[str, Item], *, is_main: bool) -> Written:
    """The entry at `path`, with the defaults beneath it."""
    value: Any = document.data
    for part in path:
        value = value[part]
    for part in reversed(path):
        value = {part: value}
    position = document.at(path)
    return Written(
        file=document.file,
        is_main=is_main,
        path=path,
        data={**{key: document.data[key] for key in _SHARED if key in document.data}, **value},
        defaults={key: _plain(item) for key, item in defaults.items()},
        line=position.line if position else None,
        column=position.column if position else None,
    )


def written_part(document: Document, keys: Iterable[str], *, is_main: bool) -> Written:
    """The tables of a document that are named so."""
    data = {key: document.data[key] for key in keys if key in document.data}
    return Written(file=document.file, is_main=is_main, path=(), data=data)


def _plain(value: Any) -> Any:
    if isinstance(value, Item):
        return _plain(value.value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value

"""Owns what the files add up to, key by key, and where each key comes from; read offline, with secrets masked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config import forms, others
from mcpvisor.daemon.config.config_file import read_document
from mcpvisor.daemon.config.dialects import is_ours
from mcpvisor.daemon.config.discovery import discover
from mcpvisor.daemon.config.entry_scope import Item, items_of
from mcpvisor.daemon.config.expansion import Sources
from mcpvisor.daemon.config.file_servers import read_defaults
from mcpvisor.daemon.config.layers import PREFIX, Layer, all_layers, merge_layers
from mcpvisor.daemon.config.masking import MASK, masked
from mcpvisor.daemon.config.names import is_name
from mcpvisor.daemon.config.positions import Document, KeyPath
from mcpvisor.daemon.config.problems import ConfigError, Findings
from mcpvisor.daemon.config.schema import toml_schema
from mcpvisor.daemon.config.server_entry import with_defaults
from mcpvisor.daemon.config.settings import SECTIONS, Settings

DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Shown:
    """One key: its path within its table, its value with secrets masked, and where it comes from."""

    path: KeyPath
    value: Any
    origin: str
    """`file:line`, `environment NAME`, `credential NAME`, `command line` or `default`."""


@dataclass(slots=True)
class Table:
    """One table of the configuration, as `[servers.docs]`; an element of `[[routes]]` has a number in its path."""

    path: KeyPath
    keys: list[Shown] = field(default_factory=list[Shown])
    origin: str = ""


class Effective:
    """All tables that the files of `paths` and the environment add up to. With `whole`, the defaults of entries too."""

    def __init__(self, paths: Sequence[Path], environ: Mapping[str, str], uid: int, *, whole: bool = False) -> None:
        self.tables: list[Table] = []
        self._schema = toml_schema()
        self._whole = whole
        self._sources = Sources(environ, _unread, _unread)
        found = discover(paths)
        documents: list[Document] = []
        mains: list[Document] = []
        for file in found.files:
            try:
                document = read_document(file.path, uid)
            except ConfigError:
                continue  # which `check` tells
            documents.append(document)
            if file.is_main:
                mains.append(document)
        self._settings(all_layers(mains, environ, uid, {})[0])
        defaults: dict[str, Item] = {}
        for document in mains:
            defaults = {**read_defaults(document, self._sources, Findings()), **defaults}
        names: set[str] = set()
        for document in documents:
            self._servers(document, defaults, names)
        self._handlers(documents)
        self._routes(documents, mains)

    # Settings

    def _settings(self, layers: Sequence[Layer]) -> None:
        settings, _ = merge_layers(layers)
        for section in SECTIONS:
            table = Table((section,))
            for key, model in Settings.model_fields[section].annotation.model_fields.items():  # type: ignore[union-attr]
                layer = next((layer for layer in layers if layer.has((section, key))), None)
                value = getattr(getattr(settings, section), key) if settings is not None else None
                if settings is None:
                    value = layer.values[section][key] if layer is not None else model.get_default()
                table.keys.append(Shown((key,), _written(value), _origin_of_setting(layer, section, key)))
            self.tables.append(table)

    # Entries

    def _servers(self, document: Document, defaults: Mapping[str, Item], names: set[str]) -> None:
        known = self._schema["definitions"]["server"]["properties"]
        for name, path, own in self._entries(document):
            if not is_name(name) or name in names:
                continue  # which `check` tells
            names.add(name)
            items = {key: item for key, item in with_defaults(own, defaults).items() if key in known}
            self._add(("servers", name), items, document, path, known)

    def _entries(self, document: Document) -> Iterable[tuple[str, KeyPath, Mapping[str, Item]]]:
        if not is_ours(document):
            return others.entries(document, self._sources)
        table = document.data.get("servers")
        tables = {name: value for name, value in table.items() if isinstance(value, dict)} if isinstance(table, dict) else {}
        paths: dict[str, KeyPath] = {name: ("servers", name) for name in tables}
        return [(name, paths[name], items_of(value, paths[name], document)) for name, value in tables.items()]

    def _handlers(self, documents: Iterable[Document]) -> None:
        names: set[str] = set()
        for document in documents:
            entries = document.data.get("handlers") if is_ours(document) else None
            for name, value in entries.items() if isinstance(entries, dict) else ():
                if isinstance(value, dict) and name not in names:
                    names.add(name)
                    path: KeyPath = ("handlers", name)
                    self._add(path, items_of(value, path, document), document, path, self._keys_of(value.get("type")))

    def _keys_of(self, kind: Any) -> Mapping[str, Any]:
        types = (one["properties"] for one in self._schema["definitions"]["handler"]["oneOf"])
        return next((keys for keys in types if keys["type"]["enum"] == [kind]), {})

    def _routes(self, documents: Iterable[Document], mains: Iterable[Document]) -> None:
        for document in mains:
            if isinstance(value := document.data.get("routing"), dict):
                items = items_of(value, ("routing",), document)
                self._add(("routing",), items, document, ("routing",), self._schema["properties"]["routing"]["properties"])
        number = 0
        for document in documents:
            routes = document.data.get("routes") if is_ours(document) else None
            for at, value in enumerate(routes if isinstance(routes, list) else ()):
                if isinstance(value, dict):
                    path: KeyPath = ("routes", at)
                    self._add(("routes", number), items_of(value, path, document), document, path, {})
                    number += 1

    def _add(
        self, path: KeyPath, items: Mapping[str, Item], document: Document, written: KeyPath, known: Mapping[str, Any]
    ) -> None:
        table = Table(path, origin=_place(document, written))
        for key, item in items.items():
            said_there = _flat((key,), item)
            if known and key not in known:  # misspelt, and nobody knows for what
                said_there = [Shown(one.path, MASK, one.origin) for one in said_there]
            table.keys += said_there
        if self._whole:
            others = self._others(items) if path[0] == "servers" else frozenset[str]()
            said = {shown.path for shown in table.keys}
            table.keys += [
                Shown(at, value, DEFAULT)
                for at, value in _defaults({key: form for key, form in known.items() if key not in others})
                if not any(one[: len(at)] == at or at[: len(one)] == one for one in said)
            ]
        order = list(known)
        table.keys.sort(key=lambda shown: order.index(str(shown.path[0])) if shown.path[0] in order else len(order))
        self.tables.append(table)

    def _others(self, items: Mapping[str, Item]) -> frozenset[str]:
        """The keys that only a server of the other kind has."""
        dependencies = self._schema["definitions"]["server"]["dependencies"]
        return frozenset(dependencies["url" if "url" in items else "command"]["properties"])


def _unread(_: str) -> str:
    raise LookupError("is not read to be shown")


def _origin_of_setting(layer: Layer | None, section: str, key: str) -> str:
    if layer is None:
        return DEFAULT
    if layer.document is not None:
        return _place(layer.document, (section, key))
    variable = f"{PREFIX}{section}__{key}".upper()
    return f"{layer.name} {variable}" if layer.name in {"environment", "credential"} else layer.name


def _place(document: Document, path: KeyPath) -> str:
    position = document.at(path)
    return f"{document.file}:{position.line}" if position is not None else str(document.file)


def _flat(path: KeyPath, item: Item) -> list[Shown]:
    """The keys of an item one by one; those of a table that was merged have places of their own."""
    value = item.value.value if isinstance(item.value, Item) else item.value
    if isinstance(value, dict) and value:
        inner = items_of(value, item.path, item.document)
        return [shown for key, one in inner.items() for shown in _flat((*path, key), one)]
    plain = [one.value if isinstance(one, Item) else one for one in value] if isinstance(value, list) else value
    return [Shown(path, masked(path, plain), _place(item.document, item.path))]


def _defaults(properties: Mapping[str, Any], path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = []
    for key, form in properties.items():
        if "default" in form:
            found.append(((*path, key), form["default"]))
        elif "properties" in form:
            found += _defaults(form["properties"], (*path, key))
    return found


def _written(value: Any) -> Any:
    """A setting as a file would say it."""
    if isinstance(value, float):
        return forms.written_seconds(value)
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value

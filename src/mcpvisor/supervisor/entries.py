"""Owns which entries of a server's lists are good: each is judged by itself, so that one bad tool never hides the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mcpvisor.supervisor.cleaning import clip
from mcpvisor.supervisor.events import CatalogKind
from mcpvisor.supervisor.sdk import header_fault

JsonObject = dict[str, Any]

_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Work in steps, at the end of which there is a value."""

MAX_NAME: Final = 512
"""Characters of a name or a URI; longer ones are refused, since nothing downstream could carry them."""

UNCOMMON_NAME: Final = "the name has characters that some clients refuse, or too many; clients see it cleaned"
_NAMED: Final = frozenset({"tools", "prompts"})
_COMMON_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""What the specification recommends for names (SEP-986)."""

_KEY: Final[dict[CatalogKind, str]] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "resource_templates": "uriTemplate",
}
_KNOWN_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry that was left out or repaired, and why."""

    entry: str
    why: str


class Judge:
    """Judges the entries of one list, one after another; of two equal keys the first is kept."""

    def __init__(self, kind: CatalogKind) -> None:
        self._kind: CatalogKind = kind
        self._kept: dict[str, JsonObject] = {}
        self._taken = 0
        self.dropped: list[Dropped] = []
        """What was wrong with the entries that are not kept as they came."""

    @property
    def kept(self) -> tuple[JsonObject, ...]:
        """The good entries, in their order."""
        return tuple(self._kept.values())

    def take(self, entry: Any) -> None:
        """Judge one more entry."""
        for _ in self.judging(entry):
            pass

    def judging(self, entry: Any) -> Steps[None]:
        """The same in steps, none of which is long."""
        yield
        kind, position = self._kind, self._taken
        self._taken += 1
        key = entry.get(_KEY[kind]) if isinstance(entry, dict) else None
        fault = _key_fault(kind, entry, key)
        shown = key if isinstance(key, str) and key else f"entry {position}"
        if fault is None and isinstance(key, str) and key in self._kept:
            fault = f"{_KEY[kind]} stands in the list already; the first one is kept"
        good, repaired = entry, None
        if fault is None and kind == "tools":
            good, fault, repaired = yield from _tool(entry)
        if fault is None and isinstance(key, str) and kind in _NAMED and not _COMMON_NAME.fullmatch(key):
            repaired = "; ".join(filter(None, [repaired, UNCOMMON_NAME]))
        if fault or repaired:
            self.dropped.append(Dropped(shown[:MAX_NAME], fault or repaired or ""))
        if fault is None and isinstance(key, str):
            self._kept[key] = good


def is_kept_entry(kind: CatalogKind, entry: Any) -> bool:
    """Whether an entry that was kept in an earlier run has what everybody relies on."""
    key = entry.get(_KEY[kind]) if isinstance(entry, dict) else None
    return _key_fault(kind, entry, key) is None and (kind != "tools" or isinstance(entry.get("inputSchema"), dict))


def _key_fault(kind: CatalogKind, entry: Any, key: Any) -> str | None:
    if not isinstance(entry, dict):
        return "the entry is no object"
    if not isinstance(key, str) or not key:
        return f"{_KEY[kind]} is no text, or empty"
    if len(key) > MAX_NAME:
        return f"{_KEY[kind]} has more than {MAX_NAME} characters"
    return None


def _tool(entry: JsonObject) -> Steps[tuple[JsonObject, str | None, str | None]]:
    """The tool to show, the fault for which it is left out, and the repair that was made."""
    schema = entry.get("inputSchema")
    if not isinstance(schema, dict):
        return entry, "inputSchema is missing or no object", None
    fault = (yield from _schema_fault(schema)) or header_fault(schema)
    if fault is not None:
        return entry, f"inputSchema: {fault}", None
    if schema.get("type", "object") != "object":
        return entry, "inputSchema is not for an object", None
    output = entry.get("outputSchema")
    if "outputSchema" in entry and (not isinstance(output, dict) or (yield from _schema_fault(output)) is not None):
        repaired = {key: value for key, value in entry.items() if key != "outputSchema"}
        return repaired, None, "outputSchema is not valid; the tool is kept without it"
    if "type" not in schema:
        entry = {**entry, "inputSchema": {"type": "object", **schema}}
    return entry, None, None


_SINGLE: Final = ("additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_MAX_SCHEMAS: Final = 10_000
_SCHEMAS_IN_A_STEP: Final = 50


def _schema_fault(root: Any) -> Steps[str | None]:
    """What makes a JSON Schema unusable, as far as its shape tells: types, the members that hold schemas, remote references.

    It is read, never resolved: a reference to another address is a fault, and nothing is fetched.
    """
    todo: list[Any] = [root]
    for number in range(_MAX_SCHEMAS):
        if not todo:
            return None
        if number % _SCHEMAS_IN_A_STEP == 0:
            yield
        schema = todo.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            return "a schema is neither an object nor a boolean"
        fault = _own_fault(schema)
        if fault is not None:
            return fault
        todo.extend(_inner_schemas(schema))
    return f"more than {_MAX_SCHEMAS} schemas in one"


def _own_fault(schema: JsonObject) -> str | None:
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind] if "type" in schema else []
    for one in kinds:
        if not isinstance(one, str):
            return "type is neither a text nor a list of texts"
        if one not in _KNOWN_TYPES:
            return f"type {clip(one, 60)!r} is unknown"
    reference = schema.get("$ref")
    if isinstance(reference, str) and not reference.startswith("#"):
        return "$ref leads to another document, which is never fetched"
    required = schema.get("required")
    if "required" in schema and not (isinstance(required, list) and all(isinstance(one, str) for one in required)):
        return "required is no list of names"
    checks: list[tuple[tuple[str, ...], Callable[[Any], bool], str]] = [
        (_MAPS, lambda value: isinstance(value, dict), "an object"),
        (_LISTS, lambda value: isinstance(value, list), "a list"),
    ]
    for keys, accepts, wanted in checks:
        for key in keys:
            if key in schema and not accepts(schema[key]):
                return f"{key} is not {wanted}"
    return None


def _inner_schemas(schema: JsonObject) -> list[Any]:
    inner: list[Any] = []
    for key in _MAPS:
        inner.extend(schema.get(key, {}).values())
    for key in _LISTS:
        inner.extend(schema.get(key, []))
    for key in _SINGLE:
        if key in schema:
            value = schema[key]
            inner.extend(value if key == "items" and isinstance(value, list) else [value])
    return inner

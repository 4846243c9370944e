"""Owns what a form of a server asks for, and whether an answer fits: linear in the size of both, and fetching nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcpvisor.daemon.questions.fields import KEYWORDS, Field, read_field
from mcpvisor.daemon.questions.misunderstanding import NotUnderstood
from mcpvisor.daemon.questions.patterns import OutOfSteps, Steps
from mcpvisor.daemon.questions.wording import DESCRIPTION, TITLE, is_clean, shown

JsonObject = dict[str, Any]

MOST_FIELDS: Final = 64
MOST_OPTIONS: Final = 1000
"""Of all fields of a form together."""
MOST_NAME: Final = 128
MOST_FAULTS: Final = 8
"""How many faults of one answer are named; the others are counted."""

_OF_FORM: Final = frozenset({"type", "properties", "required", "additionalProperties"})
MOST_SIZE: Final = 50_000
"""Characters and values of a schema, all together: what is read is cleaned, which costs by its length."""
MOST_STATES: Final = 2000
"""Of the patterns of all fields together."""
STEPS: Final = 60_000
"""What the patterns of one form may cost for one answer: some 20 ms."""
_MOST_DIALECT: Final = 200


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, in the server's order."""

    fields: Mapping[str, Field]
    title: str = ""
    description: str = ""
    dialect: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name, field in self.fields.items() if field.required)

    def schema(self) -> JsonObject:
        """The same form as a JSON Schema of the protocol's subset: with clean words, and nothing that was not understood."""
        schema: JsonObject = {"$schema": self.dialect} if self.dialect else {}
        schema |= {"type": "object", "properties": {name: field.schema() for name, field in self.fields.items()}}
        schema |= {key: text for key, text in (("title", self.title), ("description", self.description)) if text}
        return schema | ({"required": list(self.required)} if self.required else {})

    def faults(self, content: Any) -> list[str]:
        """What is wrong with an answer, by field and without any of its values; empty when it fits."""
        if not isinstance(content, dict):
            return ["the content must be an object"]
        strangers = [name for name in content if name not in self.fields]
        faults = [f"{_named(name)}: was not asked for" for name in strangers[: MOST_FAULTS + 1]]
        steps = Steps(STEPS)
        for name, field in self.fields.items():
            if len(faults) > MOST_FAULTS:
                break
            if fault := _fault(field, content, name, steps):
                faults.append(f"{name}: {fault}")
        return faults if len(faults) <= MOST_FAULTS else [*faults[:MOST_FAULTS], "and more"]


def read_form(schema: Any) -> Form:
    """The form that a `requestedSchema` describes. Raises NotUnderstood, which says what of it is not of the protocol's subset.

    Keywords that JSON Schema does not know are left out, as it says; one that it knows and that is not understood here refuses
    the form, since an answer could not be checked.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise NotUnderstood("the schema must be one of an object")
    if not _is_small(schema):
        raise NotUnderstood(f"it has more than {MOST_SIZE} characters and values")
    for key in schema:
        if key in KEYWORDS and key not in _OF_FORM:
            raise NotUnderstood(f"{key} is not understood")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or len(properties) > MOST_FIELDS:
        raise NotUnderstood(f"its properties must be an object of at most {MOST_FIELDS}")
    if not isinstance(required, list) or len(required) > MOST_FIELDS or not all(isinstance(name, str) for name in required):
        raise NotUnderstood(f"required must be a list of at most {MOST_FIELDS} names")
    if unknown := [name for name in required if name not in properties]:
        raise NotUnderstood(f"{_named(unknown[0])} is required, and is no property")
    fields: dict[str, Field] = {}
    options = states = 0
    for name, value in properties.items():
        field = fields[name] = _field(name, value, name in required)
        options += len(field.options)
        states += field.states
        if options > MOST_OPTIONS or states > MOST_STATES:
            raise NotUnderstood("it has too many options, or patterns that are too large")
    dialect = schema.get("$schema")
    return Form(
        fields,
        title=shown(schema.get("title"), TITLE),
        description=shown(schema.get("description"), DESCRIPTION),
        dialect=dialect if isinstance(dialect, str) and len(dialect) <= _MOST_DIALECT and is_clean(dialect) else "",
    )


def _is_small(schema: JsonObject) -> bool:
    """Whether the schema as a whole is within its bounds; looked at before anything of it is read."""
    waiting: list[Any] = [schema]
    left = MOST_SIZE
    while waiting and left >= 0:
        value = waiting.pop()
        left -= 1
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, list):
            left -= len(value)
            waiting += value if left >= 0 else ()
        elif isinstance(value, dict):
            left -= sum(map(len, value))
            waiting += value.values() if left >= 0 else ()
    return left >= 0


def _field(name: str, schema: Any, required: bool) -> Field:
    if not name or len(name) > MOST_NAME or not is_clean(name) or shown(name, MOST_NAME) != name:
        raise NotUnderstood(f"{_named(name)}: such a name of a property cannot be shown as it is")
    try:
        return read_field(schema, required)
    except NotUnderstood as error:
        raise NotUnderstood(f"{name}: {error}") from None


def _fault(field: Field, content: JsonObject, name: str, steps: Steps) -> str:
    if name not in content:
        return "is missing" if field.required else ""
    try:
        return field.fault(content[name], steps)
    except OutOfSteps:
        return "takes too long to be compared with its pattern"


def _named(name: Any) -> str:
    """A name that may be anything, for people."""
    return shown(name, MOST_NAME) or "a nameless property"

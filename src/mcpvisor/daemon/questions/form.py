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
STEPS: Final = 150_000
"""What the patterns of one form may cost for one answer: some 30 ms."""
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
    fields = {name: _field(name, value, name in required) for name, value in properties.items()}
    if sum(len(field.options) for field in fields.values()) > MOST_OPTIONS:
        raise NotUnderstood(f"it has more than {MOST_OPTIONS} options")
    dialect = schema.get("$schema")
    return Form(
        fields,
        title=shown(schema.get("title"), TITLE),
        description=shown(schema.get("description"), DESCRIPTION),
        dialect=dialect if isinstance(dialect, str) and len(dialect) <= _MOST_DIALECT and is_clean(dialect) else "",
    )


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

"""Owns the fields of a form: the primitive schemas of the protocol, how each is read, written and checked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from mcpvisor.daemon.questions.formats import FORMATS
from mcpvisor.daemon.questions.misunderstanding import NotUnderstood
from mcpvisor.daemon.questions.patterns import OutOfSteps, Pattern, Steps, read_pattern
from mcpvisor.daemon.questions.wording import DESCRIPTION, TITLE, is_clean, shown

JsonObject = dict[str, Any]

MOST_TEXT: Final = 65_536
"""The most characters of one answer in text."""
MOST_OPTION: Final = 128
MOST_CHOSEN: Final = 1000

MOST_OPTION_TITLE: Final = 80
_MOST_BITS: Final = 1024
"""Of a whole number: as large as the largest of the others."""


@dataclass(frozen=True, slots=True)
class Option:
    """One of the values that can be chosen."""

    value: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(ABC):
    """What all fields have."""

    required: bool
    nullable: bool = False
    """Whether null is an answer as well; it is outside of the protocol's subset, and some servers write it."""
    title: str = ""
    description: str = ""
    default: Any = None
    """None where there is none, or none that fits."""
    options: tuple[Option, ...] = ()

    def fault(self, value: Any, steps: Steps) -> str:
        """What is wrong with an answer, without its value; empty when it fits. Raises OutOfSteps."""
        if value is None:
            return "" if self.nullable else "must not be null"
        return self._fault(value, steps)

    def schema(self) -> JsonObject:
        """The field in the words of the protocol."""
        words = (("title", self.title), ("description", self.description))
        schema = {"type": self.kind} | {key: text for key, text in words if text} | self._rules()
        return schema if self.default is None else schema | {"default": self.default}

    @property
    def states(self) -> int:
        """How large the machine of its pattern is."""
        return 0

    @property
    @abstractmethod
    def kind(self) -> str:
        """The `type` of its schema."""

    @abstractmethod
    def _fault(self, value: Any, steps: Steps) -> str: ...

    @abstractmethod
    def _rules(self) -> JsonObject: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextField(Field):
    """A text."""

    least: int = 0
    most: int = MOST_TEXT
    format: str = ""
    pattern: Pattern | None = None

    @property
    def states(self) -> int:
        return len(self.pattern) if self.pattern is not None else 0

    @property
    def kind(self) -> str:
        return "string"

    def _fault(self, value: Any, steps: Steps) -> str:
        if not isinstance(value, str):
            return "must be a text"
        if not self.least <= len(value) <= self.most:
            return f"must have {self.least} to {self.most} characters"
        if self.format and not FORMATS[self.format](value):
            return f"must be of the format {self.format}"
        if self.pattern is not None and not self.pattern.found_in(value, steps):
            return "must match its pattern"
        return ""

    def _rules(self) -> JsonObject:
        rules: JsonObject = {"minLength": self.least} if self.least else {}
        rules |= {"maxLength": self.most} if self.most < MOST_TEXT else {}
        rules |= {"format": self.format} if self.format else {}
        return rules | ({"pattern": self.pattern.source} if self.pattern is not None else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberField(Field):
    """A number."""

    whole: bool
    bounds: tuple[tuple[str, float], ...] = ()
    """By keyword."""

    @property
    def kind(self) -> str:
        return "integer" if self.whole else "number"

    def _fault(self, value: Any, steps: Steps) -> str:  # noqa: ARG002 # a number is checked in one step
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            return "must be a number"
        if self.whole and isinstance(value, float) and not value.is_integer():
            return "must be a whole number"
        for keyword, bound in self.bounds:
            phrase, holds = _BOUNDS[keyword]
            if not holds(value, bound):
                return f"must be {phrase} {bound}"
        return ""

    def _rules(self) -> JsonObject:
        return dict(self.bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagField(Field):
    """Yes or no."""

    @property
    def kind(self) -> str:
        return "boolean"

    def _fault(self, value: Any, steps: Steps) -> str:  # noqa: ARG002 # a flag is checked in one step
        return "" if isinstance(value, bool) else "must be true or false"

    def _rules(self) -> JsonObject:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceField(Field):
    """One of some texts."""

    written: Literal["enum", "oneOf", "anyOf"]
    """How the server has written them."""

    @property
    def kind(self) -> str:
        return "string"

    def _fault(self, value: Any, steps: Steps) -> str:  # noqa: ARG002 # the options are few
        return (
            "" if isinstance(value, str) and any(value == one.value for one in self.options) else "must be one of its options"
        )

    def _rules(self) -> JsonObject:
        return _written(self.options, self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicesField(Field):
    """Some of some texts."""

    written: Literal["enum", "oneOf", "anyOf"]
    least: int = 0
    most: int = MOST_CHOSEN
    unique: bool = False

    @property
    def kind(self) -> str:
        return "array"

    def _fault(self, value: Any, steps: Steps) -> str:  # noqa: ARG002 # one look per chosen option
        if not isinstance(value, list):
            return "must be a list"
        if not self.least <= len(value) <= self.most:
            return f"must have {self.least} to {self.most} of its options"
        values = {one.value for one in self.options}
        if not all(isinstance(one, str) and one in values for one in value):
            return "must have nothing but its options"
        return "must have no option twice" if self.unique and len(set(value)) < len(value) else ""

    def _rules(self) -> JsonObject:
        rules: JsonObject = {"minItems": self.least} if self.least else {}
        rules |= {"maxItems": self.most} if self.most < MOST_CHOSEN else {}
        rules |= {"uniqueItems": True} if self.unique else {}
        return rules | {"items": ({"type": "string"} if self.written == "enum" else {}) | _written(self.options, self.written)}


def read_field(schema: Any, required: bool) -> Field:
    """The field that a property of a `requestedSchema` describes. Raises NotUnderstood."""
    if not isinstance(schema, dict):
        raise NotUnderstood("is no schema")
    schema, nullable = _without_null(schema)
    kind = schema.get("type", "string" if _choice_of(schema) else None)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise NotUnderstood("its type must be string, number, integer, boolean, or an array of options")
    words: JsonObject = {
        "required": required,
        "nullable": nullable,
        "title": shown(schema.get("title"), TITLE),
        "description": shown(schema.get("description"), DESCRIPTION),
    }
    field = read(schema, words)
    default = schema.get("default")
    if default is None or not _fits(field, default):
        return field
    return read(schema, {**words, "default": default})


def _without_null(schema: JsonObject) -> tuple[JsonObject, bool]:
    """The schema without the null that some servers allow for what need not be answered, and whether it did."""
    kind, either = schema.get("type"), schema.get("anyOf")
    if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
        return {**schema, "type": kind[1] if kind[0] == "null" else kind[0]}, True
    if isinstance(either, list) and len(either) == 2 and {"type": "null"} in either:
        other = either[1] if either[0] == {"type": "null"} else either[0]
        if isinstance(other, dict):
            return {**other, **{key: value for key, value in schema.items() if key != "anyOf"}}, True
    return schema, False


def _fits(field: Field, default: Any) -> bool:
    """Whether a default may stand in the form: it fits, and a person who reads it sees all of it."""
    try:
        fits = field.fault(default, Steps(_STEPS_OF_DEFAULT)) == ""
    except OutOfSteps:
        return False
    return fits and (not isinstance(default, str) or is_clean(default.replace("\n", "").replace("\t", "")))


_STEPS_OF_DEFAULT: Final = 5000


def _text(schema: JsonObject, words: JsonObject) -> Field:
    if written := _choice_of(schema):
        _understood(schema, {written, "enumNames"} if written == "enum" else {written})
        return ChoiceField(**words, options=_options(schema, written), written=written)
    _understood(schema, {"minLength", "maxLength", "format", "pattern"})
    form, pattern = schema.get("format", ""), schema.get("pattern")
    if not isinstance(form, str) or (form and form not in FORMATS):
        raise NotUnderstood(f"its format must be one of {', '.join(FORMATS)}")
    if pattern is not None and not isinstance(pattern, str):
        raise NotUnderstood("its pattern must be a text")
    return TextField(
        **words,
        least=_count(schema, "minLength", 0),
        most=min(_count(schema, "maxLength", MOST_TEXT), MOST_TEXT),
        format=form,
        pattern=None if pattern is None else read_pattern(pattern),
    )


def _number(schema: JsonObject, words: JsonObject) -> Field:
    _understood(schema, set(_BOUNDS))
    bounds = {keyword: schema[keyword] for keyword in _BOUNDS if schema.get(keyword) is not None}
    if any(isinstance(one, bool) or not isinstance(one, int | float) or not _is_finite(one) for one in bounds.values()):
        raise NotUnderstood("its bounds must be numbers")
    return NumberField(**words, whole=schema["type"] == "integer", bounds=tuple(bounds.items()))


def _flag(schema: JsonObject, words: JsonObject) -> Field:
    _understood(schema, set())
    return FlagField(**words)


def _choices(schema: JsonObject, words: JsonObject) -> Field:
    _understood(schema, {"items", "minItems", "maxItems", "uniqueItems"})
    items = schema.get("items")
    written = _choice_of(items) if isinstance(items, dict) else None
    if not isinstance(items, dict) or written is None or items.get("type", "string") != "string":
        raise NotUnderstood("the items of an array must be options")
    _understood(items, {written, "enumNames"} if written == "enum" else {written})
    return ChoicesField(
        **words,
        options=_options(items, written),
        written=written,
        least=_count(schema, "minItems", 0),
        most=min(_count(schema, "maxItems", MOST_CHOSEN), MOST_CHOSEN),
        unique=schema.get("uniqueItems") is True,
    )


_READERS: Final[Mapping[str, Callable[[JsonObject, JsonObject], Field]]] = {
    "string": _text,
    "number": _number,
    "integer": _number,
    "boolean": _flag,
    "array": _choices,
}

_BOUNDS: Final[Mapping[str, tuple[str, Callable[[float, float], bool]]]] = {
    "minimum": ("at least", lambda value, bound: value >= bound),
    "maximum": ("at most", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than", lambda value, bound: value < bound),
}


def _choice_of(schema: JsonObject) -> Literal["enum", "oneOf", "anyOf"] | None:
    for keyword in ("enum", "oneOf", "anyOf"):
        if schema.get(keyword) is not None:
            return keyword
    return None


def _options(schema: JsonObject, written: str) -> tuple[Option, ...]:
    listed = schema[written]
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CHOSEN:
        raise NotUnderstood(f"{written} must be a list of 1 to {MOST_CHOSEN} options")
    if written == "enum":
        names = schema.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(listed) else [""] * len(listed)
        options = [Option(value, shown(title, MOST_OPTION_TITLE)) for value, title in zip(listed, titles, strict=True)]
    else:
        options = [Option(one.get("const"), shown(one.get("title"), MOST_OPTION_TITLE)) for one in listed if _is_titled(one)]
    if len(options) < len(listed) or not all(_is_option(one.value) for one in options):
        raise NotUnderstood("its options must be texts that can be shown as they are")
    return tuple(options)


def _is_titled(one: Any) -> bool:
    return isinstance(one, dict) and one.keys() <= {"const", "title", "description", "type"}


def _is_option(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_OPTION and is_clean(value)


def _written(options: tuple[Option, ...], written: str) -> JsonObject:
    """The options in the keyword in which the server has written them."""
    if written != "enum":
        return {written: [{"const": one.value, "title": one.title or one.value} for one in options]}
    titles = {"enumNames": [one.title for one in options]} if any(one.title for one in options) else {}
    return {"enum": [one.value for one in options], **titles}


def _understood(schema: JsonObject, keywords: set[str]) -> None:
    """Raises NotUnderstood for a keyword of JSON Schema that says something about the answer and is not among those."""
    for key in schema:
        if key in KEYWORDS and key not in keywords:
            raise NotUnderstood(f"{key} is not understood there")


def _count(schema: JsonObject, key: str, default: int) -> int:
    value = schema.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise NotUnderstood(f"{key} must be a whole number")
    return value


def _is_finite(value: float) -> bool:
    return value.bit_length() <= _MOST_BITS if isinstance(value, int) else math.isfinite(value)


KEYWORDS: Final = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "const", "enum",
        "enumNames", "contains", "minContains", "maxContains", "prefixItems", "items", "additionalItems", "minItems",
        "unevaluatedItems",
        "maxItems", "uniqueItems", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties", "minProperties", "maxProperties",
        "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "divisibleBy", "contentEncoding", "contentMediaType", "contentSchema", "extends", "disallow",
    }
)  # fmt: skip # a list of words
"""Keywords of JSON Schema, of any draft, that say something about a value."""

"""Owns how the forms of values that configuration knows are said in JSON Schema.

Only words that draft 4 and draft 7 share are used: TOML editors know the one, JSON editors the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from mcpvisor.daemon.config.durations import DURATION_EXPECTED, INTENSITY_EXPECTED, SIZE_EXPECTED, UNITS_OF_SIZE, UNITS_OF_TIME
from mcpvisor.daemon.config.policies import CEILING_EXPECTED, CODES_EXPECTED, CORES_EXPECTED
from mcpvisor.supervisor.spec import Intensity

Form = dict[str, Any]

TEXT: Final[Form] = {"type": "string"}
TEXTS: Final[Form] = {"type": "array", "items": TEXT, "default": []}
WORDS: Final[Form] = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
CONDITION: Final[Form] = {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}
VARIABLE: Final[Form] = {"type": "string", "pattern": r"\$\{"}
"""A text that is something else once its variables are replaced."""
FLAG: Final[Form] = {"anyOf": [{"type": "boolean"}, VARIABLE]}

_NUMBER: Final = r"\d+(\.\d+)?"
_TIME: Final = f"{_NUMBER}({'|'.join(UNITS_OF_TIME)})"
_SIZE: Final = f"{_NUMBER} ?({'|'.join(UNITS_OF_SIZE)})"


def with_default(form: Form, default: Any) -> Form:
    """The form with its default; None is no default."""
    return form if default is None else {**form, "default": default}


def duration(default: float | None, *, positive: bool = False, least: float = 0, variable: bool = True) -> Form:
    """Seconds, or a text with a unit; `variable` is whether variables are replaced in it."""
    number: Form = {"type": "number", "minimum": least}
    text: Form = {"type": "string", "pattern": f"^{_TIME}$"}
    if positive:
        number["not"] = {"enum": [0]}
        text["not"] = {"pattern": r"^0+(\.0+)?[a-z]+$"}
    forms = [text, number, *([VARIABLE] if variable else [])]
    return with_default({"anyOf": forms}, None if default is None else written_seconds(default))


def size(default: int | None, *, least: int = 0, off: bool = False) -> Form:
    """Bytes, or a text with a unit; with `off` also that word, which None is the default of."""
    forms: list[Form] = [{"type": "string", "pattern": f"^{_SIZE}$"}, {"type": "integer", "minimum": least}, VARIABLE]
    if off:
        return {"anyOf": [{"enum": ["off"]}, *forms], "default": "off" if default is None else written_size(default)}
    return with_default({"anyOf": forms}, written_size(default) if default is not None and default >= max(least, 1) else None)


def integer(default: int | None, *, least: int, most: int | None = None, variable: bool = True) -> Form:
    """A whole number within bounds; a default below them is none."""
    number: Form = {"type": "integer", "minimum": least, **({"maximum": most} if most is not None else {})}
    form: Form = {"anyOf": [number, VARIABLE]} if variable else number
    return with_default(form, default if default is not None and default >= least else None)


def choice(words: Sequence[str], default: str | None, *, variable: bool = True) -> Form:
    """One of some words."""
    form: Form = {"anyOf": [{"enum": list(words)}, VARIABLE]} if variable else {"enum": list(words)}
    return with_default(form, default)


def words(one: Form) -> Form:
    """One text of a form, or a list of them."""
    return {"anyOf": [one, {"type": "array", "items": one}]}


def list_of(words: Sequence[str]) -> Form:
    """One of some words, or a list of them, which is not empty."""
    one: Form = {"enum": list(words)}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def expected(text: str, default: Any) -> Form:
    """The form of a value by what an error says was expected. Raises LookupError for words that are not known here."""
    make = next((make for words, make in _EXPECTED.items() if text.startswith(words)), None)
    if make is None:
        raise LookupError(f"no form is known for what expects {text!r}")
    return make(default)


def of_type(kind: str) -> Form:
    """The form of a value where any of that type is taken."""
    return {"type": kind}


def any_of(forms: Iterable[Form]) -> Form:
    """Any of several forms; one is itself."""
    found = list(forms)
    return found[0] if len(found) == 1 else {"anyOf": found}


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Form:
    """The form that takes what either takes; of two tables, the one with the keys of both."""
    if not one or one == other:
        return dict(other)
    if "properties" in one and "properties" in other:
        keys = [*one["properties"], *(key for key in other["properties"] if key not in one["properties"])]
        mine, others = one["properties"], other["properties"]
        return {
            **other,
            "properties": {
                k: merged(mine[k], others[k]) if k in mine and k in others else mine.get(k) or others[k] for k in keys
            },
        }
    either: list[Form] = []
    for form in (one, other):
        either += [part for part in form.get("anyOf", [form]) if part not in either]
    return {"anyOf": either}


def written_seconds(value: float) -> str:
    """A duration as a person writes it, in the largest unit that leaves a whole number."""
    for unit, seconds in reversed([*UNITS_OF_TIME.items()]):
        if value and value % seconds == 0 and (unit != "m" or value >= 2 * seconds):
            return f"{value / seconds:g}{unit}"
    return f"{value:g}s"


def written_size(value: int) -> str | int:
    """A size as a person writes it."""
    for unit in ("GiB", "MiB", "KiB"):
        if value and value % UNITS_OF_SIZE[unit] == 0:
            return f"{value // UNITS_OF_SIZE[unit]}{unit}"
    return value


def _intensity(default: Intensity | None) -> Form:
    text: Form = {
        "type": "string",
        "pattern": rf"^\d{{1,6}}\s*/\s*{_TIME}$",
        "not": {"pattern": r"^0+\s*/|/\s*0+(\.0+)?[a-z]+$"},
    }
    written = "off" if default is None else f"{default.ends}/{written_seconds(default.within)}"
    return {"anyOf": [{"enum": ["off"]}, text, VARIABLE], "default": written}


def _codes(default: tuple[int, ...]) -> Form:
    return {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}, "default": list(default)}


def _cores(default: float | None) -> Form:
    number: Form = {"type": "number", "minimum": 0, "not": {"enum": [0]}}
    return with_default({"anyOf": [number, VARIABLE]}, default)


_EXPECTED: Final[Mapping[str, Callable[[Any], Form]]] = {
    CEILING_EXPECTED: lambda default: size(default, least=1024 * 1024, off=True),  # before sizes, whose words it begins with
    f"{DURATION_EXPECTED}, at least": lambda default: duration(default, least=1),
    DURATION_EXPECTED: duration,
    SIZE_EXPECTED: size,
    INTENSITY_EXPECTED: _intensity,
    CODES_EXPECTED: _codes,
    CORES_EXPECTED: _cores,
}

"""Owns the words for a wrong setting: what pydantic found, said as everything else in the configuration is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import ErrorDetails

from mcpvisor.daemon.config.entry_scope import kind_of
from mcpvisor.daemon.config.problems import cut, nearest
from mcpvisor.daemon.config.settings import SECTIONS, Settings

_EXPECTED: Final[Mapping[str, str]] = {
    "bool_type": "true or false, without quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "a text",
    "path_type": "a path",
    "tuple_type": "a text or a list of texts",
    "dict_type": "a table",
    "model_type": "a table",
}


@dataclass(frozen=True, slots=True)
class SettingFault:
    """What is wrong with a setting, in the words of a `Problem`."""

    message: str
    expected: str = ""
    near: str = ""


def fault_of(details: ErrorDetails, value: Any, *, is_shown: bool) -> SettingFault:
    """What `details` say of a setting; `value` is what is written, of which words and numbers are shown if `is_shown`."""
    path, kind = details["loc"], details["type"]
    context = details.get("ctx", {})
    if kind == "extra_forbidden":
        known = known_keys(str(path[0]))
        near = nearest(str(path[-1]), known)
        return SettingFault("unknown key", "" if near or not known else "one of " + ", ".join(known), near)
    if kind == "literal_error":
        words = str(context.get("expected", "")).replace("'", '"').replace(" or ", ", ")
        near = nearest(value, words.replace('"', "").split(", ")) if isinstance(value, str) else ""
        shown = f'"{cut(value)}": ' if is_shown and isinstance(value, str) else ""
        said = f"{shown}not a word that is known here" if isinstance(value, str) else f"is {kind_of(value)}"
        return SettingFault(said, f"one of {words}", near)
    if kind in {"greater_than_equal", "less_than_equal", "greater_than"}:
        bound, least = next((context[key], key) for key in ("ge", "le", "gt") if key in context)
        words_of = {"ge": "must be at least", "le": "must be at most", "gt": "must be more than"}
        shown = f"{cut(str(value))}: " if is_shown else ""
        return SettingFault(f"{shown}{words_of[least]} {bound:g}")
    if kind in _EXPECTED:
        return SettingFault(f"is {kind_of(value)}", _EXPECTED[kind])
    message, _, expected = details["msg"].removeprefix("Value error, ").partition("; expected ")
    return SettingFault(message[:1].lower() + message[1:], expected)


def known_keys(section: str) -> list[str]:
    """The keys of a section; none of what is no section."""
    model = Settings.model_fields[section].annotation if section in SECTIONS else None
    return list(getattr(model, "model_fields", {}))

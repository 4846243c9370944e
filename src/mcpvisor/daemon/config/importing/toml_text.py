"""Owns how values are written as TOML: so that every reader of TOML reads the same values back, whatever is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_WIDTH: Final = 120


def toml_key(key: str) -> str:
    """A key, in quotes where it has to be."""
    return key if _BARE.fullmatch(key) else toml_string(key)


def toml_string(text: str) -> str:
    """A text in quotes; whatever could steer a terminal or end the line is escaped."""
    return '"' + "".join(_character(c) for c in text) + '"'


def toml_value(value: Any) -> str:
    """A value on one line. Raises TypeError for what TOML has no form for."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }" if value else "{}"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def toml_table(name: str, values: Mapping[str, Any]) -> list[str]:
    """The lines of `[servers.NAME]`; a table within that is too long for one line stands below as one of its own."""
    lines = [f"[servers.{toml_key(name)}]"]
    below: list[str] = []
    for key, value in values.items():
        line = f"{toml_key(key)} = {toml_value(value)}"
        if isinstance(value, Mapping) and len(line) > _WIDTH:
            inner = [f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()]
            below += [f"[servers.{toml_key(name)}.{toml_key(key)}]", *inner]
        elif isinstance(value, list) and len(line) > _WIDTH:
            lines += [f"{toml_key(key)} = [", *(f"    {toml_value(one)}," for one in value), "]"]
        else:
            lines.append(line)
    return [*lines, *below]


def _character(c: str) -> str:
    if c in _ESCAPES:
        return _ESCAPES[c]
    if c.isprintable():
        return c
    return f"\\u{ord(c):04X}" if ord(c) <= 0xFFFF else f"\\U{ord(c):08X}"

"""Owns how the tables that the configuration adds up to are printed: as TOML for people, as JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from mcpvisor.daemon.config.effective import Table
from mcpvisor.daemon.config.positions import KeyPath, show_path

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def as_toml(tables: Iterable[Table], *, origins: bool) -> list[str]:
    """The tables as lines of TOML; with `origins`, where each key comes from stands behind it."""
    lines: list[str] = []
    for table in tables:
        header = "[[routes]]" if table.path[0] == "routes" else f"[{show_path(table.path)}]"
        lines += ["", header] if lines else [header]
        written = [(f"{_key(shown.path)} = {toml_value(shown.value)}", shown.origin) for shown in table.keys]
        wide = min(max((len(text) for text, _ in written), default=0), 60)
        lines += [f"{text.ljust(wide)}  # {origin}" if origins else text for text, origin in written]
    return lines


def as_json(tables: Iterable[Table]) -> dict[str, Any]:
    """What `config show --json` prints; fields are added, never changed."""
    return {
        "tables": [
            {
                "table": show_path(table.path),
                "origin": table.origin,
                "keys": [{"key": show_path(one.path), "value": one.value, "origin": one.origin} for one in table.keys],
            }
            for table in tables
        ]
    }


def _key(path: KeyPath) -> str:
    parts = [str(part) for part in path]
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in parts)


def toml_value(value: Any) -> str:
    """A value as TOML writes it; dates and null, which no key takes, as texts."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key((key,))} = {toml_value(one)}" for key, one in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(one) for one in value) + "]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps("" if value is None else str(value), ensure_ascii=False).replace("\x7f", "\\u007f")

"""Owns the keys of a handler of type `python`."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mcpvisor.daemon.config.argument_secrets import named_secret
from mcpvisor.daemon.config.entry_scope import Item, kind_of
from mcpvisor.daemon.config.launch import read_environment, read_inherited
from mcpvisor.daemon.config.policies import read_limits
from mcpvisor.daemon.config.programs import check_file
from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.python_options import MEMORY, PythonOptions
from mcpvisor.supervisor.secret import Secret, reveal
from mcpvisor.supervisor.secret_looks import looks_secret
from mcpvisor.supervisor.secret_names import names_secret

OBJECT_EXPECTED: Final = 'object = "package.module:object", or entry_point = "name"'

_OBJECT = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


def read_python(entry: TableReader) -> PythonOptions | None:
    """`type = "python"` and its keys; None after a problem with which object it is."""
    arguments, secrets = _arguments(entry)
    limits = read_limits(entry)
    options = PythonOptions(
        path=entry.path("path"),
        arguments=Secret(json.dumps(arguments, sort_keys=True)),
        secrets=tuple(secrets),
        env=read_environment(entry),
        inherit_env=read_inherited(entry),
        cwd=entry.path("cwd"),
        limits=replace(limits, memory=limits.memory or MEMORY),
    )
    if (folder := entry.item("path")) is not None:
        check_file(entry, folder, options.path)
    written, named = entry.plain("object"), entry.plain("entry_point")
    item = entry.item("object") or entry.item("entry_point")
    if item is None:
        entry.scope.missing("object", expected=OBJECT_EXPECTED)
        return None
    if entry.item("object") is not None and entry.item("entry_point") is not None:
        entry.scope.problem(item, "object and entry_point say different things", expected=OBJECT_EXPECTED)
        return None
    if written is not None and not _OBJECT.fullmatch(written):
        entry.scope.problem(item, "names no object", expected=OBJECT_EXPECTED)
        return None
    if not written and not named:
        entry.scope.problem(item, "is empty", expected=OBJECT_EXPECTED)
        return None
    path = entry.item("path")
    if path is not None and named:
        entry.scope.problem(path, "belongs to object: an entry point is of an installed package", expected="no path")
    return replace(options, object=written, entry_point=named, code=_code(entry, options.path, written))


def _code(entry: TableReader, folder: str | None, written: str | None) -> str:
    """What tells the file of a module from others; of one that is installed nothing, which changes with a new start."""
    if folder is None or written is None:
        return ""
    module = Path(folder, *written.partition(":")[0].split("."))
    package = module / "__init__.py"
    return entry.scope.sources.contents(package if package.is_file() else module.with_name(f"{module.name}.py"))


def _arguments(entry: TableReader) -> tuple[dict[str, Any], list[Secret]]:
    """`arguments = { ... }` with its variables put in, and the secrets among its texts."""
    table = entry.table("arguments")
    if table is None:
        return {}, []
    secrets: list[Secret] = []
    found: dict[str, Any] = {}
    for name, item in table.all_items().items():
        if not name.isidentifier():
            entry.scope.problem(item, "cannot be the name of an argument")
        found[name] = _value(entry, item, secrets)
    return found, secrets


def _value(entry: TableReader, item: Item, secrets: list[Secret]) -> Any:
    value = item.value
    if isinstance(value, str):
        text = entry.text_of(item)
        named = next((part for part in reversed(item.path) if isinstance(part, str)), "")
        if isinstance(text, Secret) or (text and (names_secret(named) or looks_secret(text))):
            secrets.append(named_secret(named, text))
        return "" if text is None else reveal(text)
    if isinstance(value, dict):
        return {str(key): _value(entry, Item(one, (*item.path, key), item.document), secrets) for key, one in value.items()}
    if isinstance(value, list):
        return [_value(entry, Item(one, (*item.path, at), item.document), secrets) for at, one in enumerate(value)]
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    entry.scope.problem(item, f"is {kind_of(value)}", expected="a text, a number, true, false, a list or a table")
    return None

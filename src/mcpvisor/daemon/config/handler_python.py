"""Owns the keys of a handler of type `python`."""

from __future__ import annotations

import re
from typing import Final

from mcpvisor.daemon.config.table_reader import TableReader
from mcpvisor.daemon.handlers.python_options import PythonOptions

OBJECT_EXPECTED: Final = 'object = "package.module:object", or entry_point = "name"'

_OBJECT = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")


def read_python(entry: TableReader) -> PythonOptions | None:
    """`type = "python"`, `object` or `entry_point`; None after a problem with which of them it is."""
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
    return PythonOptions(object=written, entry_point=named)
